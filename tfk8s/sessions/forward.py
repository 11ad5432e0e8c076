"""A loopback address that leads to a task's server.

Each connection is carried to a stream of its own from `dial`, so that a client's later connections reach a task that
was started again meanwhile: TensorFlow connects again by itself. What breaks, and that it is mended, is told.

A TensorFlow server runs any graph for whoever reaches it, and any user of this machine can reach its loopback
addresses: connections from processes of other users are refused, as far as Linux tells whose they are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tfk8s.errors import InvalidInput, Tfk8sError
from tfk8s.sessions.http2_proxy import ProxiedConnection, stand_in

_LOOPBACK = "127.0.0.1"

Dial = Callable[[], socket.socket]
Tell = Callable[[str], None]

_BROKEN = "the connection to the task broke off: what was under way fails; what comes next connects again"


class Forward:
    """Listens on 127.0.0.1 from its creation until `close`, on threads of its own.

    Args:
        dial: opens a stream to the server, for each connection anew.
        port: where to listen; 0 is any free port.
        tell: hears, on another thread, why connections can't be carried on, once each time, and that they are again.

    Attributes:
        port: where it listens.

    Raises:
        InvalidInput: the port is in use, or not allowed.
    """

    def __init__(self, dial: Dial, port: int = 0, tell: Tell | None = None) -> None:
        self._dial, self._tell = dial, tell
        self._listener = _listen(port)
        self._lock = threading.Lock()
        self._open: dict[ProxiedConnection, bool] = {}  # whether each reaches the server, rather than its stand-in
        self._is_lost = False
        self._closing = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        self._trouble = ""  # told last
        self._start(self._accept)

    @property
    def target(self) -> str:
        """Where sessions connect to."""
        return f"grpc://{_LOOPBACK}:{self.port}"

    def close(self) -> None:
        """Stop listening, and end what is connected."""
        with self._lock:
            self._closing.set()
            carried = list(self._open)
        for one in carried:
            one.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread that waits for it; closing alone would not
        self._listener.close()

    def end_calls(self, why: str, patience: float = 0.0) -> int:
        """End the calls that have waited so many seconds for their answer, as `Carried.end_calls`."""
        with self._lock:
            carried = list(self._open)
        return sum(one.end_calls(why, patience) for one in carried)

    def lose(self) -> None:
        """Dial no more: the server is lost. Who connects can make calls, which wait until they are ended."""
        self._is_lost = True

    def find(self) -> None:
        """Dial again: the server is back. Who has connected meanwhile connects anew."""
        with self._lock:
            self._is_lost = False
            stood_in = [one for one, reaches in self._open.items() if not reaches]
        for one in stood_in:
            one.close()

    def __enter__(self) -> Forward:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, name=f"tfk8s-forward-{self.port}", daemon=True)
        thread.start()
        return thread

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, peer = self._listener.accept()
            except OSError:  # closed; or out of descriptors, which passes
                self._closing.wait(0.1)
                continue
            self._start(self._carry, client, peer[1])

    def _carry(self, client: socket.socket, peer_port: int) -> None:
        """Carry one connection, from its beginning to its end."""
        with client, contextlib.ExitStack() as stack:
            try:
                require_own(self.port, peer_port)
            except InvalidInput as error:
                self._say(str(error))
                return
            reaches = not self._is_lost
            try:
                server = stack.enter_context(self._dial() if reaches else stand_in())
            except (Tfk8sError, OSError) as error:
                self._now(str(error) if isinstance(error, Tfk8sError) else f"the task does not answer: {error}")
                return
            for one in (client, server):
                with contextlib.suppress(OSError):  # not TCP
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            carried = ProxiedConnection(client, server)
            if not self._keep(carried, reaches=reaches):
                return
            client_ended = threading.Event()
            if not reaches:
                client_ended.set()  # nothing of it is to be told
            back = self._start(self._carry_back, carried, server, client_ended)
            carried.carry_there(client_ended.set)
            back.join()
            with self._lock:
                del self._open[carried]

    def _carry_back(self, carried: ProxiedConnection, server: socket.socket, client_ended: threading.Event) -> None:
        """Carry what the server says; where it is the first to end, something broke."""
        trouble = "the task does not answer: the connection to it was closed"
        with contextlib.suppress(OSError):
            if server.recv(1, socket.MSG_PEEK) and not client_ended.is_set():
                trouble = _BROKEN
                self._now("")
        carried.carry_back(lambda: None if client_ended.is_set() else self._now(trouble))

    def _keep(self, carried: ProxiedConnection, *, reaches: bool) -> bool:
        """Note what is connected; return False where it may not be, since `close` or `find` was called meanwhile."""
        with self._lock:
            if self._closing.is_set() or not (reaches or self._is_lost):
                return False
            self._open[carried] = reaches
            return True

    def _now(self, trouble: str) -> None:
        """Tell of trouble that is new, and of its end ("")."""
        with self._lock:
            known, self._trouble = self._trouble, trouble
        if trouble != known:
            self._say(trouble or "the task is reached again")

    def _say(self, text: str) -> None:
        if self._tell is not None and not self._closing.is_set():
            self._tell(text)


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_LOOPBACK, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "is in use" if in_use else f"can't be listened on: {getattr(error, 'strerror', None) or error}"
        raise InvalidInput(f"port {port} {why}", help="give another one, or none for any that is free") from error
    return listener


# ---- whose connection it is ----------------------------------------------------------------------------------------


def require_own(port: int, peer_port: int) -> None:
    """Check who is connected from a loopback port to ours.

    Raises:
        InvalidInput: it is a process of another user, or of nobody any more.
    """
    if sys.platform != "linux":
        return
    tables = "".join(_table(name) for name in ("tcp", "tcp6"))
    if peer_user(tables, port, peer_port) != os.geteuid():
        raise InvalidInput(f"refused a connection to port {port}: it came from another user's process")


def peer_user(tables: str, port: int, peer_port: int) -> int | None:
    """Return whose socket is connected from a loopback port to ours; None where there is no such any more.

    Args:
        tables: the text of /proc/net/tcp and tcp6 (proc_net_tcp(5)); a client may use a socket for IPv6.
        port: ours, on 127.0.0.1.
        peer_port: the client's, on 127.0.0.1.
    """
    wanted = _written(peer_port), _written(port)
    for line in tables.splitlines():
        fields = line.split()
        if len(fields) < 10:
            continue
        local, remote, user, inode = fields[1], fields[2], fields[7], fields[9]
        # A socket that its process has closed has no inode, and seems to be root's.
        if inode != "0" and (local[-13:], remote[-13:]) == wanted and _is_loopback(local) and _is_loopback(remote):
            return int(user)
    return None


def _table(name: str) -> str:
    try:
        return Path("/proc/net", name).read_text()
    except FileNotFoundError:  # a kernel without IPv6
        return ""


def _address() -> str:
    """127.0.0.1 as /proc writes it: a number of the machine's own byte order, in hex."""
    return f"{int.from_bytes(socket.inet_aton(_LOOPBACK), sys.byteorder):08X}"


def _written(port: int) -> str:
    return f"{_address()}:{port:04X}"


def _is_loopback(written: str) -> bool:
    """Whether an address of the tables is 127.0.0.1, or ::ffff:127.0.0.1."""
    mapped = f"{int.from_bytes(bytes([0, 0, 255, 255]), sys.byteorder):08X}"
    return written.partition(":")[0] in (_address(), "0" * 16 + mapped + _address())
