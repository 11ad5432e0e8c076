"""Process 1 of a warm pod: keeps a fork server with TensorFlow imported, and runs the scripts of one user as forks.

    submit ──► stream through the API server ──► process 1 ── fork ► relay (one for each connection)
                                                   │                   │ streams, signals, exit code
                                                   └─ fork server ── fork ──► script

Process 1 listens at the pod's loopback address alone, so that only the API server's port forwarding and the pod's own
processes can connect. It has one thread because it forks. Without a script for some time it ends, and the pod with it.
Its log's last line lists the running scripts. Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tfk8s.core.naming import GRACE
from tfk8s.sessions.forks import forked_scripts, processes
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.sessions.forks.fork_client import FORK_SERVER, ForkClient
from tfk8s.sessions.forks.forked_scripts import ForkedScripts, RunningScript
from tfk8s.sessions.pod import entrypoint
from tfk8s.sessions.warm import connection_process
from tfk8s.task import ipc
from tfk8s.task.config import derive_cluster, derive_tasks, lists
from tfk8s.task.stream import channel

SCRIPT_MODULE = "tfk8s.sessions.warm.script"
IDLE_VARIABLE = "TFK8S_IDLE"
IDLE_TIMEOUT = 600.0
CLUSTER_VARIABLES = ("TFK8S_JOBS", "TFK8S_PORT", "TFK8S_DATA_SERVICE")
REPORT_INTERVAL = 5.0  # between two looks at the progress of scripts
_READY = 3  # the descriptor to which the process for loopback ports writes a byte when it listens
_END_TIMEOUT = 4.0  # of a deleted pod, for its scripts, without `grace` in the job file
_MAX_COMMAND_LENGTH = 500
_BUSY = "scripts of another size of the cluster run in the pod"
_NO_FORWARDS = "the pod's loopback ports can't be forwarded to the tasks"


@dataclass(eq=False)
class _Relay:
    """A process that serves a connection.

    Attributes:
        control: the socket to the process.
        name: the name of the process' script; "" before the script is known.
        is_told: whether the process knows that somebody stops its script.
    """

    control: socket.socket
    name: str = ""
    is_told: bool = False


class WarmEntrypoint:
    """Accepts connections, and starts and counts scripts.

    Args:
        loop: the loop of this process.
        forks: the fork server.
        listener: the socket for connections of `submit`.
        environment: the variables of the pod.
    """

    def __init__(self, loop: Loop, forks: ForkClient, listener: socket.socket, environment: Mapping[str, str]) -> None:
        self._loop, self._forks, self._listener, self._environment = loop, forks, listener, environment
        self._grace = float(environment[GRACE]) if GRACE in environment else None
        self._scripts = ForkedScripts[RunningScript](loop, forks, self._grace)
        self._relays: set[_Relay] = set()
        self._idle = float(environment.get(IDLE_VARIABLE) or IDLE_TIMEOUT)
        self._used = time.monotonic()
        self._forwards, self._forwarded = 0, ""  # the process that forwards loopback ports, and its cluster
        self._reported = ""
        self._is_ending = False

    def start(self) -> None:
        """Start the fork server, and begin to listen."""
        self._forks.prepare()
        self._loop.on_readable(self._listener, self._accept)
        self._report()
        self._check_idle()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        control, theirs = socket.socketpair()
        pid = connection_process.fork(connection, theirs)
        connection.close()
        theirs.close()
        process = _Relay(control)
        self._relays.add(process)
        self._loop.on_readable(control, lambda: self._on_message(process))
        self._loop.on_end(pid, lambda _: self._on_relay_end())

    def _on_message(self, process: _Relay) -> None:
        """Take a message of a relay: the name of its script, and later the script itself."""
        try:
            received = ipc.receive(process.control)
        except OSError:
            received = None
        if received is None:
            self._loop.forget(process.control)
            process.control.close()
            self._relays.discard(process)
            self._used = time.monotonic()
            return
        message, descriptors = received
        try:
            with contextlib.suppress(OSError):
                if "hello" in message:
                    ipc.send(process.control, self._greet(process, message, descriptors))
                else:
                    ipc.send(process.control, self._run(message, descriptors))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _greet(self, process: _Relay, message: ipc.Message, descriptors: list[int]) -> ipc.Message:
        """Give a connection to the relay of its script; let the asking relay serve a connection of a new script."""
        owner = next((other for other in self._relays if other.name == message["hello"]), None)
        if message["stop"]:
            return self._stop(message["hello"], owner)
        if owner is None and message["is_new"] and not self._is_ending:
            process.name = message["hello"]
            return {"answer": "new"}
        if owner is None:
            return {"answer": "gone"}
        try:
            ipc.send(owner.control, {"attach": message["received"]}, descriptors)
        except OSError:  # the owner has just ended
            return {"answer": "gone"}
        return {"answer": "handed on"}

    def _stop(self, name: str, owner: _Relay | None) -> ipc.Message:
        """Interrupt a script as a deleted pod does, once; answer whether the script has ended."""
        if owner is not None and not owner.is_told:
            owner.is_told = True
            with contextlib.suppress(OSError):  # the owner has just ended
                ipc.send(owner.control, {"ending": "script"})
            self._scripts.stop_one(name, _END_TIMEOUT)
        return {"answer": "ends" if any(one["name"] == name for one in self._scripts.describe()) else "gone"}

    def _run(self, message: ipc.Message, descriptors: list[int]) -> ipc.Message:
        connection, *streams = descriptors
        if trouble := self._forward(message["environment"]):
            return {"refused": trouble}
        script = RunningScript(
            connection=socket.socket(fileno=os.dup(connection)), name=message["name"],
            progress=Path(message["progress"]), command=forked_scripts.shown(message["arguments"], _MAX_COMMAND_LENGTH),
        )  # fmt: skip
        self._scripts.add(script)
        self._scripts.fork(script, SCRIPT_MODULE, message, streams)
        self._report()
        return {"begun": True}

    def _forward(self, environment: Mapping[str, str]) -> str:
        """Forward the loopback ports to the tasks of this cluster; return why that is not possible, or ""."""
        cluster = json.dumps([environment.get(name) for name in CLUSTER_VARIABLES])
        if cluster == self._forwarded:
            return ""
        if self._scripts.describe():
            return _BUSY
        if self._forwards:
            os.kill(self._forwards, signal.SIGKILL)
        self._forwarded = ""
        ready, ready_end = os.pipe()
        self._forwards = processes.run_in_fork(lambda: forward(environment), [0, 1, 2, ready_end])
        self._loop.on_end(self._forwards, functools.partial(self._on_forwards_end, self._forwards))
        os.close(ready_end)
        is_ready = os.read(ready, 1)
        os.close(ready)
        if not is_ready:
            return _NO_FORWARDS
        self._forwarded = cluster
        return ""

    def _on_forwards_end(self, pid: int, _: int) -> None:
        if pid == self._forwards:  # else another process forwards now
            self._forwards, self._forwarded = 0, ""

    def _report(self) -> None:
        """Write the running scripts to the log, if they have changed."""
        found = [
            {"name": one["name"], "command": one["command"], "since": one["since"], "progress": _read(one["progress"])}
            for one in self._scripts.describe()
        ]
        if (line := json.dumps({"scripts": found})) != self._reported:
            self._reported = line
            say(line)

    def _check_idle(self) -> None:
        self._loop.after(min(REPORT_INTERVAL, self._idle / 4), self._check_idle)
        self._reap()
        self._report()
        if self._relays:
            self._used = time.monotonic()
        elif time.monotonic() - self._used >= self._idle:
            self._loop.stop()

    def _on_relay_end(self) -> None:
        self._report()
        self._reap()

    def _reap(self) -> None:
        """Wait for the orphans that scripts leave to process 1. The loop waits for this process' own children."""
        with contextlib.suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if self._loop.waits_for(found.si_pid):
                    return  # the loop is about to
                os.waitpid(found.si_pid, 0)

    def end(self) -> None:
        """Interrupt the scripts of a pod that is deleted, and end this process when they have ended."""
        if self._is_ending:
            return
        self._is_ending = True
        for process in self._relays:
            with contextlib.suppress(OSError):
                ipc.send(process.control, {"ending": "pod"})
        self._scripts.interrupt()
        self._loop.after(_END_TIMEOUT if self._grace is None else self._grace, self._loop.stop)
        self._stop_when_done()

    def _stop_when_done(self) -> None:
        if not self._relays:
            self._loop.stop()
        self._loop.after(0.05, self._stop_when_done)


def forward(environment: Mapping[str, str]) -> NoReturn:
    """Forward the loopback ports of a single machine to the tasks, in a fork, until process 1 ends."""
    entrypoint.forward_loopback(lists(derive_tasks(environment)), derive_cluster(environment))
    os.write(_READY, b"1")
    while True:
        signal.pause()


def _read(progress: str) -> str:
    """Return the line with a script's progress; "" without progress."""
    with contextlib.suppress(OSError):
        return Path(progress).read_text(encoding="utf-8", errors="replace")
    return ""


def say(text: str) -> None:
    """Write a line to the pod's log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def listen(port: int) -> socket.socket:
    """Return the socket for connections, at the loopback address."""
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    listener.set_inheritable(False)
    return listener


def main(port: int = channel.PORT) -> int:
    """Keep a fork server until no script has run for a while, or the pod is deleted."""
    loop = Loop()
    loop.on_termination(lambda: pod.end())
    command = [sys.executable, "-m", FORK_SERVER, SCRIPT_MODULE]
    forks = ForkClient(loop, command, dict(os.environ))
    pod = WarmEntrypoint(loop, forks, listen(port), os.environ)
    pod.start()
    loop.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
