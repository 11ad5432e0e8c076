"""Servers that were started elsewhere: a job file gives their addresses, and tfk8s only connects to them."""

from __future__ import annotations

import contextlib
import functools
import socket
from contextlib import AbstractContextManager

from tfk8s.backends import devices, foreground_scripts, local_scripts
from tfk8s.backends.foreground_scripts import ForegroundScripts
from tfk8s.backends.protocol import Absent, Observer, PollingObserver
from tfk8s.core import addresses
from tfk8s.core.environment import texts
from tfk8s.core.script import Outcome, Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.errors import InvalidInput, NoSuchCluster
from tfk8s.sessions import task_monitor
from tfk8s.sessions.timing import TIMING

_VERBS = {
    "apply": "start", "plan": "start", "delete": "remove", "events": "show the events of", "logs": "show the logs of",
    "execute": "run a command beside", "stacks": "look into", "usage": "look into",
    "end_programs": "end the programs of",
    "release": "remove", "fetch": "copy files of", "send": "copy files to",
    "suspend": "suspend", "resume": "resume",
}  # fmt: skip


class ExternalBackend:
    """Connects to the servers of one job file, and refuses all that would change or look into them.

    Args:
        job_file: has explicit addresses.
    """

    name = "addresses"
    flags = ""
    timing = TIMING
    shared = None
    history = None

    def __init__(self, job_file: JobFile) -> None:
        self._job_file = job_file
        self._address = addresses.given_address(job_file)
        self._target = f"grpc://{self._address(job_file.master_task)}"
        self.scripts = ForegroundScripts(self._check, self._run)
        self.detached = foreground_scripts.no_detached(self._check)
        self.inside = self.files = self.leases = self.suspending = absent = Absent(self._check, _refusal)
        self.apply, self.plan, self.scale, self.restart, self.delete = (
            absent.apply, absent.plan, absent.scale, absent.restart, absent.delete,
        )  # fmt: skip
        self.events, self.logs = absent.events, absent.logs

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

    def locator(self, name: str) -> None:
        """Return None: sessions connect to the servers directly."""
        self._check(name)

    def dial(self, name: str, task: Task) -> socket.socket:
        """Connect to a server."""
        self._check(name)
        return task_monitor.connect(str(task), self._address(task))

    def _run(self, name: str, script: Script) -> Outcome:
        """Run a session script on this machine; end it if it waits for a lost server."""
        cluster = self._job_file.cluster_spec(self._address)
        dials = {str(task): functools.partial(self.dial, name, task) for task in self._job_file}
        variables = texts(self._job_file.master_env)
        return local_scripts.run(script, cluster, self._target, task_monitor.TaskMonitor(dials), variables)

    def _check(self, name: str) -> None:
        if name != self._job_file.name:
            raise NoSuchCluster(f'the job file is that of "{self._job_file.name}", not of "{name}"')

    def _status(self, answer: devices.TaskDevices) -> TaskStatus:
        phase = Phase.UNKNOWN if answer.error else Phase.READY
        return TaskStatus(task=answer.task, phase=phase, address=self._address(answer.task), reason=answer.reason)


def _refusal(method: str, name: str) -> InvalidInput:
    return InvalidInput(
        f'tfk8s can\'t {_VERBS.get(method, method)} the servers of "{name}": its job file gives their addresses, '
        "so they were started elsewhere",
        help="`tfk8s status`, `devices`, `connect` and `submit` work, each with the job file's path",
    )
