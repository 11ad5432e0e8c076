"""Requests and streams to an API server on loopback, by all kinds of kubeconfigs."""

from __future__ import annotations

import base64
import errno
import hashlib
import http.server
import json
import os
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket
from fakes import key_pair
from kubernetes.config import incluster_config

from tfk8s.backends.kubernetes.api_server import streams, transport
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError, NoResponse
from tfk8s.backends.kubernetes.api_server.transport import Transport
from tfk8s.errors import BackendUnreachable, ClusterError, InvalidInput

PORTS = "/api/v1/namespaces/ns/pods/pod/portforward"
V1 = "client.authentication.k8s.io/v1"
PAIR = {
    "client-certificate-data": base64.b64encode(key_pair.CERTIFICATE).decode(),
    "client-key-data": base64.b64encode(key_pair.KEY).decode(),
}
TRUSTED = {
    "certificate-authority-data": base64.b64encode(key_pair.CERTIFICATE).decode(), "tls-server-name": "api.test",
}  # fmt: skip


class Handler(http.server.BaseHTTPRequestHandler):
    """Records requests, refuses other tokens than `server.token`, opens WebSockets, and is a proxy too."""

    timeout = 30

    def do_GET(self) -> None:
        server: Any = self.server
        server.heads.append(self.headers)
        server.lines.append(self.requestline)
        if self.path == "/moved" or server.moves:
            self.send_response(302)
            scheme = "wss" if self.headers["Sec-WebSocket-Key"] else "https"
            self.send_header("location", f"{scheme}://localhost:{server.port}/")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        if server.token and self.headers["authorization"] != f"Bearer {server.token}":
            self.send_response(401)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        if key := self.headers["Sec-WebSocket-Key"]:
            digest = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()  # noqa: S324
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
            self.end_headers()
            self.wfile.write(b"\x82\x02hi" + b"\x88\x00")
            return
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def do_CONNECT(self) -> None:
        server: Any = self.server
        server.heads.append(self.headers)
        server.lines.append(self.requestline)
        if server.token:
            self.send_error(407)
            return
        self.send_response(200)
        self.end_headers()
        with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2]))) as target:
            downstream = threading.Thread(target=copy, args=(target, self.connection), daemon=True)
            downstream.start()
            copy(self.connection, target)
            downstream.join(30)

    def log_message(self, *_: object) -> None:
        pass


def copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while block := source.recv(1 << 16):
            sink.sendall(block)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def respond(listener: socket.socket, data: bytes) -> None:
    client, _ = listener.accept()
    with client:
        client.recv(1 << 16)
        client.sendall(data)


