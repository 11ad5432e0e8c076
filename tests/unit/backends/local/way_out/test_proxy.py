"""Tests of the proxy, with stand-ins for servers and for the user's own proxy on this machine."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tfk8s.backends.local.way_out.proxy import Proxy, ProxyLimits
from tfk8s.backends.local.way_out.upstream import Upstream, Upstreams

Answers = Callable[[bytes], Awaitable[bytes] | bytes]


class _Proxy(Proxy):
    """A proxy that takes the server here for one elsewhere."""

    async def _resolve(self, host: str, port: int) -> list:
        import ipaddress

        return [ipaddress.ip_address("198.51.100.7")] if host == "elsewhere" else await super()._resolve(host, port)

    async def _connect(self, name: str, addresses: list, port: int):
        assert [str(address) for address in addresses] == ["198.51.100.7"]
        return await self._open_stream("127.0.0.1", port)


@contextlib.asynccontextmanager
async def serving(proxy: Proxy) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    task = asyncio.create_task(proxy.serve(listener))
    try:
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def server(response: bytes, heads: list[bytes]) -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(response)
        await writer.drain()
        if response.startswith(b"HTTP/1.1 200 tunnel"):
            writer.write(await reader.readexactly(4))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]


async def ask(port: int, data: bytes, *, end: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    if end:
        writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(-1), 5)
    finally:
        writer.close()


def proxy(**options: object) -> Proxy:
    variables = options.pop("variables", {})
    return _Proxy(options.pop("ranges", None), Upstreams(variables), own=list, **options)


def test_a_request_and_its_response() -> None:
    async def run() -> None:
        heads: list[bytes] = []
        body = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nhello"
        async with server(body, heads) as there, serving(proxy()) as here:
            answer = await ask(here, f"GET http://elsewhere:{there}/a HTTP/1.1\r\nA: b\r\n\r\n".encode())
        assert answer == b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"
        assert heads == [f"GET /a HTTP/1.1\r\nHost: elsewhere:{there}\r\nA: b\r\nConnection: close\r\n\r\n".encode()]

    asyncio.run(run())


def test_a_tunnel_is_plain() -> None:
    async def run() -> None:
        heads: list[bytes] = []
        async with server(b"\x00raw", heads) as there, serving(proxy()) as here:
            answer = await ask(here, f"CONNECT elsewhere:{there} HTTP/1.1\r\n\r\nhey\r\n\r\n".encode())
        assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n\x00raw"
        assert heads == [b"hey\r\n\r\n"]

    asyncio.run(run())


@pytest.mark.parametrize("target", ["localhost:80", "127.0.0.1:80", "[::1]:80", "0.0.0.0:80", "169.254.169.254:80"])
def test_this_machine_is_refused_after_its_name_was_resolved(target: str) -> None:
    noted: list[tuple[str, str]] = []

    async def run() -> bytes:
        async with serving(proxy(on_refused=lambda *note: noted.append(note))) as here:
            return await ask(here, f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())

    assert asyncio.run(run()).startswith(b"HTTP/1.1 403 tfk8s: ")
    assert [server for server, _ in noted] == [target]


def test_an_empty_list_closes_the_way_without_a_look_at_names() -> None:
    async def run() -> bytes:
        async with serving(proxy(ranges=[])) as here:
            return await ask(here, b"CONNECT unknown.invalid:443 HTTP/1.1\r\n\r\n")

    line = asyncio.run(run()).splitlines()[0]
    assert (
        line == b"HTTP/1.1 403 tfk8s: network.allow_to of the job file is empty: unknown.invalid:443 stays out of reach"
    )


def test_the_users_own_proxy_stands_behind() -> None:
    async def run() -> None:
        heads: list[bytes] = []
        async with server(b"HTTP/1.1 200 tunnel\r\n\r\n", heads) as there:
            url = f"http://me:p%40ss@127.0.0.1:{there}"
            variables = {"HTTPS_PROXY": url, "http_proxy": url}
            async with serving(proxy(variables=variables)) as here:
                answer = await ask(here, b"CONNECT elsewhere:443 HTTP/1.1\r\n\r\nping")
        credentials = base64.b64encode(b"me:p@ss").decode()
        assert answer == b"HTTP/1.1 200 Connection established\r\n\r\nping"
        authorization = f"Proxy-Authorization: Basic {credentials}"
        assert heads == [f"CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n{authorization}\r\n\r\n".encode()]

    asyncio.run(run())


@pytest.mark.parametrize(("length", "body"), [("", b""), ("Content-Length: 3\r\n", b"abc")])
def test_no_second_request_passes_behind_a_judged_one(length: str, body: bytes) -> None:
    async def run() -> None:
        received: list[bytes] = []

        async def take_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    while data := await reader.read(4096):
                        received.append(data)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(take_all, "127.0.0.1", 0) as upstream:
            port = upstream.sockets[0].getsockname()[1]
            variables = {"http_proxy": f"http://127.0.0.1:{port}"}
            async with serving(proxy(variables=variables)) as here:
                first = f"POST http://elsewhere/a HTTP/1.1\r\n{length}\r\n".encode() + body
                await ask(here, first + b"GET http://127.0.0.1:22/secret HTTP/1.1\r\n\r\n")
        passed = b"".join(received)
        assert passed.startswith(b"POST http://elsewhere:80/a HTTP/1.1")
        assert passed.endswith(b"\r\n\r\n" + body)

    asyncio.run(run())


def test_what_the_users_own_proxy_refuses() -> None:
    async def run() -> bytes:
        async with (
            server(b"HTTP/1.1 407 Authenticate\r\n\r\n", []) as there,
            serving(proxy(variables={"https_proxy": f"127.0.0.1:{there}"})) as here,
        ):
            return await ask(here, b"CONNECT elsewhere:443 HTTP/1.1\r\n\r\n")

    assert asyncio.run(run()).startswith(b"HTTP/1.1 502 tfk8s: your proxy answers 407 Authenticate\r\n")


@pytest.mark.parametrize(
    ("sent", "code"),
    [(b"GET / HTTP/1.1\r\n\r\n", 400), (b"A" * 5000, 400), (b"CONNECT unknown.invalid:1 HTTP/1.1\r\n\r\n", 502)],
)
def test_hostile_requests_get_one_error(sent: bytes, code: int) -> None:
    async def run() -> bytes:
        async with serving(proxy(limits=ProxyLimits(head_bytes=1000))) as here:
            return await ask(here, sent)

    assert asyncio.run(run()).startswith(f"HTTP/1.1 {code} tfk8s: ".encode())


def test_a_client_that_says_nothing_is_cut_off() -> None:
    async def run() -> bytes:
        async with serving(proxy(limits=ProxyLimits(head_seconds=0.05))) as here:
            return await ask(here, b"GET http://a")

    assert asyncio.run(run()) == b""


def test_connections_are_limited() -> None:
    async def run() -> bytes:
        async with serving(proxy(limits=ProxyLimits(connections=1))) as here:
            _, first = await asyncio.open_connection("127.0.0.1", here)
            first.write(b"G")
            await first.drain()
            try:
                return await ask(here, b"")
            finally:
                first.close()

    assert asyncio.run(run()).startswith(b"HTTP/1.1 503 ")


def test_the_proxies_of_variables() -> None:
    found = Upstreams(
        {"https_proxy": "proxy.example:3128", "HTTP_PROXY": "socks5://a:1", "no_proxy": ".corp.example,b"}
    )
    assert found.of("pypi.org", is_tunnel=True) == Upstream("proxy.example", 3128)
    assert found.of("pypi.org", is_tunnel=False) is None
    assert found.of("x.corp.example", is_tunnel=True) is None
    assert found.of("b", is_tunnel=True) is None
    assert found.hosts == {"proxy.example"}
