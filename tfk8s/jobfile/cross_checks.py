"""What concerns several keys of a job file at once: the master, and names and places that must not meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfk8s.core import naming
from tfk8s.core.spec import EVALUATOR
from tfk8s.errors import Problem, quoted
from tfk8s.jobfile import syntax
from tfk8s.jobfile.document import Document, Path
from tfk8s.jobfile.values import normal_path

# The kernel starts no program with a longer "NAME=VALUE" (MAX_ARG_STRLEN, which counts the NUL at its end).
MAX_ENV = 131_071


class ValidValues:
    """The data of a document as far as single values are right."""

    def __init__(self, document: Document, bad: set[Path]) -> None:
        """`bad` are the paths of values that are not."""
        self.document = document
        self._bad = bad | document.broken
        jobs = self.get("jobs")
        self.jobs: dict[str, object] = jobs if isinstance(jobs, dict) else {}
        # Whether `jobs` holds all that was meant to be in it.
        self.complete = bool(self.jobs) and ("jobs", "<<") not in document.broken

    def get(self, *path: str | int) -> Any:
        """Return the value at a path, or None where there is none that is right."""
        if any(path[:length] in self._bad for length in range(len(path) + 1)):
            return None
        value: Any = self.document.data
        for step in path:
            if isinstance(step, str) and (not isinstance(value, dict) or step not in value):
                return None
            value = value[step]
        return value

    def entries(self, *path: str | int) -> Iterator[tuple[Path, Any]]:
        """Yield the entries of a list, or of a mapping, that are right."""
        value = self.get(*path)
        steps: list[str | int] = list(range(len(value)) if isinstance(value, list) else value or ())
        for step in steps:
            if (entry := self.get(*path, step)) is not None:
                yield (*path, step), entry

    def tasks(self, job: str) -> int | None:
        """Return how many tasks of a job tfk8s starts, or None where it starts none."""
        value = self.get("jobs", job)
        if isinstance(value, dict):
            return self.get("jobs", job, "tasks") or 1
        return value if isinstance(value, int) else None

    def problem(
        self,
        code: str,
        message: str,
        path: Path,
        *,
        key: bool = False,
        label: str = "",
        help: str | None = None,  # noqa: A002
    ) -> Problem:
        """Return a problem at a value, or at its key."""
        places = self.document.keys if key else self.document.values
        return self.document.problem(code, message, places[path], path, label=label, help=help)


def check(document: Document, bad: set[Path]) -> list[Problem]:
    """Return what is wrong between keys, as far as the single keys are right; `bad` are the paths that are not."""
    sound = ValidValues(document, bad)
    checks = (
        master,
        meeting_names,
        long_names,
        mixed_addresses,
        meeting_addresses,
        meeting_paths,
        accelerators,
        long_env,
    )
    return [problem for check in checks for problem in check(sound)]


def master(sound: ValidValues) -> Iterator[Problem]:
    """Sessions connect to a job that exists and trains."""
    name = sound.get("master")
    candidates = sorted(job for job in sound.jobs if job != EVALUATOR)
    if not sound.complete:
        return
    if not candidates:
        message = "an evaluator alone can't be a cluster: sessions never connect to it"
        yield sound.problem("bad-master", message, ("jobs", EVALUATOR), key=True, help="add a job, such as worker: 1")
    elif name == EVALUATOR:
        message = "sessions can't connect to the evaluator, which takes no part in the training"
        yield sound.problem("bad-master", message, ("master",), label=f"expected one of {', '.join(candidates)}")
    elif isinstance(name, str) and name not in sound.jobs:
        near = syntax.nearest(name, candidates)
        label = f"the jobs are {', '.join(candidates[:10])}"
        help = near and f"write {near}"  # noqa: A001
        yield sound.problem("unknown-master", f"there is no job {quoted(name)}", ("master",), label=label, help=help)


def _named(sound: ValidValues) -> list[str]:
    """Return the jobs that get names in Kubernetes."""
    return [job for job in sound.jobs if naming.is_job_name(job) and sound.tasks(job)]


def meeting_names(sound: ValidValues) -> Iterator[Problem]:
    """No two jobs have the same name in Kubernetes."""
    labels: dict[str, str] = {}
    for job in _named(sound):
        first = labels.setdefault(naming.dns_label(job), job)
        if first != job:
            label = naming.dns_label(job)
            message = f'jobs "{first}" and "{job}" would both be "{label}" in Kubernetes'
            yield sound.problem("names-meet", message, ("jobs", job), key=True, help="rename one of them")


def long_names(sound: ValidValues) -> Iterator[Problem]:
    """No StatefulSet's name is too long; then no name of a pod or Service is, with at most 10,000 tasks a job."""
    cluster = sound.get("name")
    if not isinstance(cluster, str) or not naming.is_dns_label(cluster):
        return
    longest: dict[Path, str] = {}
    for job in _named(sound):
        blamed: Path = ("name",) if len(cluster) >= len(naming.dns_label(job)) else ("jobs", job)
        longest[blamed] = max(longest.get(blamed, ""), naming.stateful_set(cluster, job), key=len)
    for path, made in longest.items():
        excess = len(made) - naming.MAX_STATEFUL_SET
        if excess > 0:
            is_key = path != ("name",)
            name = str(path[-1]) if is_key else cluster
            message = f"{quoted(name)} is {excess} character{'s' * (excess > 1)} too long"
            label = f'StatefulSet "{made}" would have {len(made)} characters, of at most {naming.MAX_STATEFUL_SET}'
            advice = f"shorten it to {len(name) - excess} characters" if excess < len(name) else "shorten name and job"
            yield sound.problem("name-too-long", message, path, key=is_key, label=label, help=advice)


