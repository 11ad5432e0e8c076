"""Probes all tasks of a cluster at once, before a session depends on them, and reports problems.

TensorFlow itself waits silently and for ever for a task that does not answer, and does not compare versions. Standard
library only: this file also runs in pods.
"""

from __future__ import annotations

import functools
import json
import socket
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from tfk8s import concurrency
from tfk8s.core import naming
from tfk8s.core.addresses import host_and_port, task_at
from tfk8s.errors import TaskUnreachable, VersionSkew
from tfk8s.sessions.error_names import ProbeResult
from tfk8s.task import probe, wire

_PROBE_TIMEOUT = 4.0
_LOST_TIMEOUT = 1.0  # for a lost task, if all tasks are probed
_BACK_TIMEOUT = 2.0  # for a lost task that may be back
_REACH_TIMEOUT = 1.0
_MAX_THREADS = 64
MAX_SOURCES = 16  # in a larger cluster, only the master is asked for the tasks that it can reach
_MAX_ROWS = 20
Dial = Callable[[str], socket.socket]

_NO_DNS = "failure in name resolution"  # glibc's EAI_AGAIN

_PACKAGES = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu")


class ClusterView:
    """The cluster as a script sees it: `TFK8S_CLUSTER` without the tasks that `TFK8S_WITHOUT` leaves out.

    Args:
        addresses: the address of each task, by its short name; the master first.
        without: tasks that are left out.
        dial: returns a stream to a task; needed if this machine can't connect to the addresses.
        in_pod: whether the tasks have the loopback addresses of a single machine, too.

    Attributes:
        addresses: as given.
        without: as given.
    """

    def __init__(
        self, addresses: Mapping[str, str], without: Iterable[str] = (), dial: Dial | None = None, in_pod: bool = False
    ) -> None:
        self.addresses, self.without = dict(addresses), frozenset(without)
        self._in_pod = in_pod
        self._incarnations: dict[str, int] = {}  # the first one of each task
        self._dial = dial or (
            lambda task: socket.create_connection(host_and_port(self.addresses[task]), _PROBE_TIMEOUT)
        )

    @classmethod
    def of(cls, environment: Mapping[str, str], without: Iterable[str] = (), in_pod: bool = False) -> ClusterView:
        """Return the cluster that a script's environment describes."""
        cluster = json.loads(environment.get("TFK8S_CLUSTER", "{}"))
        addresses = {naming.task(job, i): at for job, tasks in cluster.items() for i, at in enumerate(tasks)}
        return cls(addresses, {*filter(None, environment.get("TFK8S_WITHOUT", "").split(",")), *without}, in_pod=in_pod)

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
    def filters(self) -> list[str]:
        """The `ConfigProto.device_filters` that leave tasks out; empty if all tasks are used."""
        return [_device(task) for task in self._tasks] if self.without else []

    @property
    def _tasks(self) -> list[str]:
        return [task for task in self.addresses if task not in self.without]

    def probe_all(self, lost: Container[str] = ()) -> list[ProbeResult]:
        """Return the answers of all tasks, which are probed at the same time.

        Args:
            lost: tasks that are known to be lost, which get less time.
        """
        answers = concurrency.map_parallel(
            lambda task: self._probe(task, _LOST_TIMEOUT if task in lost else _PROBE_TIMEOUT), self._tasks, _MAX_THREADS
        )
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
        source = source or self.master
        targets = self._tasks
        if not targets or self._can_reach(source, targets if len(targets) <= probe.MAX_NAMED else []):
            return []
        answers = concurrency.map_parallel(lambda task: self._can_reach(source, [task]), targets, _MAX_THREADS)
        unreachable = [task for task, can_reach in zip(targets, answers, strict=True) if not can_reach]
        return [] if source in unreachable else unreachable  # a busy task answers late, even about itself

    def _can_reach(self, source: str, tasks: Sequence[str]) -> bool:
        try:
            with self._dial(source) as stream:
                return probe.can_reach(stream, [_device(task) for task in tasks], _REACH_TIMEOUT)
        except (OSError, wire.ProbeError, TaskUnreachable):
            return True  # the source itself does not answer, which others report

    def devices(self) -> list[probe.Device]:
        """Return the devices of all tasks, as each task reports them.

        Raises:
            TaskUnreachable: a task does not answer.
        """
        devices: list[probe.Device] = []
        for task in self._tasks:
            try:
                with self._dial(task) as stream:
                    devices += probe.get_status(stream, _PROBE_TIMEOUT)
            except (OSError, wire.ProbeError) as error:
                raise TaskUnreachable(f"{task} does not answer: {error}") from error
        return devices

    def _probe(self, task: str, timeout: float) -> ProbeResult:
        address = self.addresses[task]
        try:
            with self._dial(task) as stream:
                devices = probe.get_status(stream, timeout)
            with self._dial(task) as stream:
                version = probe.get_version(stream, _device(task), timeout)
        except TimeoutError:
            return ProbeResult(task, address, error=f"no answer in {timeout:.0f} s (is it stopped, or overloaded?)")
        except (OSError, wire.ProbeError, TaskUnreachable) as error:
            reason = str(getattr(error, "strerror", None) or error)
            return ProbeResult(task, address, error=reason.removeprefix(f"{task} does not answer: "))
        return ProbeResult(task, address, devices[0].incarnation if devices else 0, version)


