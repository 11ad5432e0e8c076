"""Waits until a cluster is ready, until the run of its programs has ended, or until it never will be ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from tfk8s import polling, spans
from tfk8s.backends import devices, suspended
from tfk8s.backends.protocol import NODE_TIMEOUT, Backend
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.core.task_names import format_tasks, parse_excluded
from tfk8s.errors import ClusterError, NoSuchCluster, TaskError
from tfk8s.sessions.cluster.questions import Questions
from tfk8s.sessions.preflight import unreachable

OnChange = Callable[[ClusterStatus], None]
TIMEOUT = 120.0
_MAX_REASONS = 5


def wait_until_ready(
    backend: Backend,
    name: str,
    timeout: float,
    on_change: OnChange | None = None,
    before: Mapping[Task, TaskStatus] | None = None,
    without: Collection[str] = (),
) -> ClusterStatus:
    """Wait until every server of a cluster is ready and answers the master, and every program runs.

    Args:
        timeout: in seconds. While a node is started or pulls an image, the default becomes `NODE_TIMEOUT`.
        on_change: called with the first status, and with each status that differs from the one before.
        before: restarting tasks with their former status. Each counts as ready once its status has changed.
        without: tasks not to wait for ("worker/3"). The others are then probed directly, not by the master.

    Returns:
        The status of the ready cluster, or of a cluster whose run of programs has ended.

    Raises:
        InvalidInput: an excluded task does not exist, or is the master.
        WaitTimeout: the text names the missing tasks, and the reasons.
        ClusterError: a task fails repeatedly, or the cluster is lost.
    """
    excluded = excluded_tasks(backend, name, without)
    with spans.part("wait for tasks") as part, backend.observer(name) as observer:

        def observe() -> ClusterStatus:
            status = observer.status()
            part[spans.TASKS] = len(status.tasks)
            return status

        readiness = Readiness(backend, name, observe, on_change, before or {}, excluded)
        return polling.wait_until(readiness.poll, readiness.missing, lambda: readiness.limit(timeout))


def excluded_tasks(backend: Backend, name: str, words: Collection[str]) -> list[Task]:
    """Return the tasks that sessions leave out, from words such as "worker/3".

    Raises:
        InvalidInput: a task does not exist, or is the master.
    """
    if not words:
        return []
    status = backend.observe(name)
    return parse_excluded(words, [task.task for task in status.tasks], status.master)


class Readiness:
    """The state of one wait; the arguments are those of `wait_until_ready`, and `observe` returns the status now."""

    def __init__(
        self,
        backend: Backend,
        name: str,
        observe: Callable[[], ClusterStatus],
        on_change: OnChange | None,
        before: Mapping[Task, TaskStatus],
        without: Collection[Task],
    ) -> None:
        self._backend, self._name, self._observe, self._on_change = backend, name, observe, on_change
        self._before, self._without = before, without
        self._status: ClusterStatus | None = None
        self._restarts: dict[Task, int] = {}
        self._silence: TaskError | None = None
        self._is_silence_reported = False
        self._questions = Questions()
        self._cut_off = ""  # the tasks that the master could not reach, in words
        self._changed_at = 0.0
        self._needs_node = False
        self._pulls: set[Task] = set()  # of images, under way or complete, but not failed

    def poll(self) -> ClusterStatus | None:
        """Return the status of a ready cluster; None if the cluster is not ready yet.

        Raises:
            ClusterError: the cluster will never be ready.
        """
        status = self._get_status()
        if status != self._status:
            self._status, self._changed_at, self._is_silence_reported = status, time.monotonic(), False
            self._cut_off, self._questions = "", Questions()
            if self._on_change is not None:
                self._on_change(status)
        self._needs_node = self._needs_node or any(task.node_is_starting for task in status.tasks)
        self._follow_pulls(status)
        self._require_hope(status)
        if not all(map(self._is_new, status.tasks)):
            return None
        if status.exit_code is not None:
            return status
        if not all(task.is_up for task in status.tasks):
            return None
        try:
            self._probe(status)
        except TaskError as error:
            self._silence = error
            if isinstance(error, devices.MasterCutOff):
                self._cut_off = str(error)
            self._report_silence(status)
            return None
        return status

    def limit(self, timeout: float) -> float:
        """Return the timeout; the default grows once a node is being started, or pulls an image."""
        return NODE_TIMEOUT if (self._needs_node or self._pulls) and timeout == TIMEOUT else timeout

    def _follow_pulls(self, status: ClusterStatus) -> None:
        for task in status.tasks:
            if task.is_pulling:
                self._pulls.add(task.task)
            elif task.phase in (Phase.PENDING, Phase.FAILED) and task.reason:  # the pull has failed
                self._pulls.discard(task.task)

    def _report_silence(self, status: ClusterStatus) -> None:
        """Give the master a reason, once, if all tasks have been ready for a while and it does not answer for them."""
        is_recent = time.monotonic() - self._changed_at < polling.TELL_SECONDS
        if self._on_change is None or self._is_silence_reported or is_recent:
            return
        reason = self._why_silent().removeprefix(f"{status.master} ")
        tasks = (replace(task, reason=reason) if task.task == status.master else task for task in status.tasks)
        self._on_change(replace(status, tasks=tuple(tasks)))
        self._is_silence_reported = True

    def _probe(self, status: ClusterStatus) -> None:
        """Raise a TaskError if a task does not answer. The master is asked for all, unless tasks are left out."""
        if self._without:
            tasks = [task.task for task in status.tasks if task.has_server]
            devices.require_all(devices.ask_each(self._backend, self._name, tasks))
        else:
            devices.require_servers(self._backend, status, self._questions)

    def _get_status(self) -> ClusterStatus:
        try:
            status = self._observe()
            return replace(status, tasks=tuple(task for task in status.tasks if task.task not in self._without))
        except NoSuchCluster as error:
            if self._status is None:
                raise
            raise ClusterError(f'cluster "{self._name}" was removed by somebody while it came up') from error

    def missing(self) -> str:
        """Return what the cluster lacks, as words after "waited for"."""
        assert self._status is not None
        late = [task for task in self._status.tasks if not task.is_up or not self._is_new(task)]
        if late:
            by_state: dict[str, list[Task]] = {}
            for task in late:
                by_state.setdefault(task.state, []).append(task.task)
            reasons = [
                f"{format_tasks(tasks)} {'is' if len(tasks) == 1 else 'are'} {state}"
                for state, tasks in by_state.items()
            ]
        elif self._cut_off:  # the master may wait for a name's address, and answer nobody meanwhile
            reasons = [self._cut_off]
        else:
            servers = [task.task for task in self._status.tasks if task.has_server]
            answers = devices.ask_each(self._backend, self._name, servers)
            reasons = [answer.error for answer in answers if answer.error] or [self._why_silent()]
        more = f"; and {len(reasons) - _MAX_REASONS} more" if len(reasons) > _MAX_REASONS else ""
        return f'cluster "{self._name}" to be ready: {"; ".join(reasons[:_MAX_REASONS])}{more}'

    def _why_silent(self) -> str:
        """Return which running tasks the master can't reach, in words; otherwise its error."""
        assert self._status is not None
        if not self._cut_off:
            view = devices.view(self._backend, self._status, questions=self._questions)
            missing = view.unreachable()
            self._cut_off = unreachable({str(self._status.master): missing}) if missing else ""
        return self._cut_off or str(self._silence)

    def _is_new(self, task: TaskStatus) -> bool:
        old = self._before.get(task.task)
        return old is None or (old.runs_on, old.restarts, old.since) != (task.runs_on, task.restarts, task.since)

    def _require_hope(self, status: ClusterStatus) -> None:
        """Raise a ClusterError if the cluster will never be ready."""
        suspended.require_awake(self._name, status.suspended, self._backend.flags)
        if status.reason:
            raise ClusterError(status.reason)
        for task in status.tasks:
            first = self._restarts.setdefault(task.task, task.restarts)
            is_again = task.phase is Phase.FAILED and task.restarts > first and not task.is_program
            if is_again or (task.has_given_up and self._is_new(task)):
                end = "was started again and ended again" if is_again else "has ended"
                failure = f"{task.task} {end}: {task.reason}"
                raise ClusterError(
                    f'cluster "{self._name}" can\'t come up: {failure}',
                    help=f"tfk8s logs{self._backend.flags} {self._name} {task.task} shows what it wrote",
                )
