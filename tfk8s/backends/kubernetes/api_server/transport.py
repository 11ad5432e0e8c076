"""The official client by its public names, and what it lacks beside kubectl.

Added are impersonation, fresh credentials after a 401 and before a plugin's expire, no redirects, kubectl's choice of
context and proxy, and errors without secrets.
"""

from __future__ import annotations

import contextlib
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

from tfk8s.backends.kubernetes.api_server import keep_alive, login_errors
from tfk8s.errors import InvalidInput, quoted

IN_CLUSTER = "in-cluster"
PLUGIN_TIMEOUT = 180.0  # some plugins open a browser for a login
_EXPIRY_MARGIN = 5.0  # credentials are renewed so many seconds before they expire
UNAUTHORIZED = 401
Response = urllib3.BaseHTTPResponse
T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """Credentials, and the means to connect with them. Two with the same credentials are equal.

    Attributes:
        configuration: the official client's, without the certificates.
        headers, certificate: of every request; the client certificate with its key.
        expires: the time when the credentials expire, in seconds since 1970.
        tls, pool: for connections, and for requests.
    """

    configuration: Configuration = field(compare=False)
    headers: urllib3.HTTPHeaderDict
    certificate: bytes
    expires: float = field(compare=False)
    tls: ssl.SSLContext = field(compare=False)
    pool: urllib3.PoolManager = field(compare=False)


