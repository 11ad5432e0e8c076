"""The one process behind a local cluster: it starts the tasks, runs the scripts, and everything dies with it.

It outlives the command that made it. What it is asked arrives on the socket `control.sock`, a request a connection:

    observe                 → what runs
    dial {task}             → a descriptor: a stream to the task's server, from inside the cluster's network
    restart {task | null}   → {}
    run {…}, descriptors    → {exit} or {error}, at the end
    stop                    → {} when all has ended
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from tfk8s.backends.local import interpreter, ipc, network_namespace
from tfk8s.backends.local.event_loop import Loop
from tfk8s.backends.local.record import Record, TaskRecord
from tfk8s.backends.local.script_processes import ScriptRunner
from tfk8s.backends.local.state import Folder
from tfk8s.backends.local.task_processes import TaskProcess, TaskSettings
from tfk8s.core.spec import EVALUATOR
from tfk8s.core.status import Phase
from tfk8s.task import server
from tfk8s.task.config import TaskConfig

_PATIENCE = 3.0  # seconds that a script waits for tasks that are being started again
_LOOK_SECONDS = 1.0  # between two looks for stopped tasks, while scripts run
_SLOW = 5.0  # seconds that a client may take for one message


class Supervisor:
    """What runs in a cluster, and the answers to what is asked of it."""

    def __init__(self, folder: Folder, record: Record) -> None:
        self._record = record
        self._loop = Loop()
        self._listener = ipc.listen(folder.control)
        self._scripts = ScriptRunner(self._loop, record.python, dict(os.environ), folder.scripts_log)
        self._tasks: list[TaskProcess] = []
        self._folder = folder
        self._held: list[tuple[socket.socket, ipc.Message, list[int]]] = []  # scripts that wait for tasks
        self._lost: set[str] = set()
        self._were_stopped: set[str] = set()  # tasks, at the last look
        self._looks = False
        self._stopping: list[socket.socket] = []
        self._loop.on_readable(self._listener, self._accept)
        end, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._loop.on_readable(end, lambda: self._signalled(end))

    def run(self) -> None:
        """Start the tasks and serve until told to stop."""
        self._scripts.prepare()
        library = _library(Path(self._record.tensorflow))
        self._tasks = [
            TaskProcess(self._loop, self._settings(task), library, self._changed) for task in self._record.tasks
        ]
        for task in self._tasks:
            task.start()
        self._loop.run()

    def _settings(self, record: TaskRecord) -> TaskSettings:
        cluster = {job: dict(enumerate(addresses)) for job, addresses in self._record.cluster.items()}
        if record.job == EVALUATOR:
            own = {task.index: task.address for task in self._record.tasks if task.job == EVALUATOR}
            cluster = {**cluster, EVALUATOR: own}
        return TaskSettings(
            member=TaskConfig(cluster, record.job, record.index), environment=record.environment,
            preload=record.preload, log=self._folder.log(record.task), python=self._record.python,
        )  # fmt: skip

    # ---- requests ----

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(_SLOW)
        self._loop.on_readable(connection, lambda: self._asked(connection))

    def _asked(self, connection: socket.socket) -> None:
        self._loop.forget(connection)
        try:
            received = ipc.receive(connection)
            if received is None or not self._answer(connection, *received):
                connection.close()
        except OSError:  # the client is gone
            connection.close()

    def _answer(self, connection: socket.socket, request: ipc.Message, descriptors: list[int]) -> bool:
        """Do what is asked; return whether the connection goes on."""
        match request["do"]:
            case "observe":
                tasks = [task.observed() for task in self._tasks]
                ipc.send(connection, {"tasks": tasks, "scripts": self._scripts.observed()})
            case "dial":
                self._dial(connection, request["task"])
            case "restart":
                for task in self._tasks:
                    if request["task"] in (None, task.name):
                        task.restart()
                ipc.send(connection, {})
            case "run":
                self._hold(connection, request, descriptors)
                return True
            case "stop":
                self._stopping.append(connection)
                self._stop()
                return True
        return False

    def _dial(self, connection: socket.socket, name: str) -> None:
        port = next(task.settings.member.port for task in self._tasks if task.name == name)
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as stream:
                stream.setblocking(True)  # the receiver shares the descriptor's flags
                ipc.send(connection, {}, [stream.fileno()])
        except OSError as error:
            ipc.send(connection, {"error": error.strerror or str(error)})

    def _hold(self, connection: socket.socket, request: ipc.Message, descriptors: list[int]) -> None:
        """Run a script as soon as every task is ready; not at all if one isn't for long."""
        held = (connection, request, descriptors)
        self._held.append(held)
        self._release()
        if held in self._held:
            self._loop.after(_PATIENCE, lambda: self._refuse(held))

    def _release(self) -> None:
        for held in [held for held in self._held if not self._not_ready(held[1])]:
            self._held.remove(held)
            self._scripts.run(*held)
            self._look_for_stopped()

    def _refuse(self, held: tuple[socket.socket, ipc.Message, list[int]]) -> None:
        if held not in self._held:
            return
        self._held.remove(held)
        connection, request, descriptors = held
        for descriptor in descriptors:
            os.close(descriptor)
        why = "; ".join(
            f"{task.name} is {task.phase.lower()}{': ' + task.reason if task.reason else ''}"
            for task in self._not_ready(request)
        )
        with contextlib.suppress(OSError):  # the client has given up
            ipc.send(connection, {"error": why})
        connection.close()

    # ---- news ----

    def _not_ready(self, request: ipc.Message) -> list[TaskProcess]:
        """Return the tasks that a script's sessions need and that do not answer; the evaluator is in nobody's."""
        without = request["environment"].get("TFK8S_WITHOUT", "").split(",")
        missing = [task for task in self._tasks if task.phase is not Phase.READY and task.name not in without]
        return [task for task in missing if task.settings.member.job != EVALUATOR]

    def _changed(self, task: TaskProcess) -> None:
        self._folder.note(task.name, task.phase, task.reason)
        if task.phase is Phase.READY:
            self._lost.discard(task.name)
            self._release()
        elif task.phase is Phase.FAILED and task.name not in self._lost and task.settings.member.job != EVALUATOR:
            self._lost.add(task.name)
            self._scripts.tell_lost(task.name, task.reason)

    def _look_for_stopped(self) -> None:
        """Begin to look, where nobody does: for a task that a signal has stopped, sessions wait for ever.

        What was known before is forgotten: whatever is stopped now is news to a script that has just begun.
        """
        self._lost -= self._were_stopped
        self._were_stopped = set()
        if not self._looks:
            self._looks = True
            self._loop.after(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        stopped = {task.name: reason for task in self._tasks if (reason := task.stopped())}
        for name, reason in stopped.items():
            if name in self._were_stopped and name not in self._lost:  # twice: not for a moment only
                self._lost.add(name)
                self._scripts.tell_lost(name, reason)
        self._lost -= self._were_stopped - stopped.keys()
        self._were_stopped = set(stopped)
        self._looks = bool(self._scripts.observed())
        if self._looks:
            self._loop.after(_LOOK_SECONDS, self._look)

    # ---- the end ----

    def _signalled(self, end: int) -> None:
        os.read(end, 64)
        self._stop()

    def _stop(self) -> None:
        """End everything; processes that scripts left behind are found by their mark."""
        self._scripts.stop()
        for task in self._tasks:
            task.stop()
        self._loop.after(0, self._stopped)

    def _stopped(self) -> None:
        if any(task.pid for task in self._tasks):
            self._loop.after(0.01, self._stopped)
            return
        for connection in self._stopping:
            with contextlib.suppress(OSError):
                ipc.send(connection, {})
        self._loop.stop()


def _library(folder: Path) -> server.Library | None:
    """Return TensorFlow's library, or None where the servers must import TensorFlow."""
    try:
        return server.Library(str(folder))
    except (OSError, AttributeError) as error:
        print(f"no C library of TensorFlow's ({error}): each task imports TensorFlow", file=sys.stderr, flush=True)
        return None


def main(path: str, ready: int) -> None:
    """Become a process of its own, tell `ready` that it listens (or why not), and supervise the cluster in `path`."""
    if os.fork():
        os._exit(0)
    os.setsid()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # it holds two descriptors a task, three a script
    folder = Folder(Path(path))
    record = folder.read()
    assert record is not None
    try:
        if not record.exposed:
            network_namespace.enter()
    except OSError as error:
        os.write(ready, f"{interpreter.NO_NAMESPACE}: {error}".encode())
        os._exit(1)
    try:
        supervisor = Supervisor(folder, record)
        folder.write_supervisor(os.getpid())
    except OSError as error:
        os.write(ready, str(error).encode())
        os._exit(1)
    os.write(ready, b"ok")
    os.close(ready)
    supervisor.run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
