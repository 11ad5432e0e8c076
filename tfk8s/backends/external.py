"""Servers that were started elsewhere: a job file gives their addresses, and tfk8s only connects to them."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NoReturn

from tfk8s.backends import devices, foreground_scripts, local_scripts
from tfk8s.backends.foreground_scripts import ForegroundScripts
from tfk8s.backends.local_tensorboard import LocalTensorBoard
from tfk8s.backends.protocol import Observer, PollingObserver
from tfk8s.core import addresses
from tfk8s.core.environment import texts
from tfk8s.core.events import Event
from tfk8s.core.plan import Plan
from tfk8s.core.script import LogLine, LogOptions, Outcome, Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.core.storage.volumes import KeptClaim
from tfk8s.errors import InvalidInput, NoSuchCluster
from tfk8s.sessions import task_monitor


class ExternalBackend(ForegroundScripts, LocalTensorBoard):
    """Connects to the servers of one job file.

    Args:
        job_file: has explicit addresses.
    """

    name = "addresses"
    flags = ""

    def __init__(self, job_file: JobFile) -> None:
        self._job_file = job_file
        self._address = addresses.given_address(job_file)
        self._target = f"grpc://{self._address(job_file.master_task)}"

    def apply(self, job_file: JobFile) -> bool:
        """Refuse: the servers run already."""
        self._refuse(job_file.name, "start")

    def plan(self, job_file: JobFile) -> Plan:
        """Refuse: the servers run already."""
        self._refuse(job_file.name, "start")

    def scale(self, name: str, tasks: Mapping[str, int]) -> NoReturn:
        """Refuse."""
        del tasks
        self._refuse(name, "scale")

    def observe(self, name: str) -> ClusterStatus:
        """Probe all servers at once."""
        self._check(name)
        answers = devices.ask_each(self, name, list(self._job_file))
        return ClusterStatus(
            name=name,
            backend=self.name,
            location="as the job file says",
            target=self._target,
            master=self._job_file.master_task,
            tasks=tuple(self._status(answer) for answer in answers),
        )

    def observer(self, name: str) -> AbstractContextManager[Observer]:
        """Poll the servers; nothing explains their losses."""
        self._check(name)
        return contextlib.nullcontext(PollingObserver(lambda: self.observe(name)))

    def clusters(self) -> list[ClusterStatus]:
        """Return the job file's cluster."""
        return [self.observe(self._job_file.name)]

    def events(self, name: str, *, follow: bool) -> Iterator[Event]:
        """Refuse: nothing records events of the servers."""
        del follow
        self._refuse(name, "show the events of")

    def logs(self, name: str, tasks: Sequence[Task], options: LogOptions) -> Iterator[LogLine]:
        """Refuse: the servers' output is where they were started."""
        del tasks, options
        self._refuse(name, "show the logs of")

    def run(self, name: str, script: Script) -> Outcome:
        """Run a session script on this machine; end it if it waits for a lost server."""
        self._check(name)
        foreground_scripts.check(script)
        cluster = self._job_file.cluster_spec(self._address)
        dials = {str(task): functools.partial(self.dial, name, task) for task in self._job_file}
        variables = texts(self._job_file.master_env)
        return local_scripts.run(script, cluster, self._target, task_monitor.TaskMonitor(dials), variables)

    def locator(self, name: str) -> None:
        """Return None: sessions connect to the servers directly."""
        self._check(name)

    def dial(self, name: str, task: Task) -> socket.socket:
        """Connect to a server."""
        self._check(name)
        return task_monitor.connect(str(task), self._address(task))

    def free_gpus(self) -> str:
        """Return "": nobody knows the machines."""
        return ""

    def restart(self, name: str, task: Task | None) -> NoReturn:
        """Refuse."""
        del task
        self._refuse(name, "restart")

    def execute(self, name: str, task: Task, command: Sequence[str]) -> int:
        """Refuse."""
        del task, command
        self._refuse(name, "run a command beside")

    def stacks(self, name: str, chosen: Sequence[str]) -> NoReturn:
        """Refuse: nobody knows the processes."""
        del chosen
        self._refuse(name, "look into")

    def end_programs(self, name: str, jobs: Sequence[str], *, succeeded: bool) -> None:
        """Refuse."""
        del jobs, succeeded
        self._refuse(name, "end the programs of")

    def delete(self, name: str, *, delete_claims: bool = False) -> NoReturn:
        """Refuse."""
        del delete_claims
        self._refuse(name, "remove")

    def claims(self) -> list[KeptClaim]:
        """Return no claims: only Kubernetes has any."""
        return []

    def _check(self, name: str) -> None:
        if name != self._job_file.name:
            raise NoSuchCluster(f'the job file is that of "{self._job_file.name}", not of "{name}"')

    def _refuse(self, name: str, verb: str) -> NoReturn:
        self._check(name)
        raise InvalidInput(
            f'tfk8s can\'t {verb} the servers of "{name}": its job file gives their addresses, '
            "so they were started elsewhere",
            help="`tfk8s status`, `devices`, `connect` and `submit` work, each with the job file's path",
        )

    def _status(self, answer: devices.TaskDevices) -> TaskStatus:
        phase = Phase.UNKNOWN if answer.error else Phase.READY
        return TaskStatus(task=answer.task, phase=phase, address=self._address(answer.task), reason=answer.reason)
