"""The files that a script's pod sends when the script has ended: process 1 serves them, and an `exec` stream gets them.

A pod's container ends with the script, so process 1 waits for the client. The client runs this module in the container.
The module copies the archive from process 1 to its standard output, and the client's receipt back. So a broken stream
is noticed by process 1, which then waits for another one. Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Sequence

from tfk8s.task.files import packed

VARIABLE = "TFK8S_DOWNLOADS"
COMMAND = ("python3", "-m", "tfk8s.sessions.pod.file_server")
CLIENT_TIMEOUT = 300.0  # `submit` survives an outage of the API server for so long
STALL_TIMEOUT = 60.0
ADDRESS = "\0tfk8s-downloads"  # an abstract socket: it needs no file system that is writable
_BLOCK = 1 << 16


def serve(
    paths: Sequence[str], announce: Callable[[], object], timeout: float = CLIENT_TIMEOUT, address: str = ADDRESS
) -> bool:
    """Send an archive to a client; return whether the client has received it.

    Args:
        paths: the files and folders.
        announce: called when clients can connect.
        timeout: the seconds to wait for a client, and for another one after each that fails.
        address: of the socket.
    """
    received = threading.Event()
    threads: list[threading.Thread] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        listener.settimeout(timeout)

        def send(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):  # the client is gone, or does not read
                if _send(paths, client):
                    received.set()
                    with socket.socket(socket.AF_UNIX) as wakeup:
                        wakeup.connect(address)

        announce()
        while True:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                if not any(thread.is_alive() for thread in threads):
                    return False
                continue
            if received.is_set():
                client.close()
                return True
            # The process of a client whose stream broke may live on, and must not keep the next client waiting.
            threads.append(threading.Thread(target=send, args=(client,), daemon=True))
            threads[-1].start()


def _send(paths: Sequence[str], client: socket.socket) -> bool:
    client.settimeout(STALL_TIMEOUT)
    with client.makefile("wb") as sink:
        packed.pack(paths, sink)
    client.shutdown(socket.SHUT_WR)
    return bool(client.recv(1))


def main() -> None:
    """Copy the archive to standard output, and the receipt from standard input."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(ADDRESS)
        while block := server.recv(_BLOCK):
            sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        server.sendall(sys.stdin.buffer.read(1))


if __name__ == "__main__":
    main()