class Service(http.server.ThreadingHTTPServer):
    daemon_threads = False  # `server_close` waits for them

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heads: list[Any] = []
        self.lines: list[str] = []
        self.token = ""
        self.moves = False
        self.certificates: list[str] = []
        self.context = context
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.context is None:
            super().finish_request(request, client_address)
        else:
            request.settimeout(30)
            with self.context.wrap_socket(request, server_side=True) as wrapped:
                self.certificates.append(ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(binary_form=True)))
                super().finish_request(wrapped, client_address)

    def handle_error(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)  # else each of 40 tests reads this machine's authorities for 40 ms
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def plain() -> Iterator[Service]:
    with Service() as service:
        yield service
        service.shutdown()


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Service]:
    """A service for the host api.test that requires a client certificate."""
    (tmp_path / "pair.pem").write_bytes(key_pair.CERTIFICATE + key_pair.KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    for authority in (key_pair.CERTIFICATE, key_pair.CERTIFICATE_OF_ANOTHER_AUTHORITY):
        context.load_verify_locations(cadata=authority.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    with Service(context) as service:
        yield service
        service.shutdown()


def config(user: object = None, cluster: object = None, context: object = None, **top: Any) -> dict[str, Any]:
    """Return a kubeconfig of one context, "one"."""
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", **(context or {})}}],  # type: ignore[dict-item]
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443", **(cluster or {})}}],  # type: ignore[dict-item]
        "users": [{"name": "u", "user": {} if user is None else user}],
        **top,
    }  # fmt: skip


Write = Callable[..., list[Path]]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write kubeconfigs, each in a new folder, and name them in KUBECONFIG."""

    def write(*configs: object) -> list[Path]:
        files = [tmp_path / str(number) / "config" for number in range(len(configs))]
        for file, content in zip(files, configs, strict=True):
            file.parent.mkdir(exist_ok=True)
            file.write_text(content if isinstance(content, str) else json.dumps(content))
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
        return files

    return write


@pytest.fixture
def connect(write: Write) -> Callable[..., Client]:
    """Return a client of a service, by a kubeconfig."""

    def connect(service: Service, user: object = None, **cluster: object) -> Client:
        url = f"http{'s' if service.context else ''}://127.0.0.1:{service.port}"
        write(config(PAIR if user is None and service.context else user, {"server": url, **cluster}))
        return Client(None)

    return connect


def request(client: Client) -> object:
    return client.text("/a", {"b": "c"})


def stream(client: Client) -> None:
    streams.open_stream(client, PORTS, [("ports", 1)]).shutdown()


def both(client: Client) -> list[object]:
    """Return the response to a request, and the first message of a WebSocket."""
    opened = streams.open_stream(client, PORTS, [("ports", 1)])
    try:
        assert opened.sock is not None
        assert opened.sock.gettimeout() is None
        return [request(client), opened.recv()]
    finally:
        opened.shutdown()


BOTH = ["hi", b"hi"]


# ---- the kubeconfig ------------------------------------------------------------------------------------------------


def test_the_first_of_several_files_with_a_name_counts(write: Write) -> None:
    first = config(cluster={"server": "https://first"}, context={"namespace": "mine"}, **{"current-context": ""})
    second = config(cluster={"server": "https://second"}, **{"current-context": "two"})
    second["contexts"].append({"name": "two", "context": {"cluster": "c", "user": "u"}})
    write("", first, second, config(**{"current-context": "one"}))
    used = Transport(None)
    assert (used.context, used.namespace, used.url) == ("two", "default", "https://first")
    assert Transport("one").namespace == "mine"


@pytest.mark.parametrize("variable", ["", "~/.kube/config", "/none::~/.kube/config"])
def test_kubeconfig_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(json.dumps(config()))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", variable)
    assert Transport(None).context == "one"


@pytest.mark.parametrize("path", ["/none", "~no-such-user/none"])
def test_no_kubeconfig(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("KUBECONFIG", path)
    with pytest.raises(InvalidInput) as caught:
        Transport(None)
    assert str(caught.value) == f"no Kubernetes cluster is configured: there is no kubeconfig ({path})"
    assert "--local" in str(caught.value.help)


def test_in_a_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, secure: Service) -> None:
    monkeypatch.setenv("KUBECONFIG", "/none")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(secure.port))
    for name, text in (("TOKEN", "t\n"), ("CERT", key_pair.CERTIFICATE.decode())):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(incluster_config, f"SERVICE_{name}_FILENAME", str(tmp_path / name))
    (tmp_path / "namespace").write_text("mine\n")
    for context in (None, "in-cluster"):  # commands name the context in their advice
        used = Transport(context)
        assert (used.context, used.namespace, used.url) == ("in-cluster", "mine", f"https://127.0.0.1:{secure.port}")
    with pytest.raises(InvalidInput, match="there is no kubeconfig"):
        Transport("one")
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT")
    with pytest.raises(InvalidInput, match=r"^this pod can't be used: Service host/port is not set"):
        Transport(None)


C = 'context "one" of F'
A_FIELD = "a field has a wrong type or value"
A_HEADER = "a token or a user's name contains line breaks or non-ASCII characters"
A_KEY = "a certificate or key is invalid"
A_PROXY = 'the proxy ("proxy-url" or HTTPS_PROXY) must be http://HOST:PORT'
A_SERVER = '"server" must be https://HOST:PORT'


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


MISTAKES = [
    ("F can't be used: this is not YAML", "a: \0"),
    ("F can't be used: this is not YAML in line 2: expected ',' or ']', but got '}'", "a: 1\nb: [SECRET}\n"),
    (f"F can't be used: {A_FIELD}", "SECRET"),
    ("F can't be used: Expected all values in F/users list to have 'name' key", config(users=["SECRET"])),
    ("F names no current context; the only context is one", config(**{"current-context": ""})),
    ('F has no context "two"; it has one', config(**{"current-context": "two"})),
    ("F can't be used: Expected key cluster in F", config(context={"cluster": None})),
    ("F can't be used: Expected object with name d in F/clusters list", config(context={"cluster": "d"})),
    ("F can't be used: Expected object with name me in F/users list", config(context={"user": "me"})),
    (f"{C} can't be used: Expected key server in F", config(cluster={"server": None})),
    *(
        (f"{C} can't be used: {A_SERVER}", config(cluster={"server": server}))
        for server in ("", "https:///", "ftp://a", "localhost:8080", "https://me:SECRET@a")
    ),
    (
        f'{C} can\'t be used: "insecure-skip-tls-verify" must be true or false',
        config(cluster={"insecure-skip-tls-verify": "false"}),
    ),
    (f"{C} can't be used: {A_HEADER}", config({"token": "SECRET\nx: y"})),
    (f"{C} can't be used: {A_HEADER}", config({"as": "a\nb"})),
    (f"{C} can't be used: Expected key token in F/user", config({"token": None, "client-key-data": "SECRET"})),
    (f"{C} can't be used: {A_FIELD}", config({"client-key-data": "SECRET"})),
    (f"{C} can't be used: {A_FIELD}", config({"exec": "SECRET"})),
    (
        f"{C} can't be used: Expected key id-token in F",
        config({"auth-provider": {"config": {"access-token": "SECRET"}}}),
    ),
    (f"{C} can't be used: File does not exist: D/gone", config({"client-key": "gone"})),
    (f"{C} can't be used: D/gone: No such file or directory", config({"tokenFile": "gone"})),
    (
        f"{C} can't be used: {A_KEY}: no certificate or crl found",
        config(cluster={"certificate-authority-data": encoded(b"SECRET")}),
    ),
    (
        f"{C} can't be used: {A_KEY}: key values mismatch",
        config({**PAIR, "client-key-data": encoded(key_pair.KEY_OF_ANOTHER)}),
    ),
    (
        f"{C} can't be used: {A_KEY}: not PEM, or protected by a password",
        config({**PAIR, "client-key-data": encoded(key_pair.KEY_WITH_A_PASSWORD)}),
    ),
    *(
        (f"{C} can't be used: {A_PROXY}", config(cluster={"proxy-url": proxy}))
        for proxy in ("socks5://me:SECRET@p:1", "http://:SECRET@")
    ),
]


def test_kubeconfig_mistake_is_one_error_without_secrets(write: Write) -> None:
    for message, mistake in MISTAKES:
        (file,) = write(mistake)
        with pytest.raises(InvalidInput) as caught:
            Transport(None)
        assert str(caught.value).replace(str(file.parent), "D").replace("D/config", "F") == message, message
        assert "SECRET" not in f"{caught.value}{caught.value.help}", message


def test_a_folder_is_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    with pytest.raises(InvalidInput) as caught:
        Transport(None)
    assert str(caught.value) == f"{tmp_path} can't be used: Is a directory"


# ---- TLS -----------------------------------------------------------------------------------------------------------


def test_client_certificate_over_tls(
    connect: Callable[..., Client], secure: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "keys"))
    assert both(connect(secure, **TRUSTED)) == BOTH
    assert list((tmp_path / "keys").iterdir()) == []


def test_each_certificate_of_an_authority_is_trusted(
    connect: Callable[..., Client], secure: Service, tmp_path: Path
) -> None:
    (tmp_path / "other.pem").write_bytes(key_pair.CERTIFICATE_OF_ANOTHER_AUTHORITY + key_pair.KEY)
    assert secure.context is not None
    secure.context.load_cert_chain(tmp_path / "other.pem")
    authority = base64.b64encode(key_pair.CERTIFICATE_OF_ANOTHER_AUTHORITY).decode()
    assert both(connect(secure, **TRUSTED | {"certificate-authority-data": authority})) == BOTH


def test_insecure_server_is_trusted(connect: Callable[..., Client], secure: Service) -> None:
    assert both(connect(secure, **{"insecure-skip-tls-verify": True})) == BOTH


@pytest.mark.parametrize("ask", [request, stream])
@pytest.mark.parametrize(
    ("missing", "words"),
    [("tls-server-name", "IP address mismatch"), ("certificate-authority-data", "self-signed certificate")],
)
def test_server_that_is_not_trusted(
    connect: Callable[..., Client], secure: Service, missing: str, words: str, ask: Callable[[Client], object]
) -> None:
    client = connect(secure, **{key: value for key, value in TRUSTED.items() if key != missing})
    with pytest.raises(BackendUnreachable, match=f"is not the one that the kubeconfig trusts: {words}"):
        ask(client)


# ---- credentials ---------------------------------------------------------------------------------------------------


def test_headers_for_credentials_and_impersonation(connect: Callable[..., Client], secure: Service) -> None:
    extra = {"scopes.example.org/a": ["x", "y"]}
    user = {"token": "t", "as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": extra}
    both(connect(secure, {**PAIR, **user}, **TRUSTED))
    for head in secure.heads:
        assert head["authorization"] == "Bearer t"
        assert (head["Impersonate-User"], head["Impersonate-Uid"]) == ("jane", "7")
        assert head.get_all("Impersonate-Group") == ["a", "b"]
        assert head.get_all("Impersonate-Extra-scopes.example.org%2Fa") == ["x", "y"]
    assert secure.heads[0].get_all("Sec-WebSocket-Protocol") == ["v4.channel.k8s.io"]


def test_password(connect: Callable[..., Client], secure: Service) -> None:
    request(connect(secure, {**PAIR, "username": "me", "password": "p:"}, **TRUSTED))
    assert secure.heads[0]["authorization"] == "Basic " + base64.b64encode(b"me:p:").decode()


def test_id_token_of_an_auth_provider(connect: Callable[..., Client], secure: Service) -> None:
    provider = {"name": "oidc", "config": {"id-token": "a.b.c", "idp-issuer-url": "https://127.0.0.1:1"}}
    request(connect(secure, {**PAIR, "auth-provider": provider}, **TRUSTED))
    assert secure.heads[0]["authorization"] == "Bearer a.b.c"


def test_credentials_never_go_over_plain_http(connect: Callable[..., Client], plain: Service) -> None:
    both(connect(plain, {"token": "t", "as": "jane"}))
    assert [(head["authorization"], head["Impersonate-User"]) for head in plain.heads] == [(None, "jane")] * 2


def test_redirects_are_not_followed(connect: Callable[..., Client], secure: Service) -> None:
    client = connect(secure, {**PAIR, "token": "t"}, **TRUSTED)
    assert client.transport.request("GET", "/moved", headers={}).status == 302
    secure.moves = True
    with pytest.raises(ClusterError):
        stream(client)
    assert len(secure.heads) == 2


@pytest.mark.parametrize("ask", [request, stream])
def test_refused_token_is_read_again(
    connect: Callable[..., Client], secure: Service, tmp_path: Path, ask: Callable[[Client], object]
) -> None:
    secure.token = "old"
    (tmp_path / "token").write_text("old\n")
    client = connect(secure, {**PAIR, "tokenFile": str(tmp_path / "token")}, **TRUSTED)
    ask(client)
    (tmp_path / "token").write_text("new")
    secure.token = "new"
    ask(client)
    assert [head["authorization"] for head in secure.heads] == ["Bearer old", "Bearer old", "Bearer new"]


@pytest.mark.parametrize("ask", [request, stream])
def test_token_that_stays_refused_is_one_error(
    connect: Callable[..., Client], secure: Service, ask: Callable[[Client], object]
) -> None:
    secure.token = "other"
    client = connect(secure, {**PAIR, "token": "t"}, **TRUSTED)
    with pytest.raises(ApiError, match="refuses your credentials"):
        ask(client)
    assert len(secure.heads) == 1


# ---- plugins -------------------------------------------------------------------------------------------------------

PLUGIN = """\
#!/bin/sh
cd "$(dirname "$0")"
echo "$KUBERNETES_EXEC_INFO" >>asked
echo "$1 $NAME $(cat)" >>started
cat answer
"""


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, Any]:
    """Return a user with a plugin that prints what is in the file `answer`."""
    program = tmp_path / "0" / "bin" / "log in"
    program.parent.mkdir(parents=True)
    program.write_text(PLUGIN)
    program.chmod(0o700)
    settings = {"command": "bin/log in", "args": ["one"], "env": [{"name": "NAME", "value": "me"}]}
    return {"exec": {**settings, "apiVersion": V1, "interactiveMode": "Never", "provideClusterInfo": True}}


def print_next(tmp_path: Path, **status: object) -> None:
    (tmp_path / "0" / "bin" / "answer").write_text(json.dumps({"apiVersion": V1, "status": status}))


def starts(tmp_path: Path) -> list[str]:
    return (tmp_path / "0" / "bin" / "started").read_text().splitlines()


@pytest.mark.programs
def test_plugin_with_a_token(
    connect: Callable[..., Client], secure: Service, plugin: dict[str, Any], tmp_path: Path
) -> None:
    secure.token = "old"
    print_next(tmp_path, token="old")
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    client = connect(secure, {**PAIR, **plugin}, **TRUSTED, extensions=[extension])
    assert both(client) == BOTH
    assert starts(tmp_path) == ["one me "]
    asked = json.loads((tmp_path / "0" / "bin" / "asked").read_text())
    assert (asked["kind"], asked["apiVersion"], asked["spec"]["interactive"]) == ("ExecCredential", V1, False)
    cluster = asked["spec"]["cluster"]
    assert (cluster["server"], cluster["config"]) == (f"https://127.0.0.1:{secure.port}", {"audience": "a"})
    assert cluster["certificate-authority-data"] == TRUSTED["certificate-authority-data"]
    secure.token = "new"
    print_next(tmp_path, token="new")
    assert both(client) == BOTH
    assert len(starts(tmp_path)) == 2


@pytest.mark.programs
def test_plugin_is_started_again_before_its_certificate_expires(
    connect: Callable[..., Client], secure: Service, plugin: dict[str, Any], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    now = 4e9
    monkeypatch.setattr(transport.time, "time", lambda: now)
    first, second = key_pair.CERTIFICATE.decode(), key_pair.CERTIFICATE_OF_ANOTHER_AUTHORITY.decode()
    key = key_pair.KEY.decode()
    print_next(tmp_path, clientCertificateData=first, clientKeyData=key, expirationTimestamp="2096-10-02T07:09:00Z")
    client = connect(secure, plugin, **TRUSTED)
    now += 134
    assert both(client) == BOTH
    assert secure.certificates == [first, first]
    now += 2
    print_next(tmp_path, clientCertificateData=second, clientKeyData=key)
    assert both(client) == BOTH
    assert secure.certificates == [first, first, second, second]
    assert len(starts(tmp_path)) == 2


@pytest.mark.programs
def test_threads_start_a_plugin_once_after_a_401(
    connect: Callable[..., Client], secure: Service, plugin: dict[str, Any], tmp_path: Path
) -> None:
    print_next(tmp_path, token="old")
    client = connect(secure, {**PAIR, **plugin}, **TRUSTED)
    secure.token = "new"
    print_next(tmp_path, token="new")
    answers: list[object] = []
    threads = [threading.Thread(target=lambda: answers.append(request(client))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == ["hi"] * 8
    assert len(starts(tmp_path)) == 2


NO_STATUS = "its output is no ExecCredential with a status"
FAILURES = [
    ("it ended with exit code 3", "exit 3"),
    (NO_STATUS, "echo SECRET"),
    (NO_STATUS, "echo '{}'"),
    (NO_STATUS, """echo '{"status": {"token": "SECRET", "expirationTimestamp": "soon"}}'"""),
    (NO_STATUS, """echo '{"status": {"clientCertificateData": "SECRET"}}'"""),
    ("its output has neither a token nor a certificate", """echo '{"status": {}}'"""),
    ("it did not end in 0.1 s", "exec sleep 1000"),
]


def test_plugin_mistake_shows_no_secret(write: Write) -> None:
    settings = {"command": "login", "apiVersion": V1, "env": [{"name": "A"}], "args": ["SECRET"]}
    (file,) = write(config({"exec": settings}))
    with pytest.raises(NoResponse) as caught:
        Transport(None)
    assert str(caught.value).endswith(f"gave no credentials: Expected key value in {file}")


@pytest.mark.programs
@pytest.mark.parametrize(("reason", "script"), FAILURES)
def test_plugin_that_fails(
    write: Write, plugin: dict[str, Any], tmp_path: Path, reason: str, script: str, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if "sleep" in script:
        monkeypatch.setattr(transport, "PLUGIN_TIMEOUT", 0.1)
    (tmp_path / "0" / "bin" / "log in").write_text(f"#!/bin/sh\necho please log in >&2\n{script}\n")
    (file,) = write(config(plugin))
    with pytest.raises(NoResponse) as caught:
        Transport(None)
    plugin_of = f'the credential plugin "bin/log in" of context "one" of {file}'
    assert str(caught.value) == f"{plugin_of} gave no credentials: {reason}"
    assert capfd.readouterr().err == "please log in\n"


@pytest.mark.programs
@pytest.mark.parametrize("mode", [0o600, None])
def test_plugin_that_can_not_be_started(write: Write, plugin: dict[str, Any], tmp_path: Path, mode: int | None) -> None:
    program = tmp_path / "0" / "bin" / "log in"
    program.chmod(mode) if mode else program.unlink()
    plugin["exec"]["installHint"] = "Install\n it \x1b[31m from there"
    (file,) = write(config(plugin))
    with pytest.raises((NoResponse, InvalidInput)) as caught:
        Transport(None)
    if mode:
        assert str(caught.value).endswith("gave no credentials: it can't be started: Permission denied")
    else:
        program_missing = 'its credential plugin "bin/log in" is not installed, or not in PATH'
        assert str(caught.value) == f'context "one" of {file} can\'t be used: {program_missing}'
        assert caught.value.help == "Install it \N{REPLACEMENT CHARACTER}[31m from there"


@pytest.mark.parametrize(
    ("user", "expected"), [({"token": "t"}, "Bearer t"), ({"tokenFile": "token"}, "Bearer in-file"), ({}, None)]
)
def test_plugin_is_started_only_without_other_credentials(
    connect: Callable[..., Client], secure: Service, plugin: dict[str, Any], tmp_path: Path, user: dict[str, str],
    expected: str | None,
) -> None:  # fmt: skip
    (tmp_path / "0" / "token").write_text("in-file")
    request(connect(secure, {**PAIR, **(plugin if user else {}), **user}, **TRUSTED))
    assert secure.heads[0]["authorization"] == expected


# ---- proxies -------------------------------------------------------------------------------------------------------


def test_proxy_with_a_login(connect: Callable[..., Client], secure: Service, plain: Service) -> None:
    client = connect(secure, **TRUSTED, **{"proxy-url": f"http://me:a%40b@127.0.0.1:{plain.port}"})
    assert both(client) == BOTH
    login = "Basic " + base64.b64encode(b"me:a@b").decode()
    assert [head["Proxy-Authorization"] for head in plain.heads] == [login] * 2
    assert [line.partition(" ")[0] for line in plain.lines] == ["CONNECT"] * 2


@pytest.mark.parametrize(
    ("server", "no_proxy", "is_used"),
    [
        ("https://127.0.0.2:1", "", False),
        ("https://localhost:1", "", False),
        ("https://[::1]:1", "", False),
        ("https://api.test", "", True),
        ("https://api.test", "test", False),
        ("https://10.1.2.3", "10.0.0.0/8", False),
        ("https://11.1.2.3", "10.0.0.0/8", True),
    ],
)
def test_proxy_of_the_environment(
    write: Write, plain: Service, monkeypatch: pytest.MonkeyPatch, server: str, no_proxy: str, is_used: bool
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{plain.port}")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    write(config(cluster={"server": server}))
    proxies = []
    Transport(None).with_credentials(lambda access: proxies.append(access.configuration.proxy), lambda _: False)
    assert proxies == [f"http://127.0.0.1:{plain.port}" if is_used else None]


def test_proxy_of_the_kubeconfig_is_always_used(
    connect: Callable[..., Client], secure: Service, plain: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    assert both(connect(secure, **TRUSTED, **{"proxy-url": f"http://127.0.0.1:{plain.port}"})) == BOTH
    assert len(plain.lines) == 2


@pytest.mark.parametrize("ask", [request, stream])
def test_proxy_that_requires_a_login(
    connect: Callable[..., Client], secure: Service, plain: Service, ask: Callable[[Client], object]
) -> None:
    plain.token = "another"
    client = connect(secure, **TRUSTED, **{"proxy-url": f"http://127.0.0.1:{plain.port}"})
    with pytest.raises(BackendUnreachable, match="407"):
        ask(client)


def test_proxy_that_refuses_connections(connect: Callable[..., Client], secure: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    client = connect(secure, **TRUSTED, **{"proxy-url": f"http://127.0.0.1:{port}"})
    with pytest.raises(NoResponse) as caught:
        request(client)
    error = caught.value
    assert str(error).endswith("does not answer: the proxy failed: Connection refused")
    assert error.had_no_effect
    assert str(error.help).startswith("HTTPS_PROXY or the kubeconfig's proxy-url sets the proxy")


def test_ipv6_address_behind_a_proxy(write: Write, plain: Service) -> None:
    proxy = f"http://127.0.0.1:{plain.port}"
    write(config(cluster={"server": f"http://[::1]:{plain.port}", "proxy-url": proxy}))
    stream(Client(None))
    assert plain.lines[0].startswith(f"CONNECT [::1]:{plain.port} ")


def test_proxy_that_speaks_no_http(write: Write) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        write(config(cluster={"server": "https://api.test", "proxy-url": f"127.0.0.1:{other.getsockname()[1]}"}))
        answering = threading.Thread(target=respond, args=(other, b"SSH-2.0-OpenSSH\r\n"))
        answering.start()
        with pytest.raises(BackendUnreachable, match="the proxy does not speak HTTP"):
            stream(Client(None))
        answering.join(30)


# ---- no connection stays open --------------------------------------------------------------------------------------


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """All connections of clients, which stay open until something closes them: the list keeps them from the end."""
    made: list[socket.socket] = []
    create, wrap = socket.create_connection, ssl.SSLContext.wrap_socket

    def note_created(*arguments: Any, **options: Any) -> socket.socket:
        made.append(create(*arguments, **options))
        return made[-1]

    def note_wrapped(*arguments: Any, server_side: bool = False, **options: Any) -> ssl.SSLSocket:
        wrapped = wrap(*arguments, server_side=server_side, **options)
        if not server_side:
            made.append(wrapped)
        return wrapped

    monkeypatch.setattr(socket, "create_connection", note_created)
    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", note_wrapped)
    return made


def are_closed(connections: list[socket.socket]) -> bool:
    return bool(connections) and all(connection.fileno() == -1 for connection in connections)


def test_a_stream_that_the_api_server_closes(
    connect: Callable[..., Client], secure: Service, connections: list[socket.socket]
) -> None:
    opened = streams.open_stream(connect(secure, **TRUSTED), PORTS, [("ports", 1)])
    assert [opened.recv_data_frame()[0] for _ in range(2)] == [
        websocket.ABNF.OPCODE_BINARY,
        websocket.ABNF.OPCODE_CLOSE,
    ]
    opened.close()
    assert are_closed(connections)


@pytest.mark.parametrize("fault", ["Ctrl-C in the handshake", "a silent proxy"])
def test_a_connection_that_is_never_handed_over(
    write: Write, monkeypatch: pytest.MonkeyPatch, connections: list[socket.socket], fault: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(streams, "OPEN_TIMEOUT", 0.02)
    monkeypatch.setattr(ssl.SSLSocket, "do_handshake", interrupt)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"127.0.0.1:{silent.getsockname()[1]}"
        proxy = {"proxy-url": f"http://{url}"} if fault == "a silent proxy" else {}
        write(config(cluster={"server": f"https://{url}", **proxy}))
        with pytest.raises(BackendUnreachable if proxy else KeyboardInterrupt):
            stream(Client(None))
    assert are_closed(connections)


@pytest.mark.parametrize("fails", [(streams, "set_write_timeout"), (socket, "socketpair")])
def test_a_stream_that_is_never_handed_over(
    connect: Callable[..., Client], secure: Service, monkeypatch: pytest.MonkeyPatch,
    connections: list[socket.socket], fails: tuple[Any, str],
) -> None:  # fmt: skip
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    client = connect(secure, **TRUSTED)
    monkeypatch.setattr(*fails, fail)
    with pytest.raises((OSError, BackendUnreachable)):
        streams.dial(client, "ns", "pod", 2222)
    assert are_closed(connections)


def test_streams_through_a_proxy_that_speaks_tls(connect: Callable[..., Client], secure: Service) -> None:
    client = connect(secure, **TRUSTED, **{"proxy-url": "https://127.0.0.1:1"})
    with pytest.raises(InvalidInput, match="streams to pods can't go through a proxy that speaks TLS"):
        stream(client)