def require(answers: Sequence[ProbeResult]) -> None:
    """Check that every task answered, and that all have the same version of TensorFlow; the master's answer is first.

    Raises:
        TaskUnreachable: some tasks did not answer; the text has a table of all tasks.
        VersionSkew: the versions differ.
    """
    silent = [answer.task for answer in answers if answer.error]
    if silent:
        raise TaskUnreachable(
            f"of {len(answers)} task{'s' * (len(answers) > 1)}, {_join(silent)} "
            f"{'does' if len(silent) == 1 else 'do'} not answer:\n{table(answers)}",
            help=_advice(answers, silent),
        )
    versions = by_version(answers)
    if len({series(version) for version in versions}) > 1:
        listed = "; ".join(f"{version}: {_join(tasks)}" for version, tasks in versions.items())
        raise VersionSkew(
            f"the tasks have different versions of TensorFlow ({listed}), which TensorFlow does not support",
            help="give all jobs the same image, or install the same version",
        )


def _advice(answers: Sequence[ProbeResult], silent: Sequence[str]) -> str:
    if any(_NO_DNS in answer.error for answer in answers):
        return "names can't be looked up; check the cluster's DNS: kubectl get pods -n kube-system -l k8s-app=kube-dns"
    advice = "`tfk8s status` shows the tasks, `tfk8s logs` their output"
    if answers[0].task in silent:  # every script needs the master
        return advice
    return f"{advice}; if the script does not use {silent[0]}, add --without {silent[0]}"


def unreachable(pairs: Mapping[str, Sequence[str]]) -> str:
    """Return the result of `ClusterView.unreachable_pairs` in words."""
    sources: dict[tuple[str, ...], list[str]] = {}
    for source, tasks in pairs.items():
        sources.setdefault(tuple(tasks), []).append(source)
    return "; ".join(_unreachable(same, tasks) for tasks, same in sources.items())


def _unreachable(sources: Sequence[str], tasks: Sequence[str]) -> str:
    are = "are" if len(tasks) > 1 else "is"
    they, have = ("they", "have") if len(sources) > 1 else (sources[0], "has")
    addresses = "stale addresses for them" if len(tasks) > 1 else "a stale address for it"
    return (
        f"{_join(sources)} can't reach {_join(tasks)}, although {_join(tasks)} {are} running: "
        f"{they} {have} {addresses}, or none"
    )


def warning(answers: Sequence[ProbeResult], own: str) -> str | None:
    """Return the warning if this process' TensorFlow has another version than the tasks; None if it matches."""
    others = [version for version in by_version(answers) if series(version) != series(own)]
    if not own or not others:
        return None
    return (
        f"this script has TensorFlow {own}, the tasks have {others[0]}: TensorFlow does not support different versions"
    )


def warn(answers: Sequence[ProbeResult]) -> None:
    """Print the `warning` on standard error, once in this process."""
    if text := warning(answers, own_version()):
        _print_once(f"warning: {text}")


@functools.cache
def _print_once(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for the script's user


def own_version() -> str:
    """Return the version of this interpreter's TensorFlow, without an import; "" if unknown."""
    if "tensorflow" in sys.modules:
        return str(getattr(sys.modules["tensorflow"], "__version__", ""))
    import importlib.metadata  # takes 12 ms, and the commands that wait for a cluster ask for no version

    for package in _PACKAGES:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def by_version(answers: Sequence[ProbeResult]) -> dict[str, list[str]]:
    """Return the tasks of each known version."""
    versions: dict[str, list[str]] = {}
    for answer in answers:
        if answer.version:
            versions.setdefault(answer.version, []).append(answer.task)
    return versions


def series(version: str) -> str:
    """Return the part of a version that must be the same, "2.21"; patch releases keep their formats."""
    return ".".join(version.split(".")[:2])


def table(answers: Sequence[ProbeResult]) -> str:
    """Return a line for each task; of many tasks, those that do not answer."""
    shown = [answer for answer in answers if answer.error or len(answers) <= _MAX_ROWS][:_MAX_ROWS]
    width, far = (max(len(getattr(answer, key)) for answer in shown) for key in ("task", "address"))
    lines = [f"  {answer.task:{width}}  {answer.address:{far}}  {answer.error or 'answers'}" for answer in shown]
    more = sum(bool(answer.error) for answer in answers) - sum(bool(answer.error) for answer in shown)
    return "\n".join((*lines, f"  and {more} more") if more else lines)


def _join(tasks: Sequence[str]) -> str:
    return ", ".join(tasks) if len(tasks) <= 4 else f"{', '.join(tasks[:3])} and {len(tasks) - 3} more"


def _device(task: str) -> str:
    job, _, index = task.partition("/")
    return naming.device(job, int(index))
