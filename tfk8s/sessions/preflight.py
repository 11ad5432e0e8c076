"""Asks all tasks of a cluster at once, before a session depends on them, and tells what does not fit.

TensorFlow itself waits without a word, and without end, for a task that does not answer, and does not compare versions.
Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from tfk8s import concurrency
from tfk8s.core import naming
from tfk8s.core.addresses import host_and_port
from tfk8s.errors import TaskUnreachable, VersionSkew
from tfk8s.sessions.error_names import ProbeResult
from tfk8s.task import probe, wire

ANSWER_SECONDS = 4.0
_AGAIN_SECONDS = 2.0  # for one that was told to be lost
_LOST_SECONDS = 1.0
_REACH_SECONDS = 1.0
_AT_ONCE = 64
_MOST_ASKERS = 16  # each of which asks all others
_ROWS = 20
Dial = Callable[[str], socket.socket]

_NO_DNS = "failure in name resolution"  # glibc's EAI_AGAIN

_PACKAGES = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu")


class ClusterView:
    """The cluster as a script sees it: `TFK8S_CLUSTER`, but for the tasks that `TFK8S_WITHOUT` leaves out.

    Attributes:
        addresses: where each task listens, by its short name; the master first.
        without: tasks that are left out.
    """

    def __init__(self, addresses: Mapping[str, str], without: Iterable[str] = (), dial: Dial | None = None) -> None:
        """Look at a cluster; `dial` returns a stream to a task where its address does not lead there from here."""
        self.addresses, self.without = dict(addresses), frozenset(without)
        self._first: dict[str, int] = {}  # incarnations
        self._dial = dial or (
            lambda task: socket.create_connection(host_and_port(self.addresses[task]), ANSWER_SECONDS)
        )

    @classmethod
    def of(cls, environment: Mapping[str, str], without: Iterable[str] = ()) -> ClusterView:
        """Return the one that a script's environment describes."""
        cluster = json.loads(environment.get("TFK8S_CLUSTER", "{}"))
        addresses = {naming.task(job, i): at for job, tasks in cluster.items() for i, at in enumerate(tasks)}
        return cls(addresses, {*filter(None, environment.get("TFK8S_WITHOUT", "").split(",")), *without})

    @property
    def master(self) -> str:
        """The task that sessions connect to."""
        return next(iter(self.addresses), "")

    @property
    def filters(self) -> list[str]:
        """What `ConfigProto.device_filters` must be where tasks are left out; empty where none is."""
        return [_device(task) for task in self.addresses if task not in self.without] if self.without else []

    def ask(self, lost: Container[str] = ()) -> list[ProbeResult]:
        """Ask each task, all at the same time; those that are `lost`, as far as is known, have to be quick."""
        wanted = [task for task in self.addresses if task not in self.without]
        answers = concurrency.map_parallel(
            lambda task: self._ask(task, _LOST_SECONDS if task in lost else ANSWER_SECONDS), wanted, _AT_ONCE
        )
        for answer in answers:
            if not answer.error:
                self._first.setdefault(answer.task, answer.incarnation)
        return answers

    def answers(self, task: str) -> bool:
        """Return whether a task answers now."""
        return task in self.addresses and not self._ask(task, _AGAIN_SECONDS).error

    def is_another(self, task: str) -> bool:
        """Return whether a task answers now, and is another one than when it was asked first."""
        answer = self._ask(task, _AGAIN_SECONDS)
        return not answer.error and answer.incarnation != self._first.get(task, answer.incarnation)

    def missing_ways(self) -> dict[str, list[str]]:
        """Return the tasks that do not reach others which answer here, with these; of many tasks, the master is asked.

        A session waits for those that the master does not reach, and a step for those that a worker needs: 20 seconds.
        """
        wanted = [task for task in self.addresses if task not in self.without]
        askers = wanted if len(wanted) <= _MOST_ASKERS else [self.master]
        found = concurrency.map_parallel(self.unreached, askers, _MOST_ASKERS)
        return {asker: tasks for asker, tasks in zip(askers, found, strict=True) if tasks}

    def unreached(self, asker: str | None = None) -> list[str]:
        """Return the tasks that one, the master by default, does not reach: all answer here, but it waits for them."""
        asker = asker or self.master
        wanted = [task for task in self.addresses if task not in self.without]
        if not wanted or self._reaches(asker, wanted if len(wanted) <= probe.MOST_NAMED else []):
            return []
        reached = concurrency.map_parallel(lambda task: self._reaches(asker, [task]), wanted, _AT_ONCE)
        missing = [task for task, reaches in zip(wanted, reached, strict=True) if not reaches]
        return [] if asker in missing else missing  # a busy one answers late, whomever it is asked about

    def _reaches(self, asker: str, tasks: Sequence[str]) -> bool:
        try:
            with self._dial(asker) as stream:
                return probe.can_reach(stream, [_device(task) for task in tasks], _REACH_SECONDS)
        except (OSError, wire.ProbeError, TaskUnreachable):
            return True  # it does not answer itself, of which others tell

    def devices(self) -> list[probe.Device]:
        """Return the devices of all tasks, as each tells them.

        Raises:
            TaskUnreachable: one does not answer.
        """
        found: list[probe.Device] = []
        for task in self.addresses:
            if task not in self.without:
                try:
                    with self._dial(task) as stream:
                        found += probe.get_status(stream, ANSWER_SECONDS)
                except (OSError, wire.ProbeError) as error:
                    raise TaskUnreachable(f"{task} does not answer: {error}") from error
        return found

    def _ask(self, task: str, timeout: float = ANSWER_SECONDS) -> ProbeResult:
        address = self.addresses[task]
        try:
            with self._dial(task) as stream:
                devices = probe.get_status(stream, timeout)
            with self._dial(task) as stream:
                version = probe.get_version(stream, _device(task), timeout)
        except TimeoutError:
            return ProbeResult(task, address, error=f"no answer in {timeout:.0f} s (is it stopped, or overloaded?)")
        except (OSError, wire.ProbeError, TaskUnreachable) as error:
            why = str(getattr(error, "strerror", None) or error)
            return ProbeResult(task, address, error=why.removeprefix(f"{task} does not answer: "))
        return ProbeResult(task, address, devices[0].incarnation if devices else 0, version)


