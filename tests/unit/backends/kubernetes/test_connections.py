"""Requests and WebSockets, over TLS and through proxies, with credentials that change; on loopback."""

from __future__ import annotations

import base64
import hashlib
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import urllib3
import websocket
from fakes import key_pair

from tfk8s.backends.kubernetes import errors
from tfk8s.backends.kubernetes.access import Access, KeyPair, Plugin, Server, User, connections, tls
from tfk8s.backends.kubernetes.access.connections import Connections
from tfk8s.backends.kubernetes.access.credentials import Credential
from tfk8s.errors import InvalidInput

PAIR = KeyPair(key_pair.CERTIFICATE, key_pair.KEY)
TIMEOUT = urllib3.Timeout(30)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the headers it got, refuses all tokens but `server.token`, makes WebSockets, and is a proxy too."""

    timeout = 30  # of sockets

    def do_GET(self) -> None:
        server: Any = self.server
        server.heads.append(self.headers)
        server.lines.append(self.requestline)
        if self.path == "/moved":
            self.send_response(302)
            scheme = "ws" if self.headers["Sec-WebSocket-Key"] else "http"
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
            self.wfile.write(b"\x82\x02hi")
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
        with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2]))) as there:
            back = threading.Thread(target=pump, args=(there, self.connection), daemon=True)
            back.start()
            pump(self.connection, there)
            back.join(30)

    def log_message(self, *_: object) -> None:
        pass


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while block := source.recv(1 << 16):
            sink.sendall(block)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def say(listener: socket.socket, words: bytes) -> None:
    client, _ = listener.accept()
    with client:
        client.recv(1 << 16)
        client.sendall(words)


class Service(http.server.ThreadingHTTPServer):
    daemon_threads = False  # its end waits for them

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heads: list[Any] = []
        self.lines: list[str] = []
        self.token = ""
        self.context = context
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.context is None:
            super().finish_request(request, client_address)
        else:
            request.settimeout(30)
            with self.context.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)

    def handle_error(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def plain() -> Iterator[Service]:
    with Service() as service:
        yield service
        service.shutdown()


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Service]:
    """A service for the host api.test that wants to see a certificate."""
    (tmp_path / "pair.pem").write_bytes(key_pair.CERTIFICATE + key_pair.KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair.pem")
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=key_pair.CERTIFICATE.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    with Service(context) as service:
        yield service
        service.shutdown()


def of(service: Service, user: User | None = None, **server: Any) -> Connections:
    url = f"http{'s' if service.context else ''}://127.0.0.1:{service.port}"
    where = Server(about='cluster "c" of F', url=url, **server)
    who = user or User(about='user "u" of F', key_pair=PAIR if service.context else None)
    return Connections(Access(context="", namespace="", server=where, user=who), lambda _: None)


def request(ways: Connections) -> object:
    return ways.request("GET", "/", headers={}, body=None, timeout=TIMEOUT).data


def stream(ways: Connections) -> None:
    ways.open_websocket("/", "", 30).shutdown()


def both(ways: Connections) -> list[bytes]:
    """Return the answer to a request, and what comes over a WebSocket."""
    asked = ways.request("GET", "/a?b=c", headers={"x": "y"}, body=None, timeout=TIMEOUT).data
    opened = ways.open_websocket("/a?b=c", "v4.channel.k8s.io", 30)
    try:
        assert opened.sock is not None
        assert opened.sock.gettimeout() is None
        return [asked, opened.recv()]
    finally:
        opened.shutdown()


TRUSTED = {"authority": key_pair.CERTIFICATE, "name": "api.test"}


# ---- TLS -----------------------------------------------------------------------------------------------------------


def test_over_tls_with_a_client_certificate(secure: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").mkdir()
    monkeypatch.setattr(tls.tempfile, "tempdir", str(tmp_path / "keys"))
    assert both(of(secure, **TRUSTED)) == [b"hi", b"hi"]
    assert list((tmp_path / "keys").iterdir()) == []


def test_each_certificate_of_an_authority_is_trusted_by_itself(secure: Service, tmp_path: Path) -> None:
    (tmp_path / "other.pem").write_bytes(key_pair.CERTIFICATE_OF_ANOTHER_AUTHORITY + key_pair.KEY)
    assert secure.context is not None
    secure.context.load_cert_chain(tmp_path / "other.pem")
    assert both(of(secure, name="api.test", authority=key_pair.CERTIFICATE_OF_ANOTHER_AUTHORITY)) == [b"hi", b"hi"]


def test_an_insecure_server_is_believed(secure: Service) -> None:
    assert both(of(secure, insecure=True)) == [b"hi", b"hi"]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"authority": key_pair.CERTIFICATE}, "IP address mismatch, certificate is not valid for '127.0.0.1'."),
        ({"name": "api.test"}, "self-signed certificate"),
    ],
)
def test_a_server_that_is_not_trusted(secure: Service, server: dict[str, Any], words: str) -> None:
    ways = of(secure, **server)
    for ask in (request, stream):
        with pytest.raises((urllib3.exceptions.HTTPError, OSError)) as caught:
            ask(ways)
        said = str(errors.unreachable(caught.value, "one", "https://h"))
        assert "is not the one that the kubeconfig trusts" in said
        assert words.rstrip(".") in said


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (KeyPair(key_pair.CERTIFICATE, key_pair.KEY_OF_ANOTHER), "key values mismatch"),
        (KeyPair(key_pair.CERTIFICATE, key_pair.KEY_WITH_A_PASSWORD), "the key has a password"),
        (KeyPair(b"SECRET", key_pair.KEY), ""),
        (KeyPair(key_pair.CERTIFICATE, b"SECRET"), ""),
    ],
)
def test_a_key_pair_that_is_none(pair: KeyPair, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        tls.make_context(Server(about="", url="https://h"), pair, 'user "u" of F')
    said = str(caught.value)
    assert said.startswith('the client certificate and key of user "u" of F can\'t be used: ')
    assert words in said
    assert "SECRET" not in said


def test_an_authority_that_is_none() -> None:
    with pytest.raises(InvalidInput, match=r"^the certificate-authority of cluster .* can.t be used: [a-z ]+"):
        tls.make_context(Server(about='cluster "c" of F', url="https://h", authority=b"SECRET"), None, "")


# ---- credentials ---------------------------------------------------------------------------------------------------


def test_headers_say_who_asks(plain: Service) -> None:
    acts_as = (("Impersonate-User", "jane"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    both(of(plain, User(about="", token="t", acts_as=acts_as)))
    for head in plain.heads:
        assert head["authorization"] == "Bearer t"
        assert head["Impersonate-User"] == "jane"
        assert head.get_all("Impersonate-Group") == ["a", "b"]
    assert plain.heads[0]["x"] == "y"
    assert plain.heads[1].get_all("Sec-WebSocket-Protocol") == ["v4.channel.k8s.io"]


@pytest.mark.parametrize("ask", [request, stream])
def test_a_token_that_is_refused_is_read_again(plain: Service, tmp_path: Path, ask: Any) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    ways = of(plain, User(about="", token_file=file))
    plain.token = "old"
    ask(ways)
    file.write_text("new")
    plain.token = "new"
    ask(ways)
    assert [head["authorization"] for head in plain.heads] == ["Bearer old", "Bearer old", "Bearer new"]


def test_a_token_that_stays_refused_is_no_loop(plain: Service) -> None:
    plain.token = "other"
    ways = of(plain, User(about="", token="t"))
    answer = ways.request("GET", "/", headers={}, body=None, timeout=TIMEOUT)
    assert (answer.status, answer.data) == (401, b"")
    with pytest.raises(websocket.WebSocketBadStatusException) as caught:
        stream(ways)
    assert caught.value.status_code == 401
    assert len(plain.heads) == 2


PLUGIN = Plugin(command="p", version="", interactive="Never")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"token": "t", "plugin": PLUGIN}, "Bearer t"),
        ({"token": "t", "plugin": PLUGIN, "token_file": Path("token")}, "Bearer in-file"),
        ({"plugin": PLUGIN}, "Bearer of p"),
        ({}, None),
    ],
)
def test_of_several_credentials_the_first_counts(
    plain: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], expected: str | None
) -> None:
    monkeypatch.setattr(
        connections, "FromPlugin", lambda _, plugin, __: connections.Fixed(Credential(f"Bearer of {plugin.command}"))
    )
    (tmp_path / "token").write_text("in-file")
    monkeypatch.chdir(tmp_path)
    request(of(plain, User(about="", **fields)))
    assert plain.heads[0]["authorization"] == expected


def test_credentials_go_nowhere_else(plain: Service) -> None:
    ways = of(plain, User(about="", token="t"))
    assert ways.request("GET", "/moved", headers={}, body=None, timeout=TIMEOUT).status == 302
    with pytest.raises(websocket.WebSocketException):
        ways.open_websocket("/moved", "", 30)
    assert len(plain.heads) == 2


def test_another_client_certificate_gets_other_connections(secure: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(PAIR, certificate=b"\n" + PAIR.certificate)
    pairs = [PAIR, PAIR, other]
    wires = []
    made = connections._Wires

    def make(*arguments: Any) -> Any:
        wires.append(made(*arguments))
        return wires[-1]

    class Changing:
        def get(self) -> connections.Credential:
            return connections.Credential("", pairs.pop(0))

    monkeypatch.setattr(connections, "_Wires", make)
    ways = of(secure, **TRUSTED)
    ways._credentials = Changing()  # type: ignore[assignment]
    for _ in range(3):
        assert request(ways) == b"hi"
    assert [wire.credential.key_pair for wire in wires] == [PAIR, other]


# ---- proxies -------------------------------------------------------------------------------------------------------


def test_through_a_proxy_with_a_login(secure: Service, plain: Service) -> None:
    assert both(of(secure, **TRUSTED, proxy=f"http://me:secret@127.0.0.1:{plain.port}")) == [b"hi", b"hi"]
    assert [head["Proxy-Authorization"] for head in plain.heads] == ["Basic bWU6c2VjcmV0"] * 2
    assert len(secure.heads) == 2


def test_a_proxy_that_refuses(secure: Service, plain: Service) -> None:
    plain.token = "another"
    ways = of(secure, **TRUSTED, proxy=f"http://127.0.0.1:{plain.port}")
    for ask in (request, stream):
        with pytest.raises((urllib3.exceptions.HTTPError, OSError)) as caught:
            ask(ways)
        assert "407" in str(errors.unreachable(caught.value, "one", "https://h"))


def test_a_proxy_where_nobody_listens(secure: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    ways = of(secure, **TRUSTED, proxy=f"http://127.0.0.1:{port}")
    with pytest.raises(urllib3.exceptions.ProxyError) as caught:
        request(ways)
    error = errors.unreachable(caught.value, "one", "https://h")
    assert str(error).endswith("does not answer: the proxy before it lets nobody through: Connection refused")
    assert error.unheard
    assert str(error.help).startswith("HTTPS_PROXY, or the kubeconfig's proxy-url, names it")


def test_an_api_server_with_an_ipv6_address_behind_a_proxy(plain: Service) -> None:
    there = Server(about="", url=f"http://[::1]:{plain.port}", proxy=f"http://127.0.0.1:{plain.port}")
    stream(Connections(Access(context="", namespace="", server=there, user=User(about="")), lambda _: None))
    assert plain.lines[0].startswith(f"CONNECT [::1]:{plain.port} ")


def test_a_proxy_that_speaks_something_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        there = Server(about="", url="https://api.test", proxy=f"http://127.0.0.1:{other.getsockname()[1]}")
        ways = Connections(Access(context="", namespace="", server=there, user=User(about="")), lambda _: None)
        answering = threading.Thread(target=say, args=(other, b"SSH-2.0-OpenSSH\r\n"))
        answering.start()
        with pytest.raises(OSError, match="the proxy before it speaks no HTTP"):
            stream(ways)
        answering.join(30)


def test_streams_through_a_proxy_that_speaks_tls(secure: Service) -> None:
    ways = of(secure, **TRUSTED, proxy="https://127.0.0.1:1")
    with pytest.raises(InvalidInput, match="names a proxy that streams to pods can't go through"):
        stream(ways)