class Transport:
    """Connects to the API server of one context. Threads may share it.

    Args:
        context: a context of the kubeconfig; None is its current context, or a pod's service account, as IN_CLUSTER is.

    Attributes:
        context, namespace: the names of the context and of its namespace.
        url: the API server's address.

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
        """Send a request with the credentials; return the response, with its body unread. The options are urllib3's.

        Raises:
            urllib3.exceptions.HTTPError, OSError: there is no response.
        """

        def send(access: Access) -> Response:
            all_headers, url = access.headers | headers, f"{self.url}{path}"
            return access.pool.request(method, url, headers=all_headers, preload_content=False, **options)

        return self.with_credentials(send, lambda response: response.status == UNAUTHORIZED)

    def with_credentials(self, call: Callable[[Access], T], is_unauthorized: Callable[[T], bool]) -> T:
        """Return the result of `call`, which is repeated once with fresh credentials if the result is unauthorized."""
        result = call(access := self._get_access(None))
        if is_unauthorized(result) and (fresh := self._get_access(access)) != access:
            return call(fresh)
        return result

    def _get_access(self, refused: Access | None) -> Access:
        with self._lock:
            if self._access is refused or time.time() >= self._access.expires:
                self._access = self._load()
            return self._access

    def _load(self) -> Access:
        configuration = Configuration()
        configuration.retries, configuration.connection_pool_maxsize = False, 32  # False excludes redirects too
        # The official client writes keys to files. The files are deleted as soon as they have been read.
        with (
            tempfile.TemporaryDirectory(prefix="tfk8s-") as folder,
            login_errors.kubeconfig_errors(self._login.subject),
        ):
            expires, headers = self._login.configure(configuration, folder)
            token = configuration.api_key.get("BearerToken", "").strip()
            if token and configuration.host.startswith("https:"):
                headers["Authorization"] = token
            if not all(value.isascii() and value.isprintable() for _, value in headers.iteritems()):
                raise ConfigException("a token or a user's name contains line breaks or non-ASCII characters")
            files = filter(None, (configuration.cert_file, configuration.key_file))
            certificate = b"\n".join(Path(file).read_bytes() for file in files)
            tls = _make_tls(configuration)
            configuration.ssl_ca_cert = configuration.cert_file = configuration.key_file = None
            pool = RESTClientObject(configuration).pool_manager
            pool.connection_pool_kw |= {"ssl_context": tls, "socket_options": keep_alive.SOCKET_OPTIONS}
            return Access(configuration, headers, certificate, expires, tls, pool)


def connect(access: Access, timeout: float) -> socket.socket:
    """Return a connection for a stream. websocket-client would choose another proxy than kubectl.

    Args:
        access: the credentials, the address and the proxy.
        timeout: in seconds, for each part of the handshake.

    Raises:
        InvalidInput: the proxy can't carry a stream.
        OSError: the API server or the proxy does not respond.
    """
    configuration = access.configuration
    server, tunnel = urlsplit(configuration.host), urlsplit(configuration.proxy or "")
    host, port = server.hostname or "", server.port or (443 if server.scheme == "https" else 80)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    if tunnel.scheme == "https":
        raise InvalidInput(
            "streams to pods can't go through a proxy that speaks TLS",
            help='name an http:// proxy in the kubeconfig ("proxy-url"), or in HTTPS_PROXY',
        )
    if tunnel.hostname:
        connection = http.client.HTTPConnection(tunnel.hostname, tunnel.port or 80, timeout=timeout)
        connection.set_tunnel(f"[{host}]" if ":" in host else host, port, configuration.proxy_headers or {})
    with contextlib.ExitStack() as opened:
        opened.callback(connection.close)
        try:
            connection.connect()
        except http.client.HTTPException as error:
            raise ConnectionError("the proxy does not speak HTTP") from error
        connected: socket.socket = connection.sock
        if server.scheme == "https":
            name = configuration.tls_server_name or host
            secured = access.tls.wrap_socket(connected, server_hostname=name, do_handshake_on_connect=False)
            connected = opened.enter_context(secured)
            secured.do_handshake()
        opened.pop_all()
    return connected


class _Login:
    """One context of the kubeconfig, which is read once, or a pod's service account; `subject` is for messages."""

    def __init__(self, context: str | None) -> None:
        variable = os.environ.get("KUBECONFIG") or "~/.kube/config"
        paths = [Path(os.path.expanduser(path)) for path in variable.split(os.pathsep) if path]  # noqa: PTH111
        self._config: ConfigNode | None = None
        self.subject = os.pathsep.join(str(path) for path in paths if path.exists() and path.stat().st_size)
        namespace = Path(incluster_config.SERVICE_TOKEN_FILENAME).with_name("namespace")
        if self.subject:
            with login_errors.kubeconfig_errors(self.subject):
                self._read(context)
        elif context in (None, IN_CLUSTER) and namespace.exists():
            self.subject, self.context, self.namespace = "this pod", IN_CLUSTER, namespace.read_text().strip()
        else:
            raise login_errors.no_kubeconfig(variable)

    def _read(self, context: str | None) -> None:
        files = KubeConfigMerger(self.subject)
        current = (file.get("current-context") for file in files.config_files.values())
        name = context or next(filter(None, current), "")  # the official client would take the last file's
        self._config = config = files.config
        names = [named["name"] for named in config.value["contexts"]]
        if name not in names:
            raise login_errors.no_context(self.subject, name, names)
        self.subject, self.context = f"context {quoted(name)} of {self.subject}", name
        fields = config["contexts"].get_with_name(name)["context"]
        self.namespace = fields.safe_get("namespace") or "default"
        self._cluster = config["clusters"].get_with_name(fields["cluster"])["cluster"]
        user = fields.safe_get("user")
        self._user = config["users"].get_with_name(user) if user else ConfigNode("", {"name": ""})

    def configure(self, configuration: Configuration, folder: str) -> tuple[float, urllib3.HTTPHeaderDict]:
        """Set the configuration; return the time when the credentials expire, and the headers for impersonation."""
        if self._config is None:
            load_incluster_config(configuration, try_refresh_token=False)
            _choose_proxy(configuration, in_kubeconfig=False)
            return math.inf, urllib3.HTTPHeaderDict()
        user, expires, path = dict(self._user.safe_get("user") or {}), math.inf, self._user.path
        plugin = user.pop("exec", None)
        if user.pop("auth-provider", None):  # kubectl refreshes its token; the official client would trust any issuer
            user["token"] = self._user["user"]["auth-provider"]["config"]["id-token"]
        elif plugin and not {"token", "tokenFile", "username"} & set(user):
            with login_errors.plugin_errors(self.subject, plugin):
                fields, expires = _Plugin(self._user["user"]["exec"], str(Path(path).parent), self._cluster).login()
                user |= fields
        users = [ConfigNode(path, {"name": self._user["name"], "user": user}, path)]
        config = ConfigNode("kubeconfig", {**self._config.value, "users": users})
        KubeConfigLoader(config, self.context, None, None, None, folder).load_and_set(configuration)
        server = urlsplit(self._cluster["server"])
        if server.scheme not in ("http", "https") or not server.hostname or server.username:
            raise ConfigException('"server" must be https://HOST:PORT')
        if self._cluster.safe_get("insecure-skip-tls-verify") not in (None, False, True):
            raise ConfigException('"insecure-skip-tls-verify" must be true or false')
        _choose_proxy(configuration, in_kubeconfig=bool(self._cluster.safe_get("proxy-url")))
        return expires, _impersonation(user)


