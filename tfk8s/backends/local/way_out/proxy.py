"""The HTTP(S) proxy of a cluster's supervisor: CONNECT, and requests for URLs of http://.

It listens inside of the cluster's network, and connects from this machine's own. It resolves each name itself, judges
the addresses, and connects to an address that it has judged. Its clients and the servers are not trusted: heads, times,
connections and memory have limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from tfk8s.backends.local.way_out import http_heads, own_addresses
from tfk8s.backends.local.way_out.http_heads import BadHead, ProxyRequest
from tfk8s.backends.local.way_out.upstream import Upstream, Upstreams
from tfk8s.core.network.reach import Address, Allowed, Range, refusal
from tfk8s.core.network.way_out import Way

_HEAD_END = b"\r\n\r\n"
_CHUNK = 1 << 16

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyLimits:
    """The limits of a proxy.

    Attributes:
        connections: at the same time.
        head_bytes: of a request's or a response's head.
        head_seconds: for a client to send a request's head.
        resolve_seconds: for a name.
        connect_seconds: for a connection to one address.
        idle_seconds: without a byte in either direction.
        half_closed_seconds: the same, after the end of one direction.
    """

    connections: int = 256
    head_bytes: int = 1 << 16
    head_seconds: float = 20.0
    resolve_seconds: float = 20.0
    connect_seconds: float = 10.0
    idle_seconds: float = 3600.0
    half_closed_seconds: float = 60.0


class ProxyRefusal(Exception):
    """A request that is not served: the status, and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Proxy:
    """The proxy.

    Args:
        ranges: the addresses that the job file allows; None is all.
        upstreams: the user's own proxies.
        on_refused: called with the server, as `host:port`, and the reason if the rules refuse a request.
        own: returns the addresses of this machine.
    """

    def __init__(
        self,
        ranges: Sequence[Allowed] | None,
        upstreams: Upstreams,
        on_refused: Callable[[str, str], object] = lambda *_: None,
        own: Callable[[], Collection[Range]] = own_addresses.read,
        limits: ProxyLimits = ProxyLimits(),
    ) -> None:
        self._ranges, self._upstreams, self._on_refused = ranges, upstreams, on_refused
        self._own, self._limits = own, limits
        self._open = 0

    async def serve(self, listener: socket.socket) -> None:
        """Serve the clients of a listening socket until this task is cancelled."""
        server = await asyncio.start_server(self._accept, sock=listener, limit=self._limits.head_bytes)
        async with server:
            await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > self._limits.connections:
                raise ProxyRefusal(HTTPStatus.SERVICE_UNAVAILABLE, "the proxy has no more connections")
            await self._handle((reader, writer))
        except ProxyRefusal as refused:
            await _answer(writer, http_heads.error_response(refused.code, f"tfk8s: {refused}"))
        except (OSError, asyncio.IncompleteReadError):  # either side is gone
            pass
        except Exception:
            traceback.print_exc(file=sys.stderr)
        finally:
            self._open -= 1
            await _close(writer)

    async def _handle(self, client: Streams) -> None:
        request = await self._read_request(client[0])
        upstream = self._upstreams.of(request.host, is_tunnel=request.is_tunnel)
        addresses = await self._judged(request, upstream)
        if upstream is None:
            server = await self._connect(request.authority, addresses, request.port)
        else:
            server = await self._connect_upstream(upstream)
        try:
            if request.is_tunnel:
                await self._tunnel(request, client, server, upstream)
            else:
                await self._exchange(request, client, server, upstream)
        finally:
            await _close(server[1])

    async def _read_request(self, reader: asyncio.StreamReader) -> ProxyRequest:
        try:
            async with asyncio.timeout(self._limits.head_seconds):
                return http_heads.parse_request(await reader.readuntil(_HEAD_END))
        except (BadHead, asyncio.LimitOverrunError) as error:
            raise ProxyRefusal(HTTPStatus.BAD_REQUEST, str(error)) from error

    # ---- the server's addresses ----

    async def _judged(self, request: ProxyRequest, upstream: Upstream | None) -> list[Address]:
        """Return the addresses of a server that may be connected to.

        Another proxy resolves the name itself. It gets names that this machine does not know, unless the job file has
        a list of addresses.
        """
        if self._ranges is not None and not self._ranges:  # nothing is allowed: the name need not be known
            self._refuse(request, f"{Way.CLOSED.cause}: {request.authority} stays out of reach")
        try:
            found = await self._resolve(request.host, request.port)
        except (OSError, UnicodeError) as error:
            if upstream is not None and self._ranges is None:
                return []
            reason = getattr(error, "strerror", None) or "no answer in time"
            raise ProxyRefusal(HTTPStatus.BAD_GATEWAY, f"can't resolve {request.host}: {reason}") from error
        own = self._own()
        reasons = {address: refusal(address, request.port, own, self._ranges) for address in found}
        good = [address for address, reason in reasons.items() if not reason]
        if not good or (upstream is not None and len(good) < len(reasons)):
            self._refuse(request, f"{request.authority}: {next(filter(None, reasons.values()), 'it has no address')}")
        return good

    def _refuse(self, request: ProxyRequest, reason: str) -> None:
        self._on_refused(request.authority, reason)
        raise ProxyRefusal(HTTPStatus.FORBIDDEN, reason)

    async def _resolve(self, host: str, port: int) -> list[Address]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._limits.resolve_seconds):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(ipaddress.ip_address(address[0]) for *_, address in found))

    # ---- the connection to a server ----

    async def _connect(self, name: str, addresses: Sequence[Address], port: int) -> Streams:
        reason = ""
        for address in addresses:
            try:
                return await self._open_stream(str(address), port)
            except TimeoutError:
                reason = f"no answer in {self._limits.connect_seconds:g} s"
            except OSError as error:
                reason = error.strerror or str(error)
        raise ProxyRefusal(HTTPStatus.GATEWAY_TIMEOUT, f"can't connect to {name}: {reason}")

    async def _connect_upstream(self, upstream: Upstream) -> Streams:
        try:
            return await self._open_stream(upstream.host, upstream.port, is_tls=upstream.is_tls)
        except OSError as error:
            name = http_heads.authority(upstream.host, upstream.port)
            raise ProxyRefusal(HTTPStatus.BAD_GATEWAY, f"can't connect to your proxy {name}: {error}") from error

    async def _open_stream(self, host: str, port: int, *, is_tls: bool = False) -> Streams:
        context = ssl.create_default_context() if is_tls else None
        async with asyncio.timeout(self._limits.connect_seconds):
            streams = await asyncio.open_connection(host, port, limit=self._limits.head_bytes, ssl=context)
        streams[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return streams

    # ---- what passes ----

    async def _tunnel(self, request: ProxyRequest, client: Streams, server: Streams, upstream: Upstream | None) -> None:
        if upstream is not None:
            server[1].write(request.connect_head(upstream.headers))
            head = await self._read_response(server[0])
            if http_heads.status(head) != HTTPStatus.OK:
                answer = head.split(b" ", 1)[1].splitlines()[0].decode("latin-1")
                raise ProxyRefusal(HTTPStatus.BAD_GATEWAY, f"your proxy answers {answer}")
        client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            async with asyncio.timeout(self._limits.idle_seconds) as idle, asyncio.TaskGroup() as group:
                group.create_task(self._pump(client[0], server[1], idle))
                group.create_task(self._pump(server[0], client[1], idle))
        except* OSError:  # either side is gone; a timeout is one, too
            pass

    async def _exchange(
        self, request: ProxyRequest, client: Streams, server: Streams, upstream: Upstream | None
    ) -> None:
        """Hand on one request and its response; the connection closes, so that the next request is judged again."""
        body_bytes = None if upstream is None else request.body_bytes
        if upstream is not None and body_bytes is None:  # another request might follow, which nobody has judged
            raise ProxyRefusal(HTTPStatus.LENGTH_REQUIRED, "before your own proxy, a body needs a Content-Length")
        target = request.path if upstream is None else f"http://{request.authority}{request.path}"
        server[1].write(request.head(target, upstream.headers if upstream else []))
        async with asyncio.timeout(self._limits.idle_seconds) as idle:
            body = asyncio.create_task(self._pump(client[0], server[1], idle, half_close=False, limit=body_bytes))
            try:
                while http_heads.is_informational(head := await self._read_response(server[0])):
                    client[1].write(head)
                client[1].write(http_heads.closing_response(head))
                await self._pump(server[0], client[1], idle)
            finally:
                body.cancel()
                await asyncio.gather(body, return_exceptions=True)

    async def _read_response(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(_HEAD_END)
            http_heads.status(head)
        except (BadHead, asyncio.LimitOverrunError, asyncio.IncompleteReadError) as error:
            raise ProxyRefusal(HTTPStatus.BAD_GATEWAY, "the server's answer is no response of HTTP/1") from error
        return head

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, idle: asyncio.Timeout,
        *, half_close: bool = True, limit: int | None = None,
    ) -> None:  # fmt: skip
        loop = asyncio.get_running_loop()
        left = sys.maxsize if limit is None else limit
        while left and (data := await reader.read(min(_CHUNK, left))):
            left -= len(data)
            idle.reschedule(loop.time() + self._limits.idle_seconds)
            writer.write(data)
            await writer.drain()
        if half_close:
            idle.reschedule(loop.time() + min(self._limits.idle_seconds, self._limits.half_closed_seconds))
            if writer.can_write_eof():
                writer.write_eof()


async def _answer(writer: asyncio.StreamWriter, response: bytes) -> None:
    with contextlib.suppress(OSError):
        writer.write(response)
        await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError, asyncio.CancelledError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