def require(answers: Sequence[ProbeResult]) -> None:
    """Check that every task answered, and that all have the same version of TensorFlow; the master's answer is first.

    Raises:
        TaskUnreachable: some did not answer; with a table of what each said.
        VersionSkew: some have another version than others.
    """
    silent = [answer.task for answer in answers if answer.error]
    if silent:
        raise TaskUnreachable(
            f"of {len(answers)} task{'s' * (len(answers) > 1)}, {_named(silent)} "
            f"{'does' if len(silent) == 1 else 'do'} not answer:\n{table(answers)}",
            help=_advice(answers, silent),
        )
    versions = by_version(answers)
    if len({series(version) for version in versions}) > 1:
        listed = "; ".join(f"{version}: {_named(tasks)}" for version, tasks in versions.items())
        raise VersionSkew(
            f"the tasks have different versions of TensorFlow ({listed}), which TensorFlow does not support",
            help="give all jobs the same image, or install the same version",
        )


def _advice(answers: Sequence[ProbeResult], silent: Sequence[str]) -> str:
    if any(_NO_DNS in answer.error for answer in answers):
        return "names can't be looked up: is the cluster's DNS up? kubectl get pods -n kube-system -l k8s-app=kube-dns"
    looks = "`tfk8s status` shows the tasks, `tfk8s logs` what they wrote"
    if answers[0].task in silent:  # the master, which no script does without
        return looks
    return f"{looks}; --without {silent[0]} runs a script that needs it not"


def not_reached(ways: Mapping[str, Sequence[str]]) -> str:
    """Return what to say where tasks do not reach others that answer, by what `View.missing_ways` returns."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for asker, tasks in ways.items():
        alike.setdefault(tuple(tasks), []).append(asker)
    return "; ".join(_not_reached(askers, tasks) for tasks, askers in alike.items())


def _not_reached(askers: Sequence[str], tasks: Sequence[str]) -> str:
    do, know = ("do", "they know") if len(askers) > 1 else ("does", f"{askers[0]} knows")
    it, of = ("they answer", "them") if len(tasks) > 1 else ("it answers", "it")
    return f"{_named(askers)} {do} not reach {_named(tasks)}, though {it}: {know} no address of {of}, or an old one"


def warning(answers: Sequence[ProbeResult], own: str) -> str | None:
    """Return what to say where this process' TensorFlow is of another version than the tasks'; None where it fits."""
    others = [version for version in by_version(answers) if series(version) != series(own)]
    if not own or not others:
        return None
    return (
        f"this script has TensorFlow {own}, the tasks have {others[0]}: TensorFlow promises nothing of such a mixture"
    )


def warn(answers: Sequence[ProbeResult]) -> None:
    """Say on standard error, once in this process, what `warning` returns."""
    global _warned
    if not _warned and (text := warning(answers, own_version())):
        _warned = True
        print(f"warning: {text}", file=sys.stderr, flush=True)  # noqa: T201 - for the script's user


_warned = False


def own_version() -> str:
    """Return the version of this interpreter's TensorFlow, without importing it; "" where it is not known."""
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
    """Return the tasks of each version that is known."""
    found: dict[str, list[str]] = {}
    for answer in answers:
        if answer.version:
            found.setdefault(answer.version, []).append(answer.task)
    return found


def series(version: str) -> str:
    """Return the part of a version that must be the same, "2.21"; patch releases keep their formats."""
    return ".".join(version.split(".")[:2])


def table(answers: Sequence[ProbeResult]) -> str:
    """Return what each task said, a line each; of many tasks, those that did not answer."""
    shown = [answer for answer in answers if answer.error or len(answers) <= _ROWS][:_ROWS]
    width, far = (max(len(getattr(answer, key)) for answer in shown) for key in ("task", "address"))
    lines = [f"  {one.task:{width}}  {one.address:{far}}  {one.error or 'answers'}" for one in shown]
    more = sum(bool(answer.error) for answer in answers) - sum(bool(answer.error) for answer in shown)
    return "\n".join((*lines, f"  and {more} more") if more else lines)


def _named(tasks: Sequence[str]) -> str:
    return ", ".join(tasks) if len(tasks) <= 4 else f"{', '.join(tasks[:3])} and {len(tasks) - 3} more"


def _device(task: str) -> str:
    job, _, index = task.partition("/")
    return naming.device(job, int(index))
