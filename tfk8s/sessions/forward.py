"""A loopback address that leads to a task's server.

Each connection gets a new stream from `dial`. So a client's later connections lead to a restarted task, and TensorFlow
reconnects by itself. The forward reports connections that break, and that a later one works.

A TensorFlow server runs any graph for any client, and any user of this machine can connect to its loopback addresses.
On Linux, the forward refuses connections from processes of other users.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence

from tfk8s.errors import InvalidInput, Tfk8sError
from tfk8s.sessions.cluster.create_session import GetFields
from tfk8s.sessions.cluster.elastic_requests import FillingStream
from tfk8s.sessions.cluster.socket_users import own_clients
from tfk8s.sessions.http2_proxy import ProxiedConnection, stand_in

_LOOPBACK = "127.0.0.1"

Dial = Callable[[], socket.socket]
Notify = Callable[[str], None]

_BROKEN = "the connection to the task broke: pending calls fail, later calls connect again"
_BACKLOG = 128  # connections that wait
PAUSE = 0.1  # seconds, after which the next connections are accepted, if there was trouble with some
_REFUSED_INTERVAL = 60.0  # between two messages about refused connections
_CLOSED = "the task does not answer: the connection to it was closed"


class Forward:
    """Listens on 127.0.0.1 from its creation until `close`, on other threads.

    Args:
        dial: opens a stream to the server, for each connection.
        port: the port to listen on; 0 is any free port.
        notify: is called, on another thread, with the reason when connections break, and when they work again.
        shared: other programs of this user may listen on the port, too, at the machine's other addresses.
        get_fields: returns what the sessions of an elastic cluster lack; None for other servers.

    Attributes:
        port: the port in use.

    Raises:
        InvalidInput: the port is in use, or not allowed.
    """

    def __init__(
        self,
        dial: Dial,
        port: int = 0,
        notify: Notify | None = None,
        *,
        shared: bool = False,
        get_fields: GetFields | None = None,
    ) -> None:
        self._dial, self._notify, self._get_fields = dial, notify, get_fields
        self._listener = listen(port, shared=shared)
        self._lock = threading.Lock()
        self._connections: dict[ProxiedConnection, bool] = {}  # True: to the server; False: to its stand-in
        self._is_lost = False
        self._closing = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        self._trouble = ""  # the last one reported
        self._refused, self._silent_until = 0, 0.0  # connections of other users that no message has counted
        self._start(self._accept)

    @property
    def target(self) -> str:
        """The address for sessions, "grpc://127.0.0.1:PORT"."""
        return f"grpc://{_LOOPBACK}:{self.port}"

    def close(self) -> None:
        """Stop listening, and end all connections."""
        with self._lock:
            self._closing.set()
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread that waits for it; closing alone would not
        self._listener.close()

    def abort_calls(self, reason: str, min_age: float = 0.0) -> int:
        """Abort the calls that have waited for `min_age` seconds, as `ProxiedConnection.abort_calls`."""
        with self._lock:
            connections = list(self._connections)
        return sum(connection.abort_calls(reason, min_age) for connection in connections)

    def stand_in(self) -> None:
        """Answer in the place of the server, which is lost: calls wait until they are aborted."""
        self._is_lost = True

    def resume(self) -> None:
        """Dial the server again; connections to the stand-in end, and their clients reconnect."""
        with self._lock:
            self._is_lost = False
            connections = [connection for connection, is_real in self._connections.items() if not is_real]
        for connection in connections:
            connection.close()

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, name=f"tfk8s-forward-{self.port}", daemon=True)
        thread.start()
        return thread

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                self._serve(self._arrived())
            except (OSError, RuntimeError):  # closed; or out of descriptors or of threads, which passes
                self._closing.wait(PAUSE)

    def _arrived(self) -> list[tuple[socket.socket, int]]:
        """Wait for a connection; return all that have come, with the ports of their other ends."""
        self._listener.settimeout(None)
        arrived = [self._listener.accept()]
        try:
            self._listener.settimeout(0)
            with contextlib.suppress(BlockingIOError):
                while len(arrived) < _BACKLOG:
                    arrived.append(self._listener.accept())
            for client, _ in arrived:
                client.setblocking(True)  # on macOS and Windows, a connection is as its listener
        except OSError:  # `close` was called meanwhile
            for client, _ in arrived:
                client.close()
            raise
        return [(client, peer[1]) for client, peer in arrived]

    def _serve(self, arrived: Sequence[tuple[socket.socket, int]]) -> None:
        """Begin to serve connections of this user; refuse others, which cost no thread and few looks at the tables."""
        left = dict(arrived)
        try:
            users = own_clients((port for _, port in arrived), self.port)
            own = [client for client, port in arrived if port in users]
            if len(own) < len(arrived):
                self._say_refused(len(arrived) - len(own))
            for client in own:
                self._start(self._carry, client)
                del left[client]
        finally:
            for client in left:
                client.close()
        if left:
            self._closing.wait(PAUSE)

    def _say_refused(self, more: int) -> None:
        self._refused += more
        now = time.monotonic()
        if now < self._silent_until:
            return
        self._silent_until, count, self._refused = now + _REFUSED_INTERVAL, self._refused, 0
        if count == 1:
            self._say(f"refused a connection to port {self.port}: it came from another user's process")
        else:
            self._say(f"refused {count} connections to port {self.port}: they came from other users' processes")

    def _carry(self, client: socket.socket) -> None:
        """Serve one connection, from its beginning to its end."""
        with client, contextlib.ExitStack() as stack:
            is_real = not self._is_lost
            try:
                server = stack.enter_context(self._dial() if is_real else stand_in())
            except Exception as error:  # of any kind: a thread that dies would say nothing
                is_known = isinstance(error, Tfk8sError | OSError)
                text = f"the task does not answer: {error if is_known else repr(error)}"
                self._report(str(error) if isinstance(error, Tfk8sError) else text)
                return
            for stream in (client, server):
                with contextlib.suppress(OSError):  # not TCP
                    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            filled = server if self._get_fields is None else FillingStream(server, self._get_fields)
            connection = ProxiedConnection(client, filled)
            if not self._add(connection, is_real=is_real):
                return
            client_ended = threading.Event()
            if not is_real:
                client_ended.set()  # the end of a stand-in is not reported
            try:
                downstream = self._start(self._carry_downstream, connection, server, client_ended)
                connection.carry_upstream(client_ended.set)
                downstream.join()
            finally:
                with self._lock:
                    del self._connections[connection]

    def _carry_downstream(
        self, connection: ProxiedConnection, server: socket.socket, client_ended: threading.Event
    ) -> None:
        """Pass the server's bytes on; report trouble if the server ends before the client."""
        trouble = _CLOSED
        with contextlib.suppress(OSError):
            if server.recv(1, socket.MSG_PEEK) and not client_ended.is_set():
                trouble = _BROKEN
                self._report("")
        connection.carry_downstream(lambda: None if client_ended.is_set() else self._report(trouble))

    def _add(self, connection: ProxiedConnection, *, is_real: bool) -> bool:
        """Note a connection; return False if `close` or `resume` was called meanwhile."""
        with self._lock:
            if self._closing.is_set() or not (is_real or self._is_lost):
                return False
            self._connections[connection] = is_real
            return True

    def _report(self, trouble: str) -> None:
        """Report new trouble, and its end ("")."""
        with self._lock:
            before, self._trouble = self._trouble, trouble
        if trouble != before:
            self._say(trouble or "the task can be reached again")

    def _say(self, text: str) -> None:
        if self._notify is not None and not self._closing.is_set():
            self._notify(text)


def listen(port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket that listens on a loopback port; 0 is any free port.

    Raises:
        InvalidInput: the port is in use, or not allowed, or the machine has no address 127.0.0.1.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform == "win32":  # where SO_REUSEADDR would let two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shared))
        listener.bind((_LOOPBACK, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.EADDRNOTAVAIL:  # where loopback has IPv6 alone, or is down
            message = f"this machine has no address {_LOOPBACK} to listen on"
            raise InvalidInput(message, help=f"ip address add {_LOOPBACK}/8 dev lo; ip link set lo up") from error
        problem = f"can't be listened on: {getattr(error, 'strerror', None) or error}"
        reason = "is in use" if number == errno.EADDRINUSE else problem
        raise InvalidInput(f"port {port} {reason}", help="choose another port, or leave the port out") from error
    return listener