class _Plugin(ExecProvider):  # type: ignore[misc]
    """A credential plugin. The user sees the plugin's messages at once. The plugin reads only from a terminal."""

    def login(self) -> tuple[dict[str, str], float]:
        """Return the credentials as fields of a user, and the time when they expire."""
        interactive = bool(sys.stdin) and sys.stdin.isatty()
        spec: dict[str, object] = {"interactive": interactive}
        if self.cluster:
            extensions = {item["name"]: item["extension"] for item in self.cluster.value.get("extensions") or ()}
            spec["cluster"] = {**self.cluster.value, "config": extensions.get("client.authentication.k8s.io/exec")}
        info = json.dumps({"kind": "ExecCredential", "apiVersion": self.api_version, "spec": spec})
        process = subprocess.run(
            self.args, env={**self.env, "KUBERNETES_EXEC_INFO": info}, cwd=self.cwd, timeout=PLUGIN_TIMEOUT,
            stdin=None if interactive else subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
        )  # fmt: skip
        status = json.loads(process.stdout)["status"]
        user = {"token": status["token"]} if status.get("token") else {}
        if certificate := status.get("clientCertificateData"):
            user["client-certificate-data"] = b64encode(certificate.encode()).decode()
            user["client-key-data"] = b64encode(status["clientKeyData"].encode()).decode()
        if not user:
            raise ConfigException("its output has neither a token nor a certificate")
        timestamp = status.get("expirationTimestamp")
        return user, parse_rfc3339(timestamp).timestamp() - _EXPIRY_MARGIN if timestamp else math.inf


def _impersonation(user: dict[str, Any]) -> urllib3.HTTPHeaderDict:
    """Return the headers that make a user act as another user."""
    extra = user.get("as-user-extra") or {}
    values = {"User": [user.get("as")], "Uid": [user.get("as-uid")], "Group": user.get("as-groups") or ()}
    values |= {f"Extra-{quote(key, safe='')}": value for key, value in extra.items()}
    return urllib3.HTTPHeaderDict((f"Impersonate-{name}", item) for name in values for item in values[name] if item)


def _choose_proxy(configuration: Configuration, *, in_kubeconfig: bool) -> None:
    """Choose the proxy as kubectl does: the kubeconfig's for every host, the environment's for none on loopback."""
    direct = "" if in_kubeconfig else f"{configuration.no_proxy or ''},localhost,127.0.0.0/8,::1"
    configuration.no_proxy = None
    if not configuration.proxy or should_bypass_proxies(configuration.host, direct):
        configuration.proxy = None
        return
    proxy = urlsplit(configuration.proxy if "://" in configuration.proxy else f"http://{configuration.proxy}")
    login, _, address = proxy.netloc.rpartition("@")
    configuration.proxy = f"{proxy.scheme}://{address}"
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        raise ConfigException('the proxy ("proxy-url" or HTTPS_PROXY) must be http://HOST:PORT')
    configuration.proxy_headers = urllib3.make_headers(proxy_basic_auth=unquote(login) or None)


def _make_tls(configuration: Configuration) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # create_default_context refuses many clusters' authorities
    tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusts each certificate of an authority, as client-go does
    if not configuration.verify_ssl:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    elif configuration.ssl_ca_cert:
        tls.load_verify_locations(configuration.ssl_ca_cert)
    elif configuration.host.startswith("https:"):  # takes 50 ms
        tls.load_default_certs()
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file, password="")  # else OpenSSL would prompt
    return tls
