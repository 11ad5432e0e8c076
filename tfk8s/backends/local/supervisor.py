"""The supervisor, the one process behind a local cluster: it starts the tasks and runs the scripts.

The supervisor outlives the command that started it, unless that holds a lease. All tasks and scripts end with the
supervisor. Each connection to the socket `control.sock` has one request of `requests`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import sys
from pathlib import Path

from tfk8s.backends import interpreter
from tfk8s.backends.local import task_processes
from tfk8s.backends.local.lifetime import LocalLifetime, OutsideConnections, watch_folder
from tfk8s.backends.local.loopback import ports
from tfk8s.backends.local.loopback.start import listening
from tfk8s.backends.local.loopback.watch import PortWatch
from tfk8s.backends.local.port_handover import PortHandover
from tfk8s.backends.local.programs.process import PROGRAM_RUNNER, ProgramProcess
from tfk8s.backends.local.programs.run import ProgramRun
from tfk8s.backends.local.record import Record, TaskRecord, relocate
from tfk8s.backends.local.script_processes import RUNNER, ScriptRunner
from tfk8s.backends.local.state import Folder
from tfk8s.backends.local.supervision import lease, requests, suspended_file
from tfk8s.backends.local.supervision.history import HistoryKeeper
from tfk8s.backends.local.supervision.lease import RunLease
from tfk8s.backends.local.supervision.listener import RequestListener
from tfk8s.backends.local.supervision.losses import Losses
from tfk8s.backends.local.task_processes import ServerProcess, TaskProcess, TaskSettings
from tfk8s.backends.local.way_out.supervisor_part import WayOut
from tfk8s.core.naming import CLUSTER_ID_VARIABLE
from tfk8s.core.roles import DATA
from tfk8s.core.status import Phase
from tfk8s.sessions.forks import processes
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.sessions.forks.fork_client import FORK_SERVER, ForkClient
from tfk8s.sessions.task_events import refused
from tfk8s.task import activity, ipc, server
from tfk8s.task.config import TaskConfig

_REFUSED_AT_END = (requests.Restart, requests.Scale, requests.RunScript, requests.Hold)


class Supervisor:
    """The tasks and scripts of a cluster, and the answers to requests."""

    def __init__(self, folder: Folder, record: Record, way_out: WayOut) -> None:
        self._record, self._way_out = record, way_out
        self._loop = Loop()
        environment = record.isolation.confined({**os.environ, **record.variables})
        command = interpreter.command(record.python, FORK_SERVER, RUNNER, PROGRAM_RUNNER)
        self._forks = ForkClient(self._loop, command, environment, folder.scripts_log)
        limits, grace = record.job_file.limits, record.job_file.grace
        self._history = HistoryKeeper(folder)
        self._scripts = ScriptRunner(
            self._loop, self._forks, self._not_ready, lambda: self._losses.poll(), grace, self._history.script_ended
        )
        self._losses = Losses(self._loop, self._used, lambda: bool(self._scripts.describe()), self._scripts.send_event)
        self._servers: list[ServerProcess] = []
        self._ports = PortHandover(self._loop)
        self._library: server.Library | None = None
        self._programs: list[ProgramProcess] = []
        self._run = ProgramRun(self._loop, record.job_file, [])
        self._folder = folder
        self._ends_itself = self._is_stopping = False
        self._stopping: list[socket.socket] = []
        self._lifetime = LocalLifetime(self._loop, limits, record.created, self._is_used, self._end, self._suspend)
        self._outside = OutsideConnections()
        self.lease = RunLease(self._loop, self._end)
        self._listener = RequestListener(self._loop, folder.control, self._answer)
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
        watch_folder(self._loop, self._folder, self._end)
        self._loop.run()
        if self._ends_itself:
            processes.kill_marked(CLUSTER_ID_VARIABLE, self._record.id)
        if self.lease.has_run_out:
            self._listener.close()
            lease.remove(self._folder)

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

    def _answer(self, connection: socket.socket, request: requests.Request, descriptors: list[int]) -> bool:
        """Answer a request; return whether the connection stays open. A script takes its descriptors from the list."""
        if self._is_stopping and isinstance(request, _REFUSED_AT_END):
            ipc.send(connection, {"error": "the cluster ends"})
            return False
        match request:
            case requests.Observe():
                ipc.send(connection, requests.to_message(self._snapshot()))
            case requests.Dial():
                self._lifetime.note_use()
                task_processes.dial(connection, self._named(request.task).settings.config.port)
            case requests.Restart():
                self._restart(request.task)
                ipc.send(connection, {})
            case requests.Scale():
                self._scale(request.record)
                ipc.send(connection, {})
            case requests.RunScript():
                self._lifetime.note_use()
                return self._run_script(connection, request, descriptors)
            case requests.Stop():
                self._stopping.append(connection)
                self._stop(request.reason, hurry=request.hurry)
                return True
            case requests.Hold():
                ipc.send(connection, {"held": bool(self.lease.holders)})
                return bool(self.lease.holders) and self.lease.hold(connection)
            case requests.Keep():
                self.lease.cancel()
                self._record = dataclasses.replace(self._record, is_leased=False)
                self._folder.replace(self._record)
                ipc.send(connection, {})
        return False

    def _snapshot(self) -> requests.Snapshot:
        tasks = {task.name: task.describe() for task in (*self._servers, *self._programs)}
        return requests.Snapshot(
            record=self._record,
            tasks=[tasks[str(task.task)] for task in self._record.tasks],
            scripts=self._scripts.describe(),
            idle_since=self._lifetime.idle_since,
            holders=self.lease.holders,
            isolation=self._record.isolation.describe(),
            way_out=self._way_out.way.text,
            proxy=self._way_out.variables({}),
        )

    def _named(self, name: str) -> TaskProcess:
        for task in (*self._servers, *self._programs):
            if task.name == name:
                return task
        raise requests.BadRequest(f"there is no task {name!r}")

    def _restart(self, name: str | None) -> None:
        chosen = [*self._servers, *self._programs] if name is None else [self._named(name)]
        for task in self._servers:
            if task in chosen:
                task.restart()
        self._run.restart([task for task in self._programs if task in chosen])

    def _run_script(self, connection: socket.socket, request: requests.RunScript, descriptors: list[int]) -> bool:
        isolation = self._record.isolation
        if not self._record.exposed and (refusal := isolation.refusal()):
            ipc.send(connection, {"error": str(refusal), "help": refusal.help})
            return False
        environment = self._way_out.variables(isolation.confined(request.environment))
        streams = descriptors[:]
        descriptors.clear()
        self._scripts.run(connection, dataclasses.replace(request, environment=environment), streams)
        return True

    def _scale(self, record: Record) -> None:
        """Start the tasks that are new, and end those that are not in the record; the others continue."""
        if record.isolation.is_shared or not ports.has_ipv6():
            record = relocate(record, ports.OWN, kept={task.task for task in self._record.tasks})
        self._folder.replace(record)
        self._history.scaled(record)
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

    def _not_ready(self, request: requests.RunScript) -> list[ServerProcess]:
        """Return the tasks that a script's sessions need and that are not ready."""
        without = request.environment.get("TFK8S_WITHOUT", "").split(",")
        return [task for task in self._used() if task.phase is not Phase.READY and task.name not in without]

    def _used(self) -> list[ServerProcess]:
        """Return the tasks that sessions use."""
        return list(filter(self._takes_part, self._servers))

    def _takes_part(self, task: TaskProcess) -> bool:
        return self._record.job_file.job(task.job).takes_part

    def _add_event(self, task: TaskProcess) -> None:
        self._folder.add_event(task.name, task.phase, task.reason)

    def _on_change(self, task: TaskProcess) -> None:
        self._add_event(task)
        if self._takes_part(task):
            self._losses.note(task)
        if task.phase is Phase.READY:
            self._scripts.start_waiting()

    # ---- the end ----

    def _is_used(self) -> bool:
        """Return whether a script or program runs or waits, or a session or a forward is connected to a task."""
        if self._scripts.are_used or self._run.is_running:
            return True
        ports = {task.settings.config.port for task in self._servers}
        return self._outside.exist(activity.read_tables(), ports, [task.pid for task in self._servers if task.pid])

    def _suspend(self, idle: float) -> bool:
        """Suspend the idle cluster, unless its programs have ended or a `run` will remove it; return whether it is."""
        may_suspend = not self._programs and not self.lease.holders
        if reason := suspended_file.write_idle(self._folder, idle) if may_suspend else "":
            self._end(reason)
        return bool(reason)

    def _end(self, reason: str) -> None:
        self._ends_itself = True
        print(f"the cluster ends {reason}", file=sys.stderr, flush=True)
        self._folder.write_end(reason)
        self._stop(f"has ended {reason}")

    def _stop(self, reason: str, *, hurry: bool = False) -> None:
        """End scripts and programs, then servers. `cluster_end.end` finds the processes that scripts left.

        Another reason to end changes nothing: what has got SIGTERM may save until its time is over, or until `hurry`.
        """
        if not self._is_stopping:
            self._is_stopping, tasks = True, self._snapshot().tasks
            self._scripts.stop(reason)
            self._run.stop()
            self._history.stops(reason, self._record, tasks)  # may wait for the disk, and scripts save meanwhile
            self._loop.after(0, self._stop_servers)
        if hurry:
            self._scripts.kill()
            self._run.kill()

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
            with contextlib.suppress(OSError), connection:
                ipc.send(connection, {})
        self._loop.stop()