def mixed_addresses(sound: ValidValues) -> Iterator[Problem]:
    """Either tfk8s starts all tasks, or none."""
    addressed = [job for job in sound.jobs if isinstance(sound.get("jobs", job), list)]
    started = [job for job in sound.jobs if isinstance(sound.get("jobs", job), (int, dict))]
    if addressed and started:
        message = f'job "{addressed[0]}" has addresses, and job "{started[0]}" has none'
        label = "either all jobs have addresses, or none"
        yield sound.problem("mixed-addresses", message, ("jobs", started[0]), key=True, label=label)


def meeting_addresses(sound: ValidValues) -> Iterator[Problem]:
    """No two tasks have the same address."""
    seen: dict[str, Path] = {}
    for job in sound.jobs:
        if not isinstance(sound.get("jobs", job), list):
            continue
        for path, address in sound.entries("jobs", job):
            if seen.setdefault(address, path) != path:
                line = sound.document.values[seen[address]].line
                message = f"{quoted(address)} is the address of two tasks"
                yield sound.problem("duplicate-address", message, path, label=f"it is also on line {line}")


def meeting_paths(sound: ValidValues) -> Iterator[Problem]:
    """No two volumes of a task are at one path."""
    shared: dict[str, Path] = {}
    yield from _meeting_paths(sound, ("volumes",), shared)
    for job in sound.jobs:
        if isinstance(sound.get("jobs", job), dict):
            yield from _meeting_paths(sound, ("jobs", job, "volumes"), dict(shared))


def _meeting_paths(sound: ValidValues, volumes: Path, seen: dict[str, Path]) -> Iterator[Problem]:
    for entry, _ in sound.entries(*volumes):
        path = sound.get(*entry, "path")
        here = (*entry, "path")
        if isinstance(path, str) and seen.setdefault(normal_path(path), here) != here:
            line = sound.document.values[seen[normal_path(path)]].line
            message = f"two volumes are mounted at {quoted(path)}"
            yield sound.problem("duplicate-path", message, here, label=f"the other is on line {line}")


def accelerators(sound: ValidValues) -> Iterator[Problem]:
    """Who asks for a kind of GPU asks for GPUs."""
    for job, value in sound.jobs.items():
        path = ("jobs", job, "accelerator")
        if isinstance(value, dict) and sound.get(*path) is not None and value.get("gpus", 0) == 0:
            message = f'job "{job}" asks for an accelerator, but for no GPUs'
            yield sound.problem("needs-gpus", message, path, help="add gpus: 1, or remove accelerator")


def long_env(sound: ValidValues) -> Iterator[Problem]:
    """No environment variable is longer than what the kernel takes."""
    for env in [("env",), *(("jobs", job, "env") for job in sound.jobs if isinstance(sound.get("jobs", job), dict))]:
        for path, value in sound.entries(*env):
            size = len(f"{path[-1]}={value}".encode())
            if size > MAX_ENV:
                message = f"variable {quoted(str(path[-1]))} has {size} bytes"
                yield sound.problem("too-large", message, path, label=f"at most {MAX_ENV}, with its name")
