"""When a cluster is ready, and when waiting for that is no use."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from tfk8s import polling
from tfk8s.backends import devices
from tfk8s.backends.protocol import Backend
from tfk8s.core.spec import EVALUATOR, Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.core.task_names import format_tasks
from tfk8s.errors import ClusterError, NoSuchCluster, TaskError
from tfk8s.sessions.preflight import ClusterView, not_reached

OnChange = Callable[[ClusterStatus], None]
_NAMED = 5


def wait_until_ready(
    backend: Backend,
    name: str,
    timeout: float,
    on_change: OnChange | None = None,
    before: Mapping[Task, TaskStatus] | None = None,
    without: Collection[Task] = (),
) -> ClusterStatus:
    """Wait until every task of a cluster is ready and answers the master; return what is there then.

    Args:
        backend: where the cluster is.
        name: the cluster's.
        timeout: in seconds.
        on_change: called with what is there at first, and whenever it has changed.
        before: tasks that are being started anew, as they were; they count as ready once they are other ones.
        without: tasks that are not waited for; then the others are asked each by itself.

    Raises:
        WaitTimeout: says which tasks are missing, and why.
        ClusterError: a task ends again and again, or the cluster is lost.
    """
    with backend.observer(name) as observer:
        readiness = Readiness(backend, name, observer.status, on_change, before or {}, without)
        return polling.wait_until(readiness.look, readiness.missing, timeout)


class Readiness:
    """What is known of a cluster on its way to be ready."""

    def __init__(
        self,
        backend: Backend,
        name: str,
        observe: Callable[[], ClusterStatus],
        on_change: OnChange | None,
        before: Mapping[Task, TaskStatus],
        without: Collection[Task],
    ) -> None:
        self._backend, self._name, self._look_at, self._on_change = backend, name, observe, on_change
        self._before, self._without = before, without
        self._status: ClusterStatus | None = None
        self._restarts: dict[Task, int] = {}
        self._silence: TaskError | None = None
        self._told_of_silence = False
        self._seen = 0.0  # when what is there was seen first

    def look(self) -> ClusterStatus | None:
        """Return what is there if it is ready.

        Raises:
            ClusterError: it never will be.
        """
        status = self._observe()
        if status != self._status:
            self._status, self._seen, self._told_of_silence = status, time.monotonic(), False
            if self._on_change is not None:
                self._on_change(status)
        self._check_hope(status)
        if status.phase is not Phase.READY or not all(map(self._is_new, status.tasks)):
            return None
        try:
            self._ask(status)
        except TaskError as error:
            self._silence = error
            self._tell_of_silence(status)
            return None
        return status

    def _tell_of_silence(self, status: ClusterStatus) -> None:
        """Give the master a reason, once, where all tasks are ready for a while and it does not answer for them."""
        if self._on_change is None or self._told_of_silence or time.monotonic() - self._seen < polling.TELL_SECONDS:
            return
        reason = self._why_silent().removeprefix(f"{status.master} ")
        tasks = (replace(one, reason=reason) if one.task == status.master else one for one in status.tasks)
        self._on_change(replace(status, tasks=tuple(tasks)))
        self._told_of_silence = True

    def _ask(self, status: ClusterStatus) -> None:
        """Ask whether the tasks answer: the master for all, but where one may not answer it."""
        if self._without:
            tasks = [task.task for task in status.tasks]
            devices.require_all(devices.ask_each(self._backend, self._name, tasks))
        else:
            devices.ask_master(self._backend, status)

    def _observe(self) -> ClusterStatus:
        try:
            status = self._look_at()
            return replace(status, tasks=tuple(task for task in status.tasks if task.task not in self._without))
        except NoSuchCluster as error:
            if self._status is None:
                raise
            raise ClusterError(f'cluster "{self._name}" was removed by somebody while it came up') from error

    def missing(self) -> str:
        """Return what is not as it should be, to be read after "waited for"."""
        assert self._status is not None
        late = [task for task in self._status.tasks if task.phase is not Phase.READY or not self._is_new(task)]
        if late:
            alike: dict[str, list[Task]] = {}
            for task in late:
                alike.setdefault(task.state, []).append(task.task)
            reasons = [
                f"{format_tasks(tasks)} {'is' if len(tasks) == 1 else 'are'} {state}" for state, tasks in alike.items()
            ]
        else:
            answers = devices.ask_each(self._backend, self._name, [task.task for task in self._status.tasks])
            reasons = [answer.error for answer in answers if answer.error] or [self._why_silent()]
        more = f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
        return f'cluster "{self._name}" to be ready: {"; ".join(reasons[:_NAMED])}{more}'

    def _why_silent(self) -> str:
        """Return which tasks that answer the master does not reach, in words; else what it said."""
        assert self._status is not None
        tasks = {str(one.task): one.task for one in self._status.tasks if one.task.job != EVALUATOR}
        master = str(self._status.master)
        addresses = dict.fromkeys((master, *tasks), "")
        missing = ClusterView(addresses, dial=lambda task: self._backend.dial(self._name, tasks[task])).unreached()
        return not_reached({master: missing}) if missing else str(self._silence)

    def _is_new(self, task: TaskStatus) -> bool:
        old = self._before.get(task.task)
        return old is None or (old.runs_on, old.restarts, old.since) != (task.runs_on, task.restarts, task.since)

    def _check_hope(self, status: ClusterStatus) -> None:
        if status.reason:
            raise ClusterError(status.reason)
        ended = list(self._ended_again(status.tasks))
        if ended:
            task, reason = ended[0].task, ended[0].reason
            raise ClusterError(
                f'cluster "{self._name}" can\'t come up: {task} was started again and ended again: {reason}',
                help=f"tfk8s logs{self._backend.flags} {self._name} {task} shows what it wrote",
            )

    def _ended_again(self, tasks: Iterable[TaskStatus]) -> Iterable[TaskStatus]:
        """Yield tasks that ended after they had been started again while we looked."""
        for task in tasks:
            first = self._restarts.setdefault(task.task, task.restarts)
            if task.phase is Phase.FAILED and task.restarts > first:
                yield task
