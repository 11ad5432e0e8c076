"""The run of a cluster's programs: waits for the end, and checks the success."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from tfk8s import polling, spans
from tfk8s.backends.protocol import Backend
from tfk8s.cluster.gpus import require_gpus
from tfk8s.cluster.readiness import OnChange
from tfk8s.cluster.removal_notice import RemovalNotice
from tfk8s.core.job_kinds import program_jobs
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus, Phase
from tfk8s.core.task_names import format_tasks
from tfk8s.errors import ClusterError, InvalidInput, NoSuchCluster, Tfk8sError
from tfk8s.log import log

if TYPE_CHECKING:
    from tfk8s.cluster.handle import Cluster

_REPLACED = 3.0  # seconds for which a `restart`, or an `up` with other programs, may have deleted the only Job
_LONG_WAIT = 60.0  # after which a program that still runs may wait for one that has ended


def wait_for_programs(
    backend: Backend,
    name: str,
    timeout: float | None = None,
    on_change: OnChange | None = None,
    on_end: Callable[[], None] = lambda: None,
    *,
    clock: polling.Clock = time.monotonic,
) -> ClusterStatus:
    """Wait until the run of a cluster's programs has ended, and end the other programs; return the status then.

    Args:
        timeout: in seconds; None waits without a limit.
        on_change: called with the first status, and with each status that differs from the one before.
        on_end: called at the end of the run, before the other programs are ended.

    Raises:
        InvalidInput: the cluster has no programs.
        WaitTimeout: the run has not ended; the text names the programs that run.
        ClusterError: the cluster is lost or was removed.
    """
    with spans.part("wait for programs") as part, RemovalNotice(backend, name), backend.observer(name) as observer:
        wait = _RunWait(name, observer.status, on_change, clock)
        status = polling.wait_until(wait.poll, wait.missing, math.inf if timeout is None else timeout)
        part |= {spans.TASKS: len(status.tasks), spans.EXIT_CODE: status.exit_code or 0}
    on_end()
    _end_others(backend, status)
    return status


def _end_others(backend: Backend, status: ClusterStatus) -> None:
    """End the programs that still run after the end of their run.

    Each backend ends the job that has decided the run.
    """
    failed = status.failed_program
    decisive = {failed.task.job} if failed else {task.job for task in status.success}
    running = (task for task in status.tasks if task.is_program and task.phase not in (Phase.SUCCEEDED, Phase.FAILED))
    if not (jobs := sorted({task.task.job for task in running} - decisive)):
        return
    try:
        backend.inside.end_programs(status.name, jobs, succeeded=failed is None)
    except Tfk8sError as error:  # such as a user who may not change Jobs
        log.warning("the programs of %s continue after the end of the run: %s", ", ".join(jobs), error)


class RunEvents(Protocol):
    """The caller's part of `run`: to show progress, and to follow the programs."""

    def changed(self, status: ClusterStatus) -> None:
        """Called with each status while the cluster starts."""

    def is_up(self, cluster: Cluster, status: ClusterStatus) -> None:
        """Called when the cluster is up."""

    def follow(self, cluster: Cluster, on_end: Callable[[], None]) -> int:
        """Wait until the run of the programs has ended, as `wait_for_programs` does; return its exit code."""

    def ends(self) -> None:
        """Called before the cluster is removed."""


class _RunWait:
    """The state of one wait."""

    def __init__(
        self, name: str, observe: Callable[[], ClusterStatus], on_change: OnChange | None, clock: polling.Clock
    ) -> None:
        self._name, self._observe, self._on_change, self._clock = name, observe, on_change, clock
        self._status: ClusterStatus | None = None
        self._first_end: float | None = None
        self._gone_since: float | None = None
        self._has_warned = False

    def poll(self) -> ClusterStatus | None:
        try:
            status = self._observe()
        except NoSuchCluster as error:
            if self._status is None:
                raise
            now = self._clock()
            self._gone_since = now if self._gone_since is None else self._gone_since
            if now - self._gone_since < _REPLACED:
                return None
            raise ClusterError(f'cluster "{self._name}" was removed while its programs ran') from error
        self._gone_since = None
        if not status.success:
            raise InvalidInput(
                f'cluster "{self._name}" has no programs to wait for: its tasks are servers',
                help="tfk8s submit runs a script in it",
            )
        if status != self._status and self._on_change is not None:
            self._on_change(status)
        self._status = status
        if status.exit_code is not None and (status.suspended or not status.reason):  # a suspension changes no result
            return status
        if status.reason:
            raise ClusterError(status.reason)
        self._warn_of_ended([task.task for task in status.tasks if task.exit_code == 0])
        return None

    def _warn_of_ended(self, ended: Sequence[Task]) -> None:
        """Warn once that programs still run long after another has ended: TensorFlow waits for a task that is gone."""
        if not ended:
            self._first_end = None
            return
        now = self._clock()
        self._first_end = now if self._first_end is None else self._first_end
        if self._has_warned or now - self._first_end < _LONG_WAIT:
            return
        self._has_warned = True
        log.warning(
            "%s ended with exit code 0 over %.0f s ago; %s running, and may wait for an ended task: set run.timeout "
            "for an end",
            format_tasks(ended),
            _LONG_WAIT,
            self._running(),
        )

    def missing(self) -> str:
        return f'the programs of cluster "{self._name}" to end: {self._running()} running'

    def _running(self) -> str:
        """Return the tasks whose programs run, with a verb."""
        assert self._status is not None
        running = [task.task for task in self._status.tasks if task.is_program and task.exit_code is None]
        return f"{format_tasks(running)} {'is' if len(running) == 1 else 'are'}"


def require_programs(job_file: JobFile) -> None:
    """Raise an InvalidInput if no job of a job file has a program."""
    if not program_jobs(job_file):
        raise InvalidInput(
            f'the job file "{job_file.name}" has no programs',
            help="name a session script: tfk8s run FILE SCRIPT; or add a program to a job",
        )


def failure(status: ClusterStatus) -> str:
    """Return why the run has failed, or "" if the run goes on or has succeeded."""
    task = status.failed_program
    if task is None:
        return ""
    times = "once" if task.restarts == 1 else f"{task.restarts} times"
    return f"{task.task}{f', restarted {times},' if task.restarts else ''} {task.reason}"


def require_up(backend: Backend, status: ClusterStatus) -> None:
    """Check a cluster for which `wait_until_ready` has waited.

    Raises:
        ClusterError: the run of its programs has failed, or TensorFlow does not see the GPUs of a task.
        TaskUnreachable: a server does not answer any more.
    """
    require_gpus(backend, status)
    if text := failure(status):
        raise ClusterError(
            f'the run of cluster "{status.name}" has failed: {text}',
            help=f"tfk8s logs{backend.flags} {status.name} shows the output of the programs",
        )
