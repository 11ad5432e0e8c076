"""Tasks as users type them: `worker/1`, or `/job:worker/task:1` as TensorFlow does."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from tfk8s.core.spec import MAX_TASKS, Task
from tfk8s.errors import InvalidInput, there_are

_SHORT = re.compile(r"(\w+)/(\d+)", re.ASCII)
_COUNT = re.compile(r"(\w+)=(\d{1,9})", re.ASCII)
_DEVICE = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)", re.ASCII)


def parse_task(word: str, tasks: Iterable[Task]) -> Task:
    """Return the one of `tasks` that is meant.

    Raises:
        InvalidInput: none is; says which there are, and the closest.
    """
    known = list(tasks)
    match = _SHORT.fullmatch(word) or _DEVICE.fullmatch(word)
    if match is None:
        raise InvalidInput(f'"{word}" is not a task', help=f"write JOB/INDEX; there are {format_tasks(known)}")
    task = Task(match[1], int(match[2]))
    if task in known:
        return task
    close = difflib.get_close_matches(str(task), map(str, known), n=1)
    raise InvalidInput(
        f'there is no task "{word}"; there are {format_tasks(known)}',
        help=f"did you mean {close[0]}?" if close else None,
    )


def select(words: Iterable[str], tasks: Iterable[Task]) -> list[Task]:
    """Return the tasks that are meant, in their own order: a job's name means all its tasks, no word means all.

    Raises:
        InvalidInput: a word means none of them.
    """
    known = list(tasks)
    jobs = {task.job for task in known}
    chosen: set[Task] = set()
    for word in words:
        chosen.update(task for task in known if task.job == word)
        if word not in jobs:
            chosen.add(parse_task(word, known))
    return [task for task in known if task in chosen] or known


def parse_excluded(words: Iterable[str], tasks: Iterable[Task], master: Task) -> list[Task]:
    """Return the tasks that sessions are to do without.

    Raises:
        InvalidInput: a word means none of them, or the master.
    """
    known = list(tasks)
    chosen = [parse_task(word, known) for word in words]
    if master in chosen:
        raise InvalidInput(f"sessions can't do without {master}: it is the master, which they connect to")
    return chosen


def parse_counts(words: Iterable[str]) -> dict[str, int]:
    """Read numbers of tasks, as `worker=8`.

    Raises:
        InvalidInput: a word is none, or a job stands twice.
    """
    found: dict[str, int] = {}
    for word in words:
        match = _COUNT.fullmatch(word)
        if match is None:
            raise InvalidInput(f'"{word}" is not a number of tasks', help="write JOB=TASKS, such as worker=8")
        if match[1] in found:
            raise InvalidInput(f'job "{match[1]}" stands twice: {match[1]}={found[match[1]]} and {word}')
        found[match[1]] = int(match[2])
    return found


def require_counts(numbers: Mapping[str, int], tasks: Iterable[Task]) -> None:
    """Raise an InvalidInput where jobs can't have so many tasks, or are none of a cluster's."""
    jobs = list(dict.fromkeys(task.job for task in tasks))
    for job, number in numbers.items():
        if job not in jobs:
            close = difflib.get_close_matches(job, jobs, n=1)
            raise InvalidInput(
                f'there is no job "{job}"; {there_are(jobs)}',
                help=f"did you mean {close[0]}?" if close else None,
            )
        if not 1 <= number <= MAX_TASKS:
            raise InvalidInput(f'job "{job}" can\'t have {number} tasks: 1 to {MAX_TASKS}')


def format_tasks(tasks: Iterable[Task]) -> str:
    """Return tasks in few words: `chief/0, worker/0 to worker/3`."""
    by_job: dict[str, list[Task]] = {}
    for task in tasks:
        by_job.setdefault(task.job, []).append(task)
    return ", ".join(_range(own) for own in by_job.values())


def _range(own: Sequence[Task]) -> str:
    if len(own) == 1 or own[-1].index - own[0].index >= len(own):
        return ", ".join(map(str, own))
    return f"{own[0]} to {own[-1]}"
