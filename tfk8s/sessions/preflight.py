"""Probes all tasks of a cluster at once, before a session depends on them, and reports problems.

TensorFlow itself waits silently and for ever for a task that does not answer, and does not compare versions. Standard
library only: this file also runs in pods.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping, Sequence

from tfk8s.errors import TaskUnreachable, VersionSkew
from tfk8s.sessions.error_names import ProbeResult

_MAX_ROWS = 20

_IN_POD = "KUBERNETES_SERVICE_HOST"  # kubelet sets it in every container

_NO_DNS = "failure in name resolution"  # glibc's EAI_AGAIN
_NO_NAME = "Name or service not known"  # glibc's EAI_NONAME

_PACKAGES = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu")


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


def nameless(answers: Sequence[ProbeResult]) -> list[str]:
    """Return the tasks that do not answer, if this is a pod, and DNS knows the name of none of them."""
    silent = [answer for answer in answers if answer.error]
    is_dns = _IN_POD in os.environ and all(_NO_NAME in answer.error for answer in silent)
    return [answer.task for answer in silent] if is_dns else []


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
    answer = "answer" if len(tasks) > 1 else "answers"
    wait = "wait" if len(sources) > 1 else "waits"
    here = "this pod" if _IN_POD in os.environ else "this machine"
    return (
        f"{_join(sources)} can't reach {_join(tasks)}: asked from {here}, {_join(tasks)} {answer}, "
        f"but {_join(sources)} {wait} for {_join(tasks)}"
    )


def warning(answers: Sequence[ProbeResult], own: str) -> str | None:
    """Return the warning if this process' TensorFlow has another version than the tasks; None if it matches."""
    others = [version for version in by_version(answers) if series(version) != series(own)]
    if not own or not others:
        return None
    return f"TensorFlow here is {own}, the tasks have {others[0]}: TensorFlow does not support different versions"


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
