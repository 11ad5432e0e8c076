"""The official client as the way to an API server, and what it lacks beside kubectl.

It reads kubeconfigs, tokens and certificates, and makes requests. Added through its public names: impersonation, fresh
credentials after a 401 and when a plugin's expire, no redirects, kubectl's choice of context and proxy, clear errors.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject, should_bypass_proxies
from kubernetes.config import ConfigException, incluster_config, load_incluster_config
from kubernetes.config.dateutil import parse_rfc3339
from kubernetes.config.exec_provider import ExecProvider
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

from tfk8s.backends.kubernetes import errors
from tfk8s.errors import InvalidInput, quoted

IN_CLUSTER = "in-cluster"
PLUGIN_SECONDS = 180.0  # some plugins open a browser for a login
_EARLY_SECONDS = 5.0  # a plugin is asked again so long before its credentials expire
UNAUTHORIZED = 401
Response = urllib3.BaseHTTPResponse
T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """Credentials, by which two are compared, and what connects with them.

    Attributes:
        configuration: the official client's; its certificates are in `tls`.
        headers: say who makes a request.
        certificate: the client certificate and its key.
        until: when the credentials expire, in seconds since 1970.
        tls, pool: for connections, and for requests.
    """

    configuration: Configuration = field(compare=False)
    headers: urllib3.HTTPHeaderDict
    certificate: bytes
    until: float = field(compare=False)
    tls: ssl.SSLContext = field(compare=False)
    pool: urllib3.PoolManager = field(compare=False)

    def connect(self, timeout: float) -> socket.socket:
        """Return a connection to the API server for a stream. websocket-client would choose another proxy."""
        server, tunnel = urlsplit(self.configuration.host), urlsplit(self.configuration.proxy or "")
        host, port = server.hostname or "", server.port or (443 if server.scheme == "https" else 80)
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
        if tunnel.scheme == "https":
            raise InvalidInput(
                "streams to pods can't go through a proxy that speaks TLS",
                help='name an http:// proxy in the kubeconfig ("proxy-url"), or in HTTPS_PROXY',
            )
        if tunnel.hostname:
            connection = http.client.HTTPConnection(tunnel.hostname, tunnel.port or 80, timeout=timeout)
            headers = self.configuration.proxy_headers or {}
            connection.set_tunnel(f"[{host}]" if ":" in host else host, port, headers)
        try:
            connection.connect()
        except http.client.HTTPException as error:
            connection.close()
            raise ConnectionError("the proxy does not speak HTTP") from error
        connected: socket.socket = connection.sock
        if server.scheme != "https":
            return connected
        return self.tls.wrap_socket(connected, server_hostname=self.configuration.tls_server_name or host)


class Transport:
    """Connections to the API server of one context; threads may share it.

    Args:
        context: a context of the kubeconfig; None is its current one, or a pod's service account.

    Attributes:
        context, namespace, url: the context's names, and the API server's address.

    Raises:
        InvalidInput: the kubeconfig can't be used.
        BackendUnreachable: a credential plugin fails.
    """

    def __init__(self, context: str | None) -> None:
        self._login, self._lock = _Login(context), threading.Lock()
        self._access = self._load()
        self.context, self.namespace = self._login.context, self._login.namespace
        self.url: str = self._access.configuration.host

    def request(self, method: str, path: str, *, headers: Mapping[str, str], **options: Any) -> Response:
        """Return the answer to a request, of which the head is read; `options` are urllib3's.

        Raises:
            urllib3.exceptions.HTTPError, OSError: there is no answer.
        """

        def send(access: Access) -> Response:
            own, url = access.headers | headers, f"{self.url}{path}"
            return access.pool.request(method, url, headers=own, preload_content=False, **options)

        return self.with_credentials(send, lambda answer: answer.status == UNAUTHORIZED)

    def with_credentials(self, ask: Callable[[Access], T], is_refused: Callable[[T], bool]) -> T:
        """Return what `ask` returns; if the API server refuses the credentials, what it returns with fresh ones."""
        answer = ask(access := self._get(None))
        if is_refused(answer) and (fresh := self._get(access)) != access:
            return ask(fresh)
        return answer

    def _get(self, refused: Access | None) -> Access:
        with self._lock:
            if self._access is refused or time.time() >= self._access.until:
                self._access = self._load()
            return self._access

    def _load(self) -> Access:
        configuration = Configuration()
        configuration.retries, configuration.connection_pool_maxsize = False, 32  # nor does it follow redirects
        # The official client writes keys to files, which are gone when they have been read.
        with tempfile.TemporaryDirectory(prefix="tfk8s-") as folder, errors.of_kubeconfig(self._login.about):
            until, headers = self._login.configure(configuration, folder)
            token = configuration.api_key.get("BearerToken", "").strip()
            if token and configuration.host.startswith("https:"):
                headers["Authorization"] = token
            if not all(value.isascii() and value.isprintable() for _, value in headers.iteritems()):
                raise ConfigException("a token, or a user's name, has line ends or other alphabets in it")
            files = filter(None, (configuration.cert_file, configuration.key_file))
            certificate = b"\n".join(Path(file).read_bytes() for file in files)
            tls = _make_tls(configuration)
            configuration.ssl_ca_cert = configuration.cert_file = configuration.key_file = None
            pool = RESTClientObject(configuration).pool_manager
            pool.connection_pool_kw["ssl_context"] = tls
            return Access(configuration, headers, certificate, until, tls, pool)


class _Login:
    """One context of the kubeconfig, which is read once, or a pod's service account."""

    def __init__(self, context: str | None) -> None:
        places = os.environ.get("KUBECONFIG") or "~/.kube/config"
        paths = [Path(os.path.expanduser(place)) for place in places.split(os.pathsep) if place]  # noqa: PTH111
        self._config: ConfigNode | None = None
        self.about = os.pathsep.join(str(path) for path in paths if path.exists() and path.stat().st_size)
        namespace = Path(incluster_config.SERVICE_TOKEN_FILENAME).with_name("namespace")
        if self.about:
            with errors.of_kubeconfig(self.about):
                self._read(context)
        elif context is None and namespace.exists():
            self.about, self.context, self.namespace = "this pod", IN_CLUSTER, namespace.read_text().strip()
        else:
            raise errors.no_kubeconfig(places)

    def _read(self, context: str | None) -> None:
        files = KubeConfigMerger(self.about)
        current = (file.get("current-context") for file in files.config_files.values())
        name = context or next(filter(None, current), "")  # the official client takes the last file's
        self._config = config = files.config
        names = [named["name"] for named in config.value["contexts"]]
        if name not in names:
            raise errors.no_context(self.about, name, names)
        self.about, self.context = f"context {quoted(name)} of {self.about}", name
        fields = config["contexts"].get_with_name(name)["context"]
        self.namespace = fields.safe_get("namespace") or "default"
        self._cluster = config["clusters"].get_with_name(fields["cluster"])["cluster"]
        user = fields.safe_get("user")
        self._user = config["users"].get_with_name(user) if user else ConfigNode("", {"name": ""})

    def configure(self, configuration: Configuration, folder: str) -> tuple[float, urllib3.HTTPHeaderDict]:
        """Set all that connections need; return when it expires, and the headers for impersonation."""
        if self._config is None:
            load_incluster_config(configuration, try_refresh_token=False)
            _choose_proxy(configuration, is_given=False)
            return math.inf, urllib3.HTTPHeaderDict()
        user, until, path = dict(self._user.safe_get("user") or {}), math.inf, self._user.path
        plugin = user.pop("exec", None)
        if user.pop("auth-provider", None):  # kubectl refreshes its token; the official client would trust any issuer
            user["token"] = self._user["user"]["auth-provider"]["config"]["id-token"]
        elif plugin and not {"token", "tokenFile", "username"} & set(user):
            with errors.of_plugin(self.about, plugin):
                printed, until = _Plugin(self._user["user"]["exec"], str(Path(path).parent), self._cluster).ask()
                user |= printed
        users = [ConfigNode(path, {"name": self._user["name"], "user": user}, path)]
        config = ConfigNode("kubeconfig", {**self._config.value, "users": users})
        KubeConfigLoader(config, self.context, None, None, None, folder).load_and_set(configuration)
        server = urlsplit(self._cluster["server"])
        if server.scheme not in ("http", "https") or not server.hostname or server.username:
            raise ConfigException('"server" has to be as https://HOST:PORT')
        if self._cluster.safe_get("insecure-skip-tls-verify") not in (None, False, True):
            raise ConfigException('"insecure-skip-tls-verify" has to be true or false')
        _choose_proxy(configuration, is_given=bool(self._cluster.safe_get("proxy-url")))
        return until, _impersonation(user)


