"""A process that imports TensorFlow once and then forks a session script at a time.

The supervisor starts it inside the cluster's network and tells it, over a socket, what to run. It answers with
`{"pid"}` for each, in order, and later with `{"ended", "status"}`.
"""

from __future__ import annotations

import gc
import io
import json
import os
import random
import selectors
import signal
import socket
import sys
import tempfile
import time

from tfk8s.backends.local import ipc, network_namespace, processes
from tfk8s.sessions import runner

SUPERVISOR = 3  # the descriptor of the socket to the supervisor


def serve(supervisor: socket.socket) -> ipc.Message | None:
    """Fork a process for each request; return the request in the child, and None in the parent at the end."""
    selector = selectors.DefaultSelector()
    selector.register(supervisor, selectors.EVENT_READ)
    children: dict[int, int] = {}
    while True:
        for key, _ in selector.select():
            if key.fd in children:
                selector.unregister(key.fd)
                os.close(key.fd)
                pid = children.pop(key.fd)
                ipc.send(supervisor, {"ended": pid, "status": os.waitpid(pid, 0)[1]})
                continue
            received = ipc.receive(supervisor)
            if received is None:
                return None
            body, *descriptors = received[1]
            with open(body) as text:
                request: ipc.Message = json.load(text)
            parent = os.getpid()
            pid = processes.fork()
            if pid == 0:
                # Closed now: closed as garbage later, they would take whatever has their numbers by then.
                selector.close()
                supervisor.detach()
                become(request, descriptors, parent)
                return request
            for descriptor in descriptors:
                os.close(descriptor)
            watched = os.pidfd_open(pid)
            children[watched] = pid
            selector.register(watched, selectors.EVENT_READ)
            ipc.send(supervisor, {"pid": pid})


def become(request: ipc.Message, descriptors: list[int], parent: int) -> None:
    """Turn this fork into a process like one that was started with the request's streams, folder and variables."""
    network_namespace.die_with_parent(parent)
    os.setsid()
    processes.take_descriptors(descriptors)
    processes.reset_signals()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    # Unbuffered, so that output arrives as it is printed.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), errors=errors, write_through=True)
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    try:
        os.chdir(request["folder"])
    except OSError as error:
        processes.leave(f"error: can't run in {request['folder']}: {error.strerror}", 1)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.umask(request["umask"])
    time.tzset()
    tempfile.tempdir = None
    reseed()


def reseed() -> None:
    """Give this fork random numbers of its own; NumPy's were made before the fork and would be the same in each."""
    random.seed()
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed()


def main() -> None:
    """Import TensorFlow and serve; in a fork, run its script."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor = socket.socket(fileno=SUPERVISOR)
    import tensorflow.compat.v1  # noqa: F401 - this is what takes long

    gc.freeze()  # what is here now is the same in all forks, and garbage in none
    request = serve(supervisor)
    if request:
        runner.exit_process(runner.main(request["arguments"]))


if __name__ == "__main__":
    main()
