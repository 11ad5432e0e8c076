"""The supervisor of a cluster whose tasks never start, on a thread of the test."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from job_files import job_file

from tfk8s.backends.local import state
from tfk8s.backends.local.record import Record, make_record
from tfk8s.backends.local.supervision import requests
from tfk8s.backends.local.supervisor import Supervisor
from tfk8s.core.spec import Job
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.task import ipc

WAY_OUT: Any = SimpleNamespace(variables=dict, way=SimpleNamespace(text=""))


def make(workers: int = 2) -> Record:
    return make_record(job_file("demo", Job(name="worker", tasks=workers)), "x", exposed=True)


class Supervised:
    """A supervisor whose tasks never start, on a thread."""

    def __init__(self, folder: state.Folder) -> None:
        self.folder = folder
        folder.create(make())
        self.supervisor = Supervisor(folder, make(), WAY_OUT)
        self.loop = self.supervisor._loop
        self.thread = threading.Thread(target=self.loop.run)
        self.supervisor._servers = [self.supervisor._new_server(task) for task in make().tasks]

    def ask(self, message: Any, descriptors: tuple[int, ...] = ()) -> Any:
        """Return the answer to a message; the connection for a message that has none yet."""
        with self.connect() as connection:
            ipc.send(connection, message, descriptors)
            received = ipc.receive(connection)
        return received[0] if received else None

    def connect(self) -> socket.socket:
        """Return a connection to the supervisor."""
        return ipc.connect(self.folder.control, 10)


@contextlib.contextmanager
def supervised(root: Path) -> Iterator[Supervised]:
    """Yield a supervisor of cluster "demo", whose loop runs; `root` becomes the folder of state."""
    with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(root)}), mock.patch.object(Loop, "on_termination"):
        made = Supervised(state.folder("demo"))
        reader, writer = os.pipe()
        made.loop.on_readable(reader, made.loop.stop)
        made.thread.start()
        yield made
        os.close(writer)
        made.thread.join()
        os.close(reader)
        made.supervisor._listener.close()


def good() -> dict[str, ipc.Message]:
    """Return a message of each kind."""
    run = requests.RunScript(
        fresh=False, python="python", folder="/", umask=0o22, arguments=["a.py"], progress="/none", environment={}
    )  # fmt: skip
    every = (
        requests.Observe(), requests.Dial(task="worker/0"), requests.Restart(task=None),
        requests.Scale(record=make(3)), run, requests.Stop(reason="was removed"), requests.Hold(),
        requests.Keep(),
    )  # fmt: skip
    return {message["do"]: message for message in map(requests.to_message, every)}
