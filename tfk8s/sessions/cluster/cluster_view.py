"""The cluster as a script sees it: its tasks, and their answers. Standard library only: this file also runs in pods."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from tfk8s import concurrency
from tfk8s.core import naming
from tfk8s.core.addresses import host_and_port, task_at
from tfk8s.errors import TaskUnreachable
from tfk8s.sessions.cluster import elastic
from tfk8s.sessions.cluster.questions import Questions
from tfk8s.sessions.error_names import ProbeResult
from tfk8s.task import probe, wire

PROBE_TIMEOUT = 4.0
_LOST_TIMEOUT = 1.0  # for a lost task, if all tasks are probed
_BACK_TIMEOUT = 2.0  # for a lost task that may be back
_SHARE = 3  # a task of a cluster may answer so many times later than the others
REACH_TIMEOUT = 1.0
_MAX_THREADS = 64
MAX_OPEN = 16  # tasks that a task is asked for one by one
MAX_SOURCES = 16  # in a larger cluster, only the master is asked for the tasks that it can reach

Dial = Callable[[str], socket.socket]


class ClusterView:
    """The cluster as a script sees it: `TFK8S_CLUSTER` without the tasks that `TFK8S_WITHOUT` leaves out.

    Args:
        addresses: the address of each task, by its short name; the master first.
        without: tasks that are left out.
        dial: returns a stream to a task; needed if this machine can't connect to the addresses.
        in_pod: whether the tasks have the loopback addresses of a single machine, too.
        forwarded: whether the tasks can't use the addresses, which are those of forwards. The forwards bring the
            ClusterSpec of elastic tasks.
        is_elastic: whether each session brings the ClusterSpec; None asks the master.
        questions: the questions that are open, if they outlive this view.

    Attributes:
        addresses: as given.
        without: as given.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        without: Iterable[str] = (),
        dial: Dial | None = None,
        in_pod: bool = False,
        forwarded: bool = False,
        is_elastic: bool | None = None,
        questions: Questions | None = None,
    ) -> None:
        self.addresses, self.without = dict(addresses), frozenset(without)
        self._in_pod, self._forwarded = in_pod, forwarded
        self._is_elastic = is_elastic
        self._questions = questions or Questions()
        self._incarnations: dict[str, int] = {}  # the first one of each task
        self._is_far = dial is not None
        self._dial = dial or (lambda task: socket.create_connection(host_and_port(self.addresses[task]), PROBE_TIMEOUT))

    @classmethod
    def of(cls, environment: Mapping[str, str], without: Iterable[str] = (), in_pod: bool = False) -> ClusterView:
        """Return the cluster that a script's environment describes."""
        cluster = json.loads(environment.get("TFK8S_CLUSTER", "{}"))
        addresses = {naming.task(job, i): at for job, tasks in cluster.items() for i, at in enumerate(tasks)}
        without = {*filter(None, environment.get("TFK8S_WITHOUT", "").split(",")), *without}
        return cls(addresses, without, in_pod=in_pod, forwarded=naming.FORWARDED in environment)

    @property
    def master(self) -> str:
        """The task that sessions connect to."""
        return next(iter(self.addresses), "")

    @property
    def cluster(self) -> dict[str, list[str]]:
        """The ClusterSpec: the addresses of all tasks, by job."""
        cluster: dict[str, list[str]] = {}
        for task, address in self.addresses.items():
            cluster.setdefault(task.partition("/")[0], []).append(address)
        return cluster

    def task_at(self, target: str) -> str:
        """Return the task that a session's target leads to; "" if the target is no task's."""
        return task_at(target, self.addresses, in_pod=self._in_pod)

    @property
    def is_elastic(self) -> bool:
        """True if each session brings the ClusterSpec: the master's server knows only itself."""
        if self._is_elastic is None and self.master:
            with contextlib.suppress(OSError, wire.ProbeError, TaskUnreachable), self._dial(self.master) as stream:
                self._is_elastic = elastic.is_elastic(probe.get_status(stream, PROBE_TIMEOUT))
        return bool(self._is_elastic)

    @property
    def brings_cluster(self) -> bool:
        """True if this process has to give sessions the ClusterSpec."""
        return self.is_elastic and not self._forwarded

    @property
    def filters(self) -> list[str]:
        """The `ConfigProto.device_filters` that leave tasks out; empty if all tasks are used."""
        return [elastic.device(task) for task in self._tasks] if self.without else []

    @property
    def _tasks(self) -> list[str]:
        return [task for task in self.addresses if task not in self.without]

    def probe_all(self, lost: Container[str] = ()) -> list[ProbeResult]:
        """Return the answers of all tasks, of which many are probed at the same time.

        Args:
            lost: tasks that are known to be lost, which get less time.
        """
        at_once = concurrency.servers_at_once(_MAX_THREADS)
        silent: list[str] = []
        # Of those that answer: connections through others take longer.
        slowest = (_BACK_TIMEOUT if self._is_far else _LOST_TIMEOUT) / _SHARE

        def ask(task: str) -> ProbeResult:
            nonlocal slowest
            is_short = task in lost or len(silent) >= at_once  # so that many silent tasks take little longer than few
            start = time.monotonic()
            answer = self._probe(task, min(PROBE_TIMEOUT, _SHARE * slowest) if is_short else PROBE_TIMEOUT)
            if answer.error:
                silent.append(task)
            else:
                slowest = max(slowest, time.monotonic() - start)
            return answer

        answers = concurrency.map_parallel(ask, self._tasks, at_once)
        for answer in answers:
            if not answer.error:
                self._incarnations.setdefault(answer.task, answer.incarnation)
        return answers

    def answers(self, task: str) -> bool:
        """Return whether a task answers now."""
        return task in self.addresses and not self._probe(task, _BACK_TIMEOUT).error

    def is_replaced(self, task: str) -> bool:
        """Return whether a task answers now, with another server than at the first probe."""
        answer = self._probe(task, _BACK_TIMEOUT)
        return not answer.error and answer.incarnation != self._incarnations.get(task, answer.incarnation)

    def unreachable_pairs(self) -> dict[str, list[str]]:
        """Return the tasks that can't reach others which answer here, with these; in a large cluster, the master only.

        A session would wait for the tasks that the master can't reach. A step would wait 20 seconds for a task that
        another one can't reach.
        """
        sources = self._tasks if len(self._tasks) <= MAX_SOURCES else [self.master]
        targets = concurrency.map_parallel(self.unreachable, sources, MAX_SOURCES)
        return {source: tasks for source, tasks in zip(sources, targets, strict=True) if tasks}

    def unreachable(self, source: str | None = None) -> list[str]:
        """Return the tasks that a task, by default the master, can't reach, although they answer here."""
        source, missing = source or self.master, self._questions.missing
        if self.reaches_all(source):
            missing.pop(source, None)
            return []
        reached: set[str] = set()
        unreachable: set[str] = set()

        def ask(task: str) -> None:
            if len(unreachable) < MAX_OPEN:
                (reached if self._can_reach(source, [task]) else unreachable).add(task)

        targets = missing.get(source, self._tasks)
        concurrency.map_parallel(ask, targets, MAX_OPEN)
        missing[source] = [task for task in targets if task not in reached]
        # A busy task answers late, even about itself.
        return [] if source in unreachable else [task for task in targets if task in unreachable]

    def close_questions(self) -> None:
        """Give up the questions that tasks have not answered."""
        self._questions.close()

    def reaches_all(self, source: str | None = None) -> bool:
        """Return whether a task, by default the master, answers in time that it can reach all tasks."""
        source, tasks = source or self.master, self._tasks
        if not tasks:
            return True
        if not self.brings_cluster:
            return self._can_reach(source, tasks if len(tasks) <= probe.MAX_NAMED else [])
        size = probe.MAX_NAMED - 1  # and the source
        parts = [tasks[start : start + size] for start in range(0, len(tasks), size)]
        return all(concurrency.map_parallel(lambda part: self._can_reach(source, part), parts, _MAX_THREADS))

    def _can_reach(self, source: str, tasks: Sequence[str]) -> bool:
        # The source too: see `elastic.session_fields`.
        named = dict.fromkeys((source, *tasks)) if tasks else {}
        cluster = {task: self.addresses[task] for task in named} if self.brings_cluster else {}
        more = elastic.session_fields(source, cluster) if cluster else b""
        request = probe.reach_request([*map(elastic.device, named)], more)
        dial = functools.partial(self._dial, source)
        try:
            self._questions.ask((source, *tasks), dial, wire.CREATE_SESSION, REACH_TIMEOUT, request)
        except TimeoutError:
            return False
        except (OSError, wire.ProbeError, TaskUnreachable):
            pass  # the refusal, or the source itself does not answer, which others report
        return True

    def clear_containers(self, tasks: Sequence[str], containers: Sequence[str | bytes]) -> None:
        """Remove the variables in containers from tasks; no container means the default one.

        Raises:
            TaskUnreachable: a task does not answer.
        """

        def clear(task: str) -> None:
            try:
                with self._dial(task) as stream:
                    probe.clear_containers(stream, containers, PROBE_TIMEOUT)
            except (OSError, wire.ProbeError) as error:
                raise TaskUnreachable(f"{task} does not answer: {error}") from error

        concurrency.map_parallel(clear, tasks, concurrency.servers_at_once(_MAX_THREADS))

    def devices(self) -> list[probe.Device]:
        """Return the devices of all tasks, as each task reports them.

        Raises:
            TaskUnreachable: a task does not answer.
        """
        devices: list[probe.Device] = []
        for task in self._tasks:
            try:
                with self._dial(task) as stream:
                    devices += elastic.rename(probe.get_status(stream, PROBE_TIMEOUT), task)
            except (OSError, wire.ProbeError) as error:
                raise TaskUnreachable(f"{task} does not answer: {error}") from error
        return devices

    def _probe(self, task: str, timeout: float) -> ProbeResult:
        address = self.addresses[task]
        try:
            with self._dial(task) as stream:
                devices = probe.get_status(stream, timeout)
            with self._dial(task) as stream:
                version = probe.get_version(stream, elastic.device(task), timeout)
        except TimeoutError:
            return ProbeResult(task, address, error=f"no answer in {timeout:.0f} s (is it stopped, or overloaded?)")
        except (OSError, wire.ProbeError, TaskUnreachable) as error:
            reason = str(getattr(error, "strerror", None) or error)
            return ProbeResult(task, address, error=reason.removeprefix(f"{task} does not answer: "))
        if task == self.master:
            self._is_elastic = elastic.is_elastic(devices)
        return ProbeResult(task, address, devices[0].incarnation if devices else 0, version)
