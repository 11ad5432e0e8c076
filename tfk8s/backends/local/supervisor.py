"""The supervisor, the one process behind a local cluster: it starts the tasks and runs the scripts.

The supervisor outlives the command that started it. All tasks and scripts end with the supervisor. Each connection to
the socket `control.sock` has one request:

    observe                 → the tasks and the scripts
    dial {task}             → a descriptor: a stream to the task's server, from inside the cluster's network
    restart {task | null}   → {}
    scale {record}          → {}: the record of the cluster with other numbers of tasks
    run {…}, descriptors    → {exit} or {error}, when the script ends; before that {cluster}, why the cluster ends
    stop {reason}           → {} when all processes have ended; a second one kills those that still save
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path

from tfk8s.backends import interpreter
from tfk8s.backends.local import task_processes
from tfk8s.backends.local.lifetime import LocalLifetime, OutsideConnections
from tfk8s.backends.local.loopback import ports
from tfk8s.backends.local.loopback.start import listening
from tfk8s.backends.local.loopback.watch import PortWatch
from tfk8s.backends.local.port_handover import PortHandover
from tfk8s.backends.local.programs.process import PROGRAM_RUNNER, ProgramProcess
from tfk8s.backends.local.programs.run import ProgramRun
from tfk8s.backends.local.record import CLUSTER_ID_VARIABLE, Record, TaskRecord, relocate
from tfk8s.backends.local.script_processes import RUNNER, ScriptRunner
from tfk8s.backends.local.state import Folder
from tfk8s.backends.local.task_processes import ServerProcess, TaskProcess, TaskSettings
from tfk8s.backends.local.way_out.keeper import WayOut
from tfk8s.core.roles import DATA
from tfk8s.core.status import Phase
from tfk8s.sessions.forks import ipc, processes
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.sessions.forks.fork_client import FORK_SERVER, ForkClient
from tfk8s.sessions.task_events import lost, refused
from tfk8s.sessions.timing import TIMING
from tfk8s.task import activity, server
from tfk8s.task.config import TaskConfig

_MESSAGE_TIMEOUT = 5.0  # for one message of a client
_FOLDER_INTERVAL = 2.0  # between two looks at the cluster's folder


class Supervisor:
    """The tasks and scripts of a cluster, and the answers to requests."""

    def __init__(self, folder: Folder, record: Record, way_out: WayOut) -> None:
        self._record, self._way_out = record, way_out
        self._loop = Loop()
        self._listener = ipc.listen(folder.control)
        environment = record.isolation.confined({**os.environ, **record.variables})
        command = interpreter.command(record.python, FORK_SERVER, RUNNER, PROGRAM_RUNNER)
        self._forks = ForkClient(self._loop, command, environment, folder.scripts_log)
        limits, grace = record.job_file.limits, record.job_file.grace
        self._scripts = ScriptRunner(self._loop, self._forks, self._not_ready, self._start_polling, grace)
        self._servers: list[ServerProcess] = []
        self._ports = PortHandover(self._loop)
        self._library: server.Library | None = None
        self._programs: list[ProgramProcess] = []
        self._run = ProgramRun(self._loop, record.job_file, [])
        self._folder = folder
        self._lost: set[str] = set()
        self._previously_stopped: set[str] = set()  # tasks that were stopped at the last poll
        self._is_polling = self._ends_itself = False
        self._stopping: list[socket.socket] = []
        self._lifetime = LocalLifetime(self._loop, limits, record.created, self._is_used, self._end)
        self._outside = OutsideConnections()
        self._loop.on_readable(self._listener, self._accept)
        self._loop.on_termination(lambda: self._stop("has ended: its supervisor got a signal"))

    def run(self) -> None:
        """Start the tasks, and serve until a request or a signal to stop."""
        self._forks.prepare()
        has_servers = any(job.has_server for job in self._record.job_file.jobs)
        self._library = task_processes.load_library(Path(self._record.tensorflow)) if has_servers else None
        if self._record.isolation.is_loopback:
            listening.patch_sockets()
            listening.hook_libraries()
            PortWatch(self._loop, self._processes).start()
        for task in self._record.tasks:
            program = self._record.job_file.job(task.job).program
            if program is None:
                self._servers.append(self._new_server(task))
            else:
                settings = self._settings(task)
                self._programs.append(ProgramProcess(self._loop, settings, program, self._forks, self._add_event))
        self._run = ProgramRun(self._loop, self._record.job_file, self._programs)
        self._way_out.start(self._loop, self._note_refused)
        for server_process in self._servers:
            server_process.start()
        self._run.start()
        self._lifetime.start()
        self._check_folder()
        self._loop.run()
        if self._ends_itself:
            processes.kill_marked(CLUSTER_ID_VARIABLE, self._record.id)

    def _note_refused(self, reason: str) -> None:
        self._scripts.send_event(refused(reason))
        for program in self._programs:
            program.note(reason)

    def _processes(self) -> set[int]:
        """Return the processes of the cluster: a child whose environment is its own has no mark."""
        own = os.getpid()
        return processes.with_children([own, *processes.marked(CLUSTER_ID_VARIABLE, self._record.id)]) - {own}

    def _settings(self, record: TaskRecord) -> TaskSettings:
        cluster = {job: dict(enumerate(addresses)) for job, addresses in self._record.cluster.items()}
        cluster[record.job] = {task.index: task.address for task in self._record.tasks if task.job == record.job}
        is_data = self._record.job_file.job(record.job).kind == DATA
        config = TaskConfig(cluster, record.job, record.index, elastic=self._record.elastic and not is_data)
        environment = record.environment
        if "PYTHONPATH" in environment:  # else the supervisor's holds
            environment = self._record.isolation.confined(environment)
        return TaskSettings(
            config=config, environment=environment, preload=record.preload, folder=record.folder,
            log=self._folder.log(record.task),
            progress=self._folder.task_progress(record.task), python=self._record.python,
            data=self._folder.data if is_data else None, confined=self._record.isolation.is_loopback,
        )  # fmt: skip

    # ---- requests ----

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(_MESSAGE_TIMEOUT)
        self._loop.on_readable(connection, lambda: self._read_request(connection))

    def _read_request(self, connection: socket.socket) -> None:
        self._loop.forget(connection)
        try:
            received = ipc.receive(connection)
            if received is None or not self._answer(connection, *received):
                connection.close()
        except OSError:  # the client is gone
            connection.close()

    def _answer(self, connection: socket.socket, request: ipc.Message, descriptors: list[int]) -> bool:
        """Answer a request; return whether the connection stays open."""
        match request["do"]:
            case "observe":
                tasks = {task.name: task.describe() for task in (*self._servers, *self._programs)}
                ipc.send(
                    connection,
                    {
                        "tasks": [tasks[str(task.task)] for task in self._record.tasks],
                        "scripts": self._scripts.describe(),
                        "idle_since": self._lifetime.idle_since,
                        "isolation": self._record.isolation.describe(),
                        "way_out": self._way_out.way.text,
                        "proxy": self._way_out.variables({}),
                    },
                )
            case "dial":
                self._lifetime.note_use()
                named = {process.name: process for process in (*self._servers, *self._programs)}
                task_processes.dial(connection, named[request["task"]].settings.config.port)
            case "restart":
                for task in self._servers:
                    if request["task"] in (None, task.name):
                        task.restart()
                self._run.restart([task for task in self._programs if request["task"] in (None, task.name)])
                ipc.send(connection, {})
            case "scale":
                self._scale(Record.from_dict(request["record"]))
                ipc.send(connection, {})
            case "run":
                self._lifetime.note_use()
                self._run_script(connection, request, descriptors)
                return True
            case "stop":
                self._stopping.append(connection)
                self._stop(request["reason"])
                return True
        return False

    def _run_script(self, connection: socket.socket, request: ipc.Message, descriptors: list[int]) -> None:
        isolation = self._record.isolation
        if not self._record.exposed and (refusal := isolation.refusal()):
            ipc.send(connection, {"error": str(refusal), "help": refusal.help})
            processes.close(descriptors)
            connection.close()
            return
        request["environment"] = self._way_out.variables(isolation.confined(request["environment"]))
        self._scripts.run(connection, request, descriptors)

    def _scale(self, record: Record) -> None:
        """Start the tasks that are new, and end those that are not in the record; the others continue."""
        if record.isolation.is_shared or not ports.has_ipv6():
            record = relocate(record, ports.OWN, kept={task.task for task in self._record.tasks})
        self._folder.replace(record)
        self._record = record
        running = {task.name: task for task in self._servers}
        wanted = {str(task.task): task for task in record.tasks}
        added = {name: self._new_server(task) for name, task in wanted.items() if name not in running}
        self._servers = [(running | added)[name] for name in wanted]
        removed = [running[name] for name in running if name not in wanted]
        self._ports.replace(removed, list(added.values()))

    def _new_server(self, record: TaskRecord) -> ServerProcess:
        return ServerProcess(self._loop, self._settings(record), self._library, self._on_change)

    # ---- lost tasks ----

    def _not_ready(self, request: ipc.Message) -> list[ServerProcess]:
        """Return the tasks that a script's sessions need and that are not ready."""
        without = request["environment"].get("TFK8S_WITHOUT", "").split(",")
        missing = [task for task in self._servers if task.phase is not Phase.READY and task.name not in without]
        return list(filter(self._takes_part, missing))

    def _takes_part(self, task: TaskProcess) -> bool:
        return self._record.job_file.job(task.job).takes_part

    def _add_event(self, task: TaskProcess) -> None:
        self._folder.add_event(task.name, task.phase, task.reason)

    def _on_change(self, task: TaskProcess) -> None:
        self._add_event(task)
        if task.phase is Phase.READY:
            self._lost.discard(task.name)
            self._scripts.start_waiting()
        elif task.phase is Phase.FAILED and task.name not in self._lost and self._takes_part(task):
            self._lost.add(task.name)
            self._scripts.send_event(lost(task.name, task.reason))

    def _start_polling(self) -> None:
        """Start to poll for tasks that a signal has stopped, because sessions wait for such tasks without an end.

        Earlier results are forgotten, so that a script that has just started learns of all stopped tasks.
        """
        self._lost -= self._previously_stopped
        self._previously_stopped = set()
        if not self._is_polling:
            self._is_polling = True
            self._loop.after(TIMING.stopped_interval, self._poll_stopped)

    def _poll_stopped(self) -> None:
        servers = filter(self._takes_part, self._servers)
        stopped = {task.name: reason for task in servers if (reason := task.stopped_reason())}
        for name, reason in stopped.items():
            if name in self._previously_stopped and name not in self._lost:  # at two polls in a row
                self._lost.add(name)
                self._scripts.send_event(lost(name, reason))
        self._lost -= self._previously_stopped - stopped.keys()
        self._previously_stopped = set(stopped)
        self._is_polling = bool(self._scripts.describe())
        if self._is_polling:
            self._loop.after(TIMING.stopped_interval, self._poll_stopped)

    # ---- the end ----

    def _is_used(self) -> bool:
        """Return whether a script or program runs or waits, or a session or a forward is connected to a task."""
        if self._scripts.are_used or self._run.is_running:
            return True
        ports = {task.settings.config.port for task in self._servers}
        return self._outside.exist(activity.read_tables(), ports, [task.pid for task in self._servers if task.pid])

    def _check_folder(self) -> None:
        """End a cluster whose folder somebody has removed: no command finds that cluster."""
        if self._folder.supervisor() == os.getpid():
            self._loop.after(_FOLDER_INTERVAL, self._check_folder)
        else:
            self._end("because its folder was removed")

    def _end(self, reason: str) -> None:
        self._ends_itself = True
        print(f"the cluster ends {reason}", file=sys.stderr, flush=True)
        self._folder.write_end(reason)
        self._stop(f"has ended {reason}")

    def _stop(self, reason: str) -> None:
        """End scripts and programs, then servers. `cluster_end.end` finds the processes that scripts left."""
        self._scripts.stop(reason)
        self._run.stop()
        self._loop.after(0, self._stop_servers)

    def _stop_servers(self) -> None:
        if self._scripts.describe() or any(program.pid for program in self._programs):
            self._loop.after(0.01, self._stop_servers)
            return
        for task in self._servers:
            task.stop()
        self._loop.after(0, self._finish_stop)

    def _finish_stop(self) -> None:
        if any(task.pid for task in self._servers):
            self._loop.after(0.01, self._finish_stop)
            return
        for connection in self._stopping:
            with contextlib.suppress(OSError):
                ipc.send(connection, {})
        self._loop.stop()
