"""The commands' side of a local cluster: asks its supervisor, and clears up after one that is gone."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from tfk8s import polling
from tfk8s.backends.local import interpreter, ipc, state
from tfk8s.backends.local.record import CLUSTER_ID_VARIABLE, Record
from tfk8s.backends.local.script_processes import ESCALATION
from tfk8s.core.environment import without_proxy
from tfk8s.errors import ClusterError

_ANSWER_SECONDS = 10.0
_START_SECONDS = 10.0
_LOOK_SECONDS = 1.0  # between two looks whether the supervisor is stopped

_EXPOSE = (
    "tasks run in a network namespace, so that nobody else reaches them; where that is not allowed, "
    "--allow-exposed-ports starts them on this machine's own interfaces, where everybody who can reach it can run any "
    "program as you"
)


class SupervisorGone(ClusterError):
    """A cluster's supervisor has ended, and all tasks with it."""


def ask(folder: state.Folder, request: ipc.Message) -> tuple[ipc.Message, list[int]]:
    """Return the supervisor's answer, and the descriptors that came with it.

    Raises:
        SupervisorGone: there is no supervisor.
        ClusterError: it does not answer.
    """
    try:
        with ipc.connect(folder.control, _ANSWER_SECONDS) as connection:
            ipc.send(connection, request)
            _await(folder, connection, _ANSWER_SECONDS)
            answer = ipc.receive(connection)
    except OSError as error:
        raise _gone(folder) from error
    if answer is None:
        raise _gone(folder)
    return answer


def _await(folder: state.Folder, connection: socket.socket, seconds: float) -> None:
    """Wait until the supervisor says something.

    Raises:
        ClusterError: it is stopped, or says nothing within so many seconds.
    """
    name, pid = folder.path.name, folder.supervisor()
    deadline, was_stopped = time.monotonic() + seconds, False
    while not polling.readable(connection.fileno(), _LOOK_SECONDS):
        is_stopped = pid is not None and state.is_stopped(pid)
        if (is_stopped and was_stopped) or time.monotonic() > deadline:
            raise ClusterError(
                f'the supervisor of cluster "{name}" {"is stopped by a signal" if is_stopped else "does not answer"}',
                help=f"kill -CONT {pid} continues it; tfk8s down --local {name} removes the cluster",
            )
        was_stopped = is_stopped


def _gone(folder: state.Folder) -> SupervisorGone:
    name = folder.path.name
    return SupervisorGone(
        f'cluster "{name}" has ended: its supervisor is gone, and all tasks with it',
        help=f"tfk8s up --local FILE starts it again, tfk8s down --local {name} removes what is left; "
        f"{folder.supervisor_log} may say why",
    )


def _last_words(folder: state.Folder) -> str:
    """Return the last line of the supervisor's log."""
    try:
        return folder.supervisor_log.read_text(errors="replace").strip().rpartition("\n")[2]
    except OSError:
        return ""


def start(folder: state.Folder, record: Record) -> None:
    """Start the supervisor of a cluster whose folder is there; returns when it listens.

    Raises:
        ClusterError: it can't start.
    """
    heard, ready = os.pipe()
    environment = {**os.environ, **without_proxy(os.environ), CLUSTER_ID_VARIABLE: record.id}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    with folder.supervisor_log.open("ab") as log:
        command = interpreter.command(sys.executable, "tfk8s.backends.local.supervisor", str(folder.path), str(ready))
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=[ready]
        )
    os.close(ready)
    with open(heard, "rb") as said:
        in_time = polling.readable(said.fileno(), _START_SECONDS)
        answer = os.read(said.fileno(), 4096).decode() if in_time else f"no sign of life in {_START_SECONDS:g} s"
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)  # the supervisor itself is a child of this process
    if answer != "ok":
        raise ClusterError(
            f'cluster "{record.name}" can\'t start: {answer or _last_words(folder)}',
            help=_EXPOSE if answer.startswith(interpreter.NO_NAMESPACE) else None,
        )


def run(folder: state.Folder, request: ipc.Message) -> ipc.Message:
    """Have a script run with this process' standard streams; return how it ended.

    SIGINT and SIGTERM go to the script; the second one ends it by force, the third at once.

    Raises:
        SupervisorGone: there is no supervisor, or it was killed meanwhile.
        ClusterError: it is stopped.
    """
    try:
        connection = ipc.connect(folder.control, _ANSWER_SECONDS)
    except OSError as error:
        raise _gone(folder) from error
    with connection, _signals_passed_on(connection):
        connection.settimeout(None)
        try:
            ipc.send(connection, request, [0, 1, 2])
            _await(folder, connection, math.inf)
            answer = ipc.receive(connection)
        except OSError:
            answer = None
    if answer is None:
        raise _gone(folder)
    return answer[0]


@contextlib.contextmanager
def _signals_passed_on(connection: socket.socket) -> Iterator[None]:
    """Send SIGINT and SIGTERM on to the script; from the third one, end without waiting for it.

    Only the main thread gets signals: elsewhere, there is nothing to pass on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    escalation = iter(ESCALATION)

    def pass_on(number: int, _: object) -> None:
        wanted = next(escalation, None)
        if wanted is None:  # the supervisor does nothing: it ends the script when this process has ended
            raise KeyboardInterrupt
        with contextlib.suppress(OSError):  # it has ended
            ipc.send(connection, {"signal": max(wanted, number, key=ESCALATION.index)})

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end(folder: state.Folder) -> None:
    """End the supervisor and all processes of its cluster, and wait until they are gone.

    Raises:
        ClusterError: a process can't be ended.
    """
    mark = folder.id()  # where it can't be read, the supervisor takes all with it but what scripts left behind
    pid = folder.supervisor()
    if pid is not None:
        try:
            ask(folder, {"do": "stop"})
        except ClusterError:
            _kill(pid)
            _wait_for_end(pid, time.monotonic() + _ANSWER_SECONDS)
    deadline = time.monotonic() + _ANSWER_SECONDS
    for pid in set(state.marked_processes(mark) if mark else []) - {os.getpid()}:
        _kill(pid)
        _wait_for_end(pid, deadline)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _wait_for_end(pid: int, deadline: float) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not polling.readable(descriptor, max(0.0, deadline - time.monotonic())):
            raise ClusterError(f"process {pid} does not end")
    finally:
        os.close(descriptor)


def observed(folder: state.Folder) -> dict[str, Any]:
    """Return what the supervisor knows of its tasks."""
    return ask(folder, {"do": "observe"})[0]
