"""The backend in memory: clusters that are data, in a class that keeps the promises of real backends."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import NoReturn

from tfk8s.backends import foreground_scripts
from tfk8s.backends.devices import no_servers
from tfk8s.backends.options import BackendOptions
from tfk8s.backends.parts import History, Shared
from tfk8s.backends.plain_data import job_file_to_dict
from tfk8s.backends.protocol import Observer, PollingObserver
from tfk8s.backends.stacks import Stacks
from tfk8s.backends.usage import Usage
from tfk8s.core import job_kinds
from tfk8s.core.events import Event
from tfk8s.core.plan import Plan, Scaling, compare
from tfk8s.core.resources import NOTHING, named
from tfk8s.core.script import WHOLE_LOG, LogLine, LogOptions, Outcome, Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.core.storage.claims import claims_to_make
from tfk8s.errors import InvalidInput, NoSuchCluster, TaskUnreachable
from tfk8s.sessions.timing import TIMING
from tfk8s.task import wire
from tfk8s.testing import statuses
from tfk8s.testing.fake_files import FakeFiles
from tfk8s.testing.leases import FakeLeases
from tfk8s.testing.statuses import CREATED


class FakeBackend:
    """A backend whose clusters are data: servers are ready and programs end at once, and scripts do not run.

    It is its own parts: `scripts`, `detached`, `inside` and `suspending`.

    Args:
        *job_files: the clusters that exist at first, as `tfk8s.load` returns job files.
        phase: the phase of their tasks.

    Attributes:
        statuses: the status of each cluster, by name.
        job_files: the job file of each cluster, by name.
        calls: each call that changes or reads something, as text, in order.
        updates: functions that change the status of a cluster. Each poll applies one of them and removes it.
        unresponsive: the tasks whose servers do not respond.
        exit_code: the exit code of scripts, programs and commands.
        on_run: a function that is called with each script that runs.
        first_phase: the phase of the tasks that `apply` makes.
        past_events: the events of every cluster.
        refusal: the reason why `apply` would refuse what `plan` shows.
        connections: the servers' ends of the connections that `dial` opened.
        loss_reason: the reason why tasks were lost; "" leaves it to the caller.
        observers: the number of open observers.
    """

    name, flags = "local", " --local"
    timing = TIMING
    shared: Shared | None = None
    history: History | None = None
    in_pods = False

    def __init__(self, *job_files: JobFile, phase: Phase = Phase.READY) -> None:
        self.statuses: dict[str, ClusterStatus] = {}
        self.job_files: dict[str, JobFile] = {}
        self.calls: list[str] = []
        self.updates: list[Callable[[ClusterStatus], ClusterStatus]] = []
        self.unresponsive: set[Task] = set()
        self.on_run: Callable[[Script], object] = lambda _: None
        self.connections: list[socket.socket] = []
        self.first_phase, self.refusal, self.loss_reason, self.exit_code, self.observers = Phase.READY, "", "", 0, 0
        self.past_events, self.leases = list[Event](), FakeLeases()
        self.files = FakeFiles(self._check, self.calls)
        for job_file in job_files:
            self._make(job_file, phase)

    def close(self) -> None:
        """Close the servers' ends of all connections."""
        for stream in self.connections:
            stream.close()

    __del__ = close

    @property
    def scripts(self) -> FakeBackend:
        """The backend itself."""
        return self

    detached = inside = suspending = scripts

    def apply(self, job_file: JobFile) -> bool:
        """Make the cluster; refuse a name that another job file has."""
        self.calls.append(f"apply {job_file.name}")
        leased, job_file = job_file, replace(job_file, lease=None)
        existing = self.job_files.get(job_file.name)
        if existing not in (None, job_file):
            raise InvalidInput(f'cluster "{job_file.name}" runs already, from another job file')
        if existing is None or self.statuses[job_file.name].suspended:
            self._make(job_file, self.first_phase)
        self.leases.apply(leased)
        return existing is None

    def plan(self, job_file: JobFile) -> Plan:
        """Return what `apply` would change."""
        self.calls.append(f"plan {job_file.name}")
        known = self.job_files.get(job_file.name)
        change = compare("cluster", job_file.name, known and job_file_to_dict(known), job_file_to_dict(job_file))
        return Plan(
            name=job_file.name, changes=(change,) if change else (), refusal=self.refusal,
            restarts=tuple(known) if known and change else (),
            requests_before=named(known) if known else NOTHING, requests=named(job_file),
        )  # fmt: skip

    def scale(self, name: str, tasks: Mapping[str, int]) -> Scaling:
        """Change the numbers of tasks. In a cluster with programs, all tasks restart."""
        self._check(name)
        self.calls.append(f"scale {name} {dict(tasks)}")
        before = self.job_files[name]
        if (after := before.scaled(tasks)) == before:
            return Scaling.UNCHANGED
        kept = self.statuses[name].tasks if job_kinds.is_elastic(before) else ()
        self._make(after, self.first_phase, 201, kept)
        return Scaling.IN_PLACE if kept else Scaling.RESTARTED

    def observe(self, name: str) -> ClusterStatus:
        """Return the status, after the next of `updates`."""
        status = self._check(name)
        self.statuses[name] = self.updates.pop(0)(status) if self.updates else status
        return self.statuses[name]

    def clusters(self) -> list[ClusterStatus]:
        """Return the status of all clusters, by name."""
        return [self.statuses[name] for name in sorted(self.statuses)]

    def events(self, name: str, *, follow: bool) -> Iterator[Event]:
        """Yield the events in `past_events`."""
        self._check(name)
        self.calls.append(f"events {name} follow={follow}")
        return iter(self.past_events)

    def logs(self, name: str, tasks: Sequence[Task], options: LogOptions) -> Iterator[LogLine]:
        """Yield one line for each task; with `previous`, for each task that was restarted."""
        status = self._check(name)
        self.calls.append(f"logs {name} {' '.join(map(str, tasks))} {_words(options)}")
        restarted = {task.task for task in status.tasks if task.restarts}
        shown = (task for task in tasks if task in restarted or not options.previous)
        return (LogLine(task=task, text=f"{task} listens") for task in shown)

    def check(self, script: Script) -> None:
        """Refuse options of pods, as on this machine."""
        foreground_scripts.check(script)

    def run(self, name: str, script: Script) -> Outcome:
        """Call `on_run` with the script; return `exit_code`."""
        if not self._check(name).has_servers:
            raise no_servers(name, self.flags)
        words = [flag for flag in ("tf1", "fresh", "isolate", "on_master") if getattr(script, flag)]
        words += [f"get {download}" for download in script.downloads]
        self.calls.append(" ".join(["run", name, str(script.path), *script.arguments, *words]))
        self.on_run(script)
        return Outcome(self.exit_code)

    def start(self, name: str, script: Script) -> str:
        """Call `on_run` with the script; return a name for it."""
        self.run(name, script)
        return "script-4e9c21"

    def show(self, name: str, script: str, options: LogOptions) -> int:
        """Write nothing; return `exit_code` if the script is followed."""
        self._check(name)
        self.calls.append(f"show {name} {script} {_words(options)}")
        return self.exit_code if options.follow else 0

    def log(self, name: str, script: str, options: LogOptions = WHOLE_LOG) -> Iterator[str]:
        """Yield one line."""
        self._check(name)
        return iter([f"{script} runs"][: options.tail])

    def stop(self, name: str, script: str) -> None:
        """Record the call."""
        self._check(name)
        self.calls.append(f"stop {name} {script}")

    def locator(self, name: str) -> BackendOptions:
        """Return the options of this machine."""
        self._check(name)
        return BackendOptions(local=True)

    def dial(self, name: str, task: Task) -> socket.socket:
        """Return a connection on which the response to GetStatus or ListDevices waits to be read."""
        status = self._check(name)
        if task in self.unresponsive or (self.unresponsive and task == status.master):
            raise TaskUnreachable(f"{task} does not answer: Connection refused")
        others = [other.task for other in status.tasks if other.task != task and other.takes_part]
        response = wire.field(1, _device(task)) + b"".join(wire.field(2, _device(other)) for other in others)
        client, server = socket.socketpair()
        server.sendall(wire.frame(wire.DATA, wire.END_STREAM, 1, wire.grpc_message(response)))
        self.connections.append(server)
        return client

    @contextlib.contextmanager
    def observer(self, name: str) -> Iterator[Observer]:
        """Yield an observer that polls."""
        self.observers += 1
        try:
            yield PollingObserver(lambda: self.observe(name), lambda _, symptom: self.loss_reason or symptom)
        finally:
            self.observers -= 1

    def restart(self, name: str, task: Task | None) -> bool:
        """Make the task, or all tasks, other ones."""
        status = self._check(name)
        self.calls.append(f"restart {name} {task}")
        self.statuses[name] = statuses.restart(status, task, self.first_phase, self.exit_code)
        return True

    def suspend(self, name: str, by: str) -> bool:
        """Make all tasks suspended."""
        status = self._check(name)
        self.calls.append(f"suspend {name}")
        self.statuses[name] = statuses.suspend(status, by, self.flags)
        return status.suspended is None

    def resume(self, name: str) -> bool:
        """Make all tasks new ones."""
        self.calls.append(f"resume {name}")
        if not self._check(name).suspended:
            return False
        self._make(self.job_files[name], self.first_phase, 301)
        return True

    def execute(self, name: str, task: Task, command: Sequence[str]) -> int:
        """Return `exit_code`."""
        self._check(name)
        self.calls.append(" ".join(["execute", name, str(task), *command]))
        return self.exit_code

    def stacks(self, name: str, chosen: Sequence[str]) -> list[Stacks]:
        """Return names without processes."""
        self._check(name)
        return [Stacks(other, problem="has no process") for other in chosen]

    def usage(self, name: str, chosen: Sequence[str]) -> list[Usage]:
        """Return names without amounts."""
        self._check(name)
        return [Usage(name=other, problem="has no process") for other in chosen]

    def tensorboard(self, name: str, **_: object) -> NoReturn:
        """Refuse: nothing serves a page."""
        raise InvalidInput(f'cluster "{self._check(name).name}" has no TensorBoard: its backend is a fake')

    def end_programs(self, name: str, jobs: Sequence[str], *, succeeded: bool) -> None:
        """Record the call."""
        self.calls.append(f"end_programs {' '.join((name, *jobs))} succeeded={succeeded}")

    def delete(self, name: str, *, delete_claims: bool = False) -> list[str]:
        """Remove the cluster."""
        self.calls.append(f"delete {name}{' and its claims' * delete_claims}")
        self._check(name)
        del self.statuses[name]
        made = [str(volume.claim) for volume in claims_to_make(self.job_files.pop(name))]
        return [] if delete_claims else made

    def _check(self, name: str) -> ClusterStatus:
        if name not in self.statuses:
            raise NoSuchCluster(f'there is no cluster "{name}"', help="tfk8s up --local FILE starts one")
        return self.statuses[name]

    def _make(self, job_file: JobFile, phase: Phase, pid: int = 101, kept: Sequence[TaskStatus] = ()) -> None:
        self.job_files[job_file.name] = job_file
        self.statuses[job_file.name] = statuses.make(job_file, phase, pid, kept, self.exit_code)
        event = Event(id="", time=CREATED, about="", warning=False, reason=phase.value, message="")
        self.past_events += (replace(event, id=task, about=task) for task in map(str, job_file))


def _words(options: LogOptions) -> str:
    """Return the options that differ from the defaults, and always the first two."""
    values = ((field.name, getattr(options, field.name)) for field in fields(options))
    return " ".join(f"{name}={value}" for name, value in values if value or name in ("follow", "tail"))


def _device(task: Task) -> bytes:
    """Return a serialized tensorflow.DeviceAttributes."""
    name = f"/job:{task.job}/replica:0/task:{task.index}/device:CPU:0"
    return wire.field(1, name) + wire.field(2, "CPU") + wire.field(4, 256 << 20)
