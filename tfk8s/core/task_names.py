"""Names of tasks as users type them: `worker/1`, or `/job:worker/task:1` as in TensorFlow."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Mapping, Sequence

from tfk8s.core import naming
from tfk8s.core.roles import MIN_DATA_TASKS
from tfk8s.core.spec import MAX_TASKS, Task
from tfk8s.core.status import ClusterStatus, ScriptPhase
from tfk8s.errors import InvalidInput, there_are

_HOLDERS = "ps"  # the job whose tasks hold variables
_SHORT = re.compile(r"(\w+)/(\d+)", re.ASCII)
_COUNT = re.compile(r"(\w+)=(\d{1,9})", re.ASCII)


def parse_task(word: str, tasks: Iterable[Task]) -> Task:
    """Return the task with this name.

    Args:
        word: the name.

    Raises:
        InvalidInput: no task has this name. The message lists the tasks, the help names the closest.
    """
    known = list(tasks)
    match = _SHORT.fullmatch(word) or naming.TASK.fullmatch(word)
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
    """Return the selected tasks, in the order of `tasks`.

    Args:
        words: names of tasks and of jobs; a job selects all its tasks. No word selects all tasks.

    Raises:
        InvalidInput: no task and no job has such a name.
    """
    known = list(tasks)
    jobs = {task.job for task in known}
    chosen: set[Task] = set()
    for word in words:
        chosen.update(task for task in known if task.job == word)
        if word not in jobs:
            chosen.add(parse_task(word, known))
    return [task for task in known if task in chosen] or known


def choose(status: ClusterStatus, words: Iterable[str]) -> list[str]:
    """Return the names of tasks and running scripts that words name, the tasks first; no word names all.

    Args:
        words: those of `select`, the names of scripts, and the process ids of scripts on this machine.

    Raises:
        InvalidInput: no task, no job and no running script has such a name.
    """
    running = [script.name for script in status.scripts if script.phase is ScriptPhase.RUNNING]
    words = list(words)
    scripts = [name for name in running if not words or {name, name.removeprefix("pid ")} & set(words)]
    others = [word for word in words if not {word, f"pid {word}"} & set(running)]
    tasks = select(others, [task.task for task in status.tasks]) if others or not words else []
    return [*map(str, tasks), *scripts]


def parse_excluded(words: Iterable[str], tasks: Iterable[Task], master: Task) -> list[Task]:
    """Return the tasks that sessions leave out.

    Args:
        words: the names of the tasks.
        master: the master, which sessions need.

    Raises:
        InvalidInput: no task has such a name, or it is the master's.
    """
    known = list(tasks)
    chosen = [parse_task(word, known) for word in words]
    if master in chosen:
        raise InvalidInput(f"sessions can't run without {master}: it is the master, to which they connect")
    return chosen


def parse_counts(words: Iterable[str]) -> dict[str, int]:
    """Return the number of tasks of each job, from words such as `worker=8`.

    Raises:
        InvalidInput: a word has another form, or a job occurs twice.
    """
    counts: dict[str, int] = {}
    for word in words:
        match = _COUNT.fullmatch(word)
        if match is None:
            raise InvalidInput(f'"{word}" does not have the form JOB=TASKS', help="an example: worker=8")
        if match[1] in counts:
            raise InvalidInput(f'job "{match[1]}" occurs twice: {match[1]}={counts[match[1]]} and {word}')
        counts[match[1]] = int(match[2])
    return counts


def require_counts(numbers: Mapping[str, int], tasks: Iterable[Task], data_jobs: Container[str] = ()) -> None:
    """Raise an InvalidInput if a number of tasks is out of range, or if the cluster has no such job.

    Args:
        numbers: the number of tasks by job.
        data_jobs: the jobs that run tf.data's service.
    """
    jobs = list(dict.fromkeys(task.job for task in tasks))
    for job, number in numbers.items():
        require_job(job, jobs)
        least = MIN_DATA_TASKS if job in data_jobs else 1
        if not least <= number <= MAX_TASKS:
            raise InvalidInput(f'job "{job}" can\'t have {number} tasks: {least} to {MAX_TASKS}')


def require_job(name: str, jobs: Sequence[str]) -> None:
    """Raise an InvalidInput if the cluster has no job of this name.

    Args:
        jobs: the names of the cluster's jobs.
    """
    if name not in jobs:
        close = difflib.get_close_matches(name, jobs, n=1)
        raise InvalidInput(
            f'there is no job "{name}"; {there_are(jobs, "job")}', help=f"did you mean {close[0]}?" if close else None
        )


def require_no_variables(numbers: Mapping[str, int], tasks: Iterable[Task], remedy: str) -> None:
    """Raise an InvalidInput if a task would go that may hold variables.

    TensorFlow's servers do not list their variables. By convention, the tasks of the job "ps" hold them. In a cluster
    without that job the master does, and no scaling removes a master.

    Args:
        numbers: the number of tasks by job.
        remedy: the way to remove the tasks all the same; `{count}` stands for the new number, as in "ps=1".
    """
    lost = [task for task in tasks if task.job == _HOLDERS and task.index >= numbers.get(task.job, MAX_TASKS)]
    if lost:
        remedy = remedy.format(count=f"{_HOLDERS}={numbers[_HOLDERS]}")
        raise InvalidInput(f"{format_tasks(lost)} may hold variables, which would be lost", help=remedy)


def format_tasks(tasks: Iterable[Task]) -> str:
    """Return a short list of tasks: `chief/0, worker/0 to worker/3`."""
    by_job: dict[str, list[Task]] = {}
    for task in tasks:
        by_job.setdefault(task.job, []).append(task)
    return ", ".join(map(_format_job, by_job.values()))


def _format_job(tasks: Sequence[Task]) -> str:
    first, last = tasks[0], tasks[-1]
    if len(tasks) == 1 or last.index - first.index >= len(tasks):
        return ", ".join(map(str, tasks))
    return f"{first} to {last}"
