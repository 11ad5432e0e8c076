"""Where the API server is and who asks: from the kubeconfig or, in a pod without one, from the pod's own rights.

What can't change while a command runs is read here, certificates too; no program is started, and nothing is asked.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

from tfk8s.backends.kubernetes.access import Access, KeyPair, Plugin, Server, User, entries
from tfk8s.backends.kubernetes.access.entries import Entry, Merged
from tfk8s.errors import InvalidInput, quoted, there_are

IN_CLUSTER = "in-cluster"
POD = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT = "~/.kube/config"
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")
_FOR_PLUGINS = "client.authentication.k8s.io/exec"  # the extension of a cluster that its plugins are told
_IN_HEADER_NAMES = "!#$&'*+^`|"  # besides letters, digits and what `quote` leaves (RFC 9110, token)


def load(context: str | None, *, pod: Path = POD) -> Access:
    """Return what a context says, or the current one.

    Args:
        context: its name; None is the current one.
        pod: where a pod has its service account.

    Raises:
        InvalidInput: there is no kubeconfig, or it can't be used.
    """
    merged = entries.read(os.environ.get("KUBECONFIG") or DEFAULT)
    if merged.found:
        return _resolve(merged, context or merged.current)
    if context is None and (pod / "namespace").exists():
        return _of_pod(pod, os.environ)
    raise InvalidInput(
        f"no Kubernetes cluster to talk to: there is no kubeconfig ({merged.places})",
        help="`kind create cluster --config kind-config.yaml` makes one; or use --local, which needs none",
    )


def _resolve(merged: Merged, name: str) -> Access:
    if not name:
        what = f"{merged.places} names no current context; {there_are(list(merged.contexts))}"
        raise InvalidInput(what, help="say which with --context, or `kubectl config use-context NAME`")
    if name not in merged.contexts:
        raise InvalidInput(
            f"{merged.places} has no context {quoted(name)}; it has {', '.join(merged.contexts) or 'none'}",
            help="kubectl config get-contexts",
        )
    context = merged.contexts[name]
    cluster, user = (_meant(context, kind, getattr(merged, f"{kind}s")) for kind in ("cluster", "user"))
    if cluster is None:
        raise context.wrong("it names no cluster")
    server = _server(cluster)
    who = User(about=f"context {quoted(name)}") if user is None else _user(user, cluster, server)
    if server.url.startswith("http://"):  # as client-go: whoever listens would read them
        who = User(about=who.about, acts_as=who.acts_as)
    return Access(context=name, namespace=context.text("namespace") or "default", server=server, user=who)


def _meant(context: Entry, kind: str, known: Mapping[str, Entry]) -> Entry | None:
    """Return the cluster or the user that a context names; None where it names none."""
    name = context.text(kind)
    if name and name not in known:
        raise context.wrong(f"it names {kind} {quoted(name)}, and {there_are(list(known))}")
    return known.get(name)


def _server(cluster: Entry) -> Server:
    url = cluster.text("server")
    if not url:
        raise cluster.wrong('it has no "server"')
    if "@" in url:
        raise cluster.wrong('"server" has a login in it', help="it has to be in the user, as username and password")
    url = url if "://" in url else f"http://{url}"  # as client-go
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise cluster.wrong(f'"server" is {quoted(url)}', help="it has to be as https://HOST:PORT")
    url = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
    server = Server(
        about=cluster.about, url=url, name=cluster.text("tls-server-name"), proxy=cluster.text("proxy-url"),
        authority=cluster.content("certificate-authority"), insecure=cluster.flag("insecure-skip-tls-verify"),
    )  # fmt: skip
    if server.insecure and server.authority:
        raise cluster.wrong('it has "certificate-authority" and "insecure-skip-tls-verify"', help="keep one of them")
    return server


def _user(user: Entry, cluster: Entry, server: Server) -> User:
    login = (user.text("username"), user.text("password"))
    plugin, provider = user.table("exec"), user.table("auth-provider")
    if user.text("token") and any(login):
        raise user.wrong('it has "token" and "username"', help="keep one of them")
    if plugin and provider:
        raise user.wrong('it has "exec" and "auth-provider"', help="keep one of them")
    return User(
        about=user.about,
        token=user.text("token"),
        token_file=user.path("tokenFile"),
        login=login if any(login) else None,
        id_token=_id_token(provider) if provider else "",
        key_pair=_key_pair(user),
        plugin=_plugin(plugin, cluster, server) if plugin else None,
        acts_as=tuple(_acts_as(user)),
    )


def _key_pair(user: Entry) -> KeyPair | None:
    certificate, key = user.content("client-certificate"), user.content("client-key")
    if certificate and not key:
        raise user.wrong('it has "client-certificate" and no "client-key"')
    return KeyPair(certificate, key) if certificate else None


def _id_token(provider: Entry) -> str:
    """Return the token that kubectl keeps up to date; all other providers are gone from it since Kubernetes 1.26."""
    if (name := provider.text("name")) != "oidc":
        raise provider.wrong(
            f"the provider {quoted(name)} is no longer known to kubectl either",
            help="get the kubeconfig again from the cluster's provider: it logs in by a program (exec) now",
        )
    config = provider.table("config")
    if config is None or not config.text("id-token"):
        raise provider.wrong("it has no id-token yet", help="`kubectl get pods` logs in and keeps one")
    return config.text("id-token")


def _plugin(plugin: Entry, cluster: Entry, server: Server) -> Plugin:
    command, version = plugin.text("command"), plugin.text("apiVersion")
    if not command:
        raise plugin.wrong('it has no "command"')
    if version not in _VERSIONS:
        what = f'"apiVersion" is {quoted(version)}, and has to be {" or ".join(_VERSIONS)}'
        raise plugin.wrong(what, help="get the kubeconfig again from the cluster's provider")
    mode = plugin.text("interactiveMode") or ("IfAvailable" if version.endswith("v1beta1") else "")
    if mode not in _MODES:
        raise plugin.wrong(f'"interactiveMode" is {quoted(mode)}, and has to be {", ".join(_MODES)}')
    environment = {one.text("name"): one.text("value") for one in plugin.tables("env")}
    if "" in environment:
        raise plugin.wrong('one of "env" has no "name"')
    return Plugin(
        command=str(plugin.path("command")) if "/" in command else command,
        arguments=plugin.texts("args"),
        environment=environment,
        version=version,
        interactive=mode,
        hint=plugin.text("installHint"),
        cluster=dict(_told(cluster, server)) if plugin.flag("provideClusterInfo") else None,
    )


def _told(cluster: Entry, server: Server) -> Iterator[tuple[str, object]]:
    """Yield what a plugin is told of the API server (client.authentication.k8s.io/v1, Cluster)."""
    yield "server", server.url
    if server.name:
        yield "tls-server-name", server.name
    if server.insecure:
        yield "insecure-skip-tls-verify", True
    if server.authority:
        yield "certificate-authority-data", base64.b64encode(server.authority).decode()
    if server.proxy:
        yield "proxy-url", server.proxy
    for extension in cluster.tables("extensions"):
        if extension.text("name") == _FOR_PLUGINS:
            yield "config", extension.plain("extension")


def _acts_as(user: Entry) -> Iterator[tuple[str, str]]:
    """Yield the headers that name whom a user acts as (k8s.io/client-go, transport/round_trippers.go)."""
    name, uid, groups, extra = (
        user.text("as"),
        user.text("as-uid"),
        user.texts("as-groups"),
        user.table("as-user-extra"),
    )
    if not name and (uid or groups or extra):
        raise user.wrong('it has "as-uid", "as-groups" or "as-user-extra", and no "as"')
    headers = [("Impersonate-User", name), ("Impersonate-Uid", uid), *(("Impersonate-Group", one) for one in groups)]
    for key in extra.keys() if extra else ():
        values = extra.texts(key) if extra else ()
        headers += [(f"Impersonate-Extra-{quote(key, safe=_IN_HEADER_NAMES)}", value) for value in values]
    for header, value in headers:
        if not (value.isprintable() and value.isascii()):
            raise user.wrong(f"{header} can't be {quoted(value)}: a header has neither line ends nor other alphabets")
        if value:
            yield header, value


def _of_pod(pod: Path, environment: Mapping[str, str]) -> Access:
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise InvalidInput(
            "this pod has a service account, and KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set",
            help="name a kubeconfig in KUBECONFIG",
        )
    about = f"the service account in {pod}"
    try:
        authority, namespace = (pod / "ca.crt").read_bytes(), (pod / "namespace").read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{about} can't be used: {error}") from error
    url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(
        context=IN_CLUSTER, namespace=namespace, server=Server(about=about, url=url, authority=authority),
        user=User(about=about, token_file=pod / "token"),
    )  # fmt: skip
