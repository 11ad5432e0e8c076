"""The work of a cluster's tasks and scripts now, for the question why nothing moves."""

from __future__ import annotations

from collections.abc import Iterable

from tfk8s.backends.protocol import Backend
from tfk8s.backends.stacks import Stacks
from tfk8s.core.status import ClusterStatus, ScriptPhase
from tfk8s.core.task_names import select


def read(backend: Backend, name: str, words: Iterable[str] = ()) -> tuple[ClusterStatus, list[Stacks]]:
    """Return the status of a cluster, and what its tasks and running scripts do.

    Args:
        words: "worker/1", "worker" for all tasks of the job, a script's name, or a script's process id on this machine;
            none means all tasks and scripts.

    Raises:
        InvalidInput: no task, no job and no running script has such a name.
    """
    status = backend.observe(name)
    return status, backend.inside.stacks(name, choose(status, words))


def choose(status: ClusterStatus, words: Iterable[str]) -> list[str]:
    """Return the names of tasks and running scripts that words name, the tasks first."""
    running = [script.name for script in status.scripts if script.phase is ScriptPhase.RUNNING]
    words = list(words)
    scripts = [name for name in running if not words or {name, name.removeprefix("pid ")} & set(words)]
    others = [word for word in words if not {word, f"pid {word}"} & set(running)]
    tasks = select(others, [task.task for task in status.tasks]) if others or not words else []
    return [*map(str, tasks), *scripts]
