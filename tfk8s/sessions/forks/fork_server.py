"""The fork server: a process that imports TensorFlow once, and then forks a process for each script.

`ForkClient` starts the fork server with the names of the modules that forks run, and sends requests over a socket. The
fork server answers each request with `{"pid"}`, in order, and later with `{"ended", "status"}`. Standard library and
TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import gc
import importlib
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
from collections.abc import Sequence

from tfk8s.call_stack import roomy
from tfk8s.sessions.forks import processes
from tfk8s.sessions.forks.fork_client import FORK_SERVER
from tfk8s.task import ipc
from tfk8s.task.programs import imports, own_interpreter

CLIENT = 3  # the descriptor of the socket to the client

# `-m` would search the script's folder for the modules of the runner.
_RUN_MODULE = """
import sys
sys.path[0] = sys.prefix
del sys.argv[0]
import runpy
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def serve(client: socket.socket) -> ipc.Message | None:
    """Fork a process for each request. Return the request in the child, and None in the parent at the end."""
    selector = selectors.DefaultSelector()
    selector.register(client, selectors.EVENT_READ)
    children: dict[int, int] = {}
    while True:
        for key, _ in selector.select():
            if key.fd in children:
                selector.unregister(key.fd)
                os.close(key.fd)
                pid = children.pop(key.fd)
                ipc.send(client, {"ended": pid, "status": os.waitpid(pid, 0)[1]})
                continue
            received = ipc.receive(client)
            if received is None:
                return None
            body, *descriptors = received[1]
            with open(body) as text:
                request: ipc.Message = json.load(text)
            parent = os.getpid()
            pid = processes.fork()
            if pid == 0:
                # Garbage collection would close these numbers later, when they belong to other files.
                selector.close()
                client.detach()
                become(request, descriptors, parent)
                return request
            for descriptor in descriptors:
                os.close(descriptor)
            descriptor = os.pidfd_open(pid)
            children[descriptor] = pid
            selector.register(descriptor, selectors.EVENT_READ)
            ipc.send(client, {"pid": pid})


def become(request: ipc.Message, descriptors: list[int], parent: int) -> None:
    """Give this fork the request's streams, folder and variables, as a new process has them."""
    processes.die_with_parent(parent)
    os.setsid()
    processes.take_descriptors(descriptors)
    processes.reset_signals()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the process ends
    # Unbuffered, so that output arrives at once.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), errors=errors, write_through=True)
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    try:
        os.chdir(request["folder"])
    except OSError as error:
        processes.exit_child(f"error: can't run in {request['folder']}: {error.strerror}", 1)
    at_import = dict(os.environ)
    os.environ.clear()
    os.environ.update(request["environment"])
    own_interpreter.can_become(own_command(request), own_environment(request), at_import)
    os.umask(request["umask"])
    time.tzset()
    tempfile.tempdir = None
    reseed()


def own_command(request: ipc.Message) -> list[str]:
    """Return the command that serves a request in a new interpreter: as this process was started."""
    before = sys.orig_argv[1 : sys.orig_argv.index(FORK_SERVER)]
    start = ["-c", _RUN_MODULE] if before == ["-m"] else before
    return [sys.executable, *start, request["module"], *request["arguments"]]


def own_environment(request: ipc.Message) -> dict[str, str]:
    """Return the environment of a new interpreter. The archive of the script's folder has been unpacked before."""
    environment = {"PYTHONUNBUFFERED": "1", **request["environment"]}
    environment.pop("TFK8S_ARCHIVE", None)
    return environment


def reseed() -> None:
    """Give this fork its own random numbers. NumPy's generator was seeded before the fork."""
    random.seed()
    if numpy := sys.modules.get("numpy.random"):
        numpy.seed()


@roomy
def main(modules: Sequence[str]) -> None:
    """Import TensorFlow and the modules, and serve. In a fork, run the module that the request names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    client = socket.socket(fileno=CLIENT)
    with imports.without_garbage_collection():
        import tensorflow.compat.v1  # noqa: F401 - the slow part

        for name in modules:
            importlib.import_module(name)
    gc.freeze()  # all forks share the objects of now, and none of these is garbage
    request = serve(client)
    if request:
        module = importlib.import_module(request["module"])
        module.exit_process(module.main(request["arguments"]))


if __name__ == "__main__":
    main(sys.argv[1:])
