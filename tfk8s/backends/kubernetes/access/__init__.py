"""The way to an API server: where it is and who asks (a kubeconfig's context), with what credentials, over which wires.

Written here, since the official client costs a third of a second of every command, for a class a kind of object. And it
leaves out impersonation, and what client-go does when a plugin's credentials are refused or its certificate changes.
What a kubeconfig means is what client-go makes of it (tools/clientcmd, transport, plugin/pkg/client/auth/exec).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An API server.

    Attributes:
        about: where it stands, for messages.
        url: "https://host:port", perhaps with a path; no slash at its end.
        authority: the certificates (PEM) that it is trusted by; empty is the system's.
        insecure: whoever answers is trusted.
        name: what its certificate has to be for; "" is the url's host.
        proxy: the url of what to reach it through; "" leaves that to the environment.
    """

    about: str
    url: str
    authority: bytes = b""
    insecure: bool = False
    name: str = ""
    proxy: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A client certificate and its key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A program that prints credentials (client.authentication.k8s.io).

    Attributes:
        command: its name, or an absolute path.
        arguments: what it is started with.
        environment: what it gets besides this process' own.
        version: the API version that it is asked in, and answers in.
        interactive: "Never", "IfAvailable" or "Always": whether it reads standard input.
        hint: how to install it; "" where nothing says so.
        cluster: what it is told of the API server; None is nothing.
    """

    command: str
    arguments: tuple[str, ...] = field(default=(), repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    version: str
    interactive: str
    hint: str = ""
    cluster: Mapping[str, object] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who asks an API server. Of several credentials the first one here counts; a key pair does besides.

    Attributes:
        about: where the user stands, for messages.
        token_file: a file with a token in it, which others renew.
        token: a bearer token; where the file can't be read.
        login: name and password.
        id_token: of an OpenID provider.
        key_pair: for TLS.
        plugin: asked where there is nothing else.
        acts_as: headers that name whom the user acts as.
    """

    about: str
    token_file: Path | None = None
    token: str = field(default="", repr=False)
    login: tuple[str, str] | None = field(default=None, repr=False)
    id_token: str = field(default="", repr=False)
    key_pair: KeyPair | None = None
    plugin: Plugin | None = None
    acts_as: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a context says.

    Attributes:
        context: its name; "in-cluster" in a pod without a kubeconfig.
        namespace: the one that it names.
        server, user: which.
    """

    context: str
    namespace: str
    server: Server
    user: User
