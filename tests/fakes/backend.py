"""A backend without processes: clusters are data, servers are one canned answer each."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tfk8s.backends.local.record import job_file_to_dict
from tfk8s.backends.options import BackendOptions
from tfk8s.backends.protocol import Observer, PollingObserver
from tfk8s.core import addresses
from tfk8s.core.events import Event
from tfk8s.core.plan import Plan, compare
from tfk8s.core.script import LogLine, Outcome, Script
from tfk8s.core.spec import EVALUATOR, Job, JobFile, Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.errors import InvalidInput, NoSuchCluster, TaskUnreachable

CREATED = 1_700_000_000.0

# Runs the command line: arguments → exit code, standard output, standard error (see command_line.py).
Run = Callable[..., tuple[int, str, str]]


def job_file(name: str = "mnist", **jobs: int) -> JobFile:
    """Return a job file with so many tasks a job; the first job is the master's."""
    jobs = jobs or {"chief": 1, "worker": 2}
    return JobFile(name=name, jobs=tuple(Job(name=job, tasks=n) for job, n in jobs.items()), master=next(iter(jobs)))


class FakeBackend:
    """Fulfils the protocol in memory.

    Attributes:
        calls: what was asked, in order.
        looks: what the next `observe`s do to their cluster, each once; later ones find it as it is.
        silent: tasks whose servers do not answer.
        code: what scripts exit with.
        script: what a script does, besides.
        first_phase: of the tasks that `apply` makes.
        happened: the events of any cluster.
        refusal: why `apply` would not do what `plan` says.
        streams: the servers' ends of what was dialled.
        loss_reason: why tasks are lost, where more than the symptom is known.
        observers: how many are open now.
    """

    name = "local"
    flags = " --local"

    def __init__(self, *job_files: JobFile, phase: Phase = Phase.READY) -> None:
        self.clusters_by_name: dict[str, ClusterStatus] = {}
        self.specs: dict[str, JobFile] = {}
        self.calls: list[str] = []
        self.looks: list[Callable[[ClusterStatus], ClusterStatus]] = []
        self.silent: set[Task] = set()
        self.code = 0
        self.script: Callable[[Script], None] = lambda script: None
        self.streams: list[socket.socket] = []
        self.first_phase = Phase.READY
        self.refusal = ""
        self.loss_reason = ""
        self.observers = 0
        self.happened: list[Event] = []
        for one in job_files:
            self._make(one, phase)

    def close(self) -> None:
        """Close the servers' ends, where an error may keep this from being forgotten."""
        for stream in self.streams:
            stream.close()

    __del__ = close

    def apply(self, job_file: JobFile) -> bool:
        self.calls.append(f"apply {job_file.name}")
        if job_file.name in self.specs and self.specs[job_file.name] != job_file:
            raise InvalidInput(f'cluster "{job_file.name}" runs already, from another job file')
        if job_file.name in self.specs:
            return False
        self._make(job_file, self.first_phase)
        return True

    def plan(self, job_file: JobFile) -> Plan:
        self.calls.append(f"plan {job_file.name}")
        known = self.specs.get(job_file.name)
        change = compare("cluster", job_file.name, known and job_file_to_dict(known), job_file_to_dict(job_file))
        restarts = tuple(known) if known and change else ()
        return Plan(name=job_file.name, changes=(change,) if change else (), restarts=restarts, refusal=self.refusal)

    def scale(self, name: str, tasks: Mapping[str, int]) -> bool:
        self._check(name)
        self.calls.append(f"scale {name} {dict(tasks)}")
        before = self.specs[name]
        jobs = tuple(replace(job, tasks=tasks.get(job.name, job.tasks)) for job in before.jobs)
        if jobs == before.jobs:
            return False
        self._make(replace(before, jobs=jobs), self.first_phase, pid=201)
        return True

    def observe(self, name: str) -> ClusterStatus:
        self._check(name)
        if self.looks:
            self.clusters_by_name[name] = self.looks.pop(0)(self.clusters_by_name[name])
        return self.clusters_by_name[name]

    def clusters(self) -> list[ClusterStatus]:
        return [self.clusters_by_name[name] for name in sorted(self.clusters_by_name)]

    def events(self, name: str, *, follow: bool) -> Iterator[Event]:
        self._check(name)
        self.calls.append(f"events {name} follow={follow}")
        return iter(self.happened)

    def logs(self, name: str, tasks: Sequence[Task], *, follow: bool, tail: int | None) -> Iterator[LogLine]:
        self._check(name)
        self.calls.append(f"logs {name} {' '.join(map(str, tasks))} follow={follow} tail={tail}")
        return iter([LogLine(task=task, text=f"{task} listens") for task in tasks])

    def run(self, name: str, script: Script) -> Outcome:
        self._check(name)
        words = [flag for flag in ("tf1", "fresh", "isolate") if getattr(script, flag)]
        self.calls.append(" ".join(["run", name, str(script.path), *script.arguments, *words]))
        self.script(script)
        return Outcome(self.code)

    def start(self, name: str, script: Script) -> str:
        self.run(name, script)
        return "script-4e9c21"

    def show(self, name: str, script: str, *, follow: bool, tail: int | None) -> int:
        self._check(name)
        self.calls.append(f"show {name} {script} follow={follow} tail={tail}")
        return self.code if follow else 0

    def stop(self, name: str, script: str) -> None:
        self._check(name)
        self.calls.append(f"stop {name} {script}")

    def locator(self, name: str) -> BackendOptions:
        self._check(name)
        return BackendOptions(local=True)

    def dial(self, name: str, task: Task) -> socket.socket:
        """Return a stream on which the answer lies ready: one that fits GetStatus and ListDevices."""
        status = self._check(name)
        if task in self.silent or (self.silent and task == status.master):
            raise TaskUnreachable(f"{task} does not answer: Connection refused")
        others = [one.task for one in status.tasks if one.task != task and one.task.job != EVALUATOR]
        answer = _device(1, task) + b"".join(_device(2, other) for other in others)
        here, there = socket.socketpair()
        there.sendall(_frame(b"\0" + struct.pack(">I", len(answer)) + answer))
        self.streams.append(there)
        return here

    @contextlib.contextmanager
    def observer(self, name: str) -> Iterator[Observer]:
        self.observers += 1
        try:
            yield PollingObserver(lambda: self.observe(name), lambda task, symptom: self.loss_reason or symptom)
        finally:
            self.observers -= 1

    def restart(self, name: str, task: Task | None) -> None:
        self._check(name)
        self.calls.append(f"restart {name} {task}")

    def delete(self, name: str) -> None:
        self.calls.append(f"delete {name}")
        self._check(name)
        del self.clusters_by_name[name], self.specs[name]

    def _check(self, name: str) -> ClusterStatus:
        if name not in self.clusters_by_name:
            raise NoSuchCluster(f'there is no cluster "{name}"', help="tfk8s up --local FILE starts one")
        return self.clusters_by_name[name]

    def _make(self, job_file: JobFile, phase: Phase, pid: int = 101) -> None:
        address = addresses.local_address(job_file)
        self.specs[job_file.name] = job_file
        self.clusters_by_name[job_file.name] = ClusterStatus(
            name=job_file.name,
            backend=self.name,
            location=f"/state/{job_file.name}",
            target=f"grpc://{address(job_file.master_task)}",
            master=job_file.master_task,
            tasks=tuple(
                TaskStatus(task=task, phase=phase, address=address(task), runs_on=f"pid {number}", since=CREATED)
                for number, task in enumerate(job_file, pid)
            ),
            created=CREATED,
        )


def change(task: str, **values: object) -> Callable[[ClusterStatus], ClusterStatus]:
    """Return what changes one task of a cluster."""

    def changed(status: ClusterStatus) -> ClusterStatus:
        tasks = tuple(replace(one, **values) if str(one.task) == task else one for one in status.tasks)
        return replace(status, tasks=tasks)

    return changed


def _device(field: int, task: Task) -> bytes:
    name = f"/job:{task.job}/replica:0/task:{task.index}/device:CPU:0"
    return _field(field, _field(1, name.encode()) + _field(2, b"CPU") + bytes([4 << 3, 0x80, 0x80, 0x80, 0x80, 1]))


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def _frame(payload: bytes) -> bytes:
    """Return an HTTP/2 frame: data, and the end of the stream."""
    return struct.pack(">I", len(payload))[1:] + bytes([0, 1]) + struct.pack(">I", 1) + payload