class _Plugin(ExecProvider):  # type: ignore[misc]
    """A credential plugin. The user sees its messages at once, and it reads from a terminal alone."""

    def ask(self) -> tuple[dict[str, str], float]:
        """Return its credentials as fields of a user, and when they expire."""
        interactive = bool(sys.stdin) and sys.stdin.isatty()
        spec: dict[str, object] = {"interactive": interactive}
        if self.cluster:
            extensions = {one["name"]: one["extension"] for one in self.cluster.value.get("extensions") or ()}
            spec["cluster"] = {**self.cluster.value, "config": extensions.get("client.authentication.k8s.io/exec")}
        info = json.dumps({"kind": "ExecCredential", "apiVersion": self.api_version, "spec": spec})
        done = subprocess.run(
            self.args, env={**self.env, "KUBERNETES_EXEC_INFO": info}, cwd=self.cwd, timeout=PLUGIN_SECONDS,
            stdin=None if interactive else subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        status = json.loads(done.stdout)["status"]
        user = {"token": status["token"]} if status.get("token") else {}
        if certificate := status.get("clientCertificateData"):
            user["client-certificate-data"] = b64encode(certificate.encode()).decode()
            user["client-key-data"] = b64encode(status["clientKeyData"].encode()).decode()
        if not user:
            raise ConfigException("its answer has neither a token nor a certificate")
        expires = status.get("expirationTimestamp")
        return user, parse_rfc3339(expires).timestamp() - _EARLY_SECONDS if expires else math.inf


def _impersonation(user: dict[str, Any]) -> urllib3.HTTPHeaderDict:
    """Return the headers for whom a user acts as."""
    extra = user.get("as-user-extra") or {}
    given = {"User": [user.get("as")], "Uid": [user.get("as-uid")], "Group": user.get("as-groups") or ()}
    given |= {f"Extra-{quote(key, safe='')}": values for key, values in extra.items()}
    headers = ((f"Impersonate-{name}", value) for name, values in given.items() for value in values if value)
    return urllib3.HTTPHeaderDict(headers)


def _choose_proxy(configuration: Configuration, *, is_given: bool) -> None:
    """Choose the proxy as kubectl does: always the kubeconfig's, and none of the environment's for loopback."""
    direct = "" if is_given else f"{configuration.no_proxy or ''},localhost,127.0.0.0/8,::1"
    configuration.no_proxy = None
    if not configuration.proxy or should_bypass_proxies(configuration.host, direct):
        configuration.proxy = None
        return
    proxy = urlsplit(configuration.proxy if "://" in configuration.proxy else f"http://{configuration.proxy}")
    login, _, address = proxy.netloc.rpartition("@")
    configuration.proxy = f"{proxy.scheme}://{address}"
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        raise ConfigException('the proxy, in "proxy-url" or HTTPS_PROXY, has to be as http://HOST:PORT')
    configuration.proxy_headers = urllib3.make_headers(proxy_basic_auth=unquote(login) or None)


def _make_tls(configuration: Configuration) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # create_default_context refuses many clusters' authorities
    tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # each certificate of an authority is trusted, as in client-go
    if not configuration.verify_ssl:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    elif configuration.ssl_ca_cert:
        tls.load_verify_locations(configuration.ssl_ca_cert)
    elif configuration.host.startswith("https:"):  # reading them takes 50 ms
        tls.load_default_certs()
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file, password="")  # never asked for
    return tls
