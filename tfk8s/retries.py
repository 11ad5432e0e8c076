"""Runs a session script, and runs it again after the loss of a task, or its own."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tfk8s import devices, waiting
from tfk8s.backends import Backend, Script
from tfk8s.errors import ScriptLost, TaskError
from tfk8s.spec import Task
from tfk8s.tasks import left_out

READY_SECONDS = 120.0

Tell = Callable[[str], None]


def run(backend: Backend, name: str, script: Script, retries: int, tell: Tell) -> int:
    """Run a script until no task is lost to it, and it is not lost itself; return its exit code.

    Args:
        backend: where the cluster is.
        name: the cluster's.
        script: which, and how.
        retries: how often to run it again, at most.
        tell: hears why it runs again.

    Raises:
        InvalidInput: it is to do without a task that isn't there, or without the master.
        TaskError, ScriptLost: the last attempt had no better luck.
        WaitTimeout: the tasks did not come back.
    """
    without = _left_out(backend, name, script)
    for number in range(1, retries + 1):
        try:
            outcome = backend.run(name, script)
            if not outcome.for_a_task:
                return outcome.code
            why = "the script failed because of a task"
        except (TaskError, ScriptLost) as error:
            why = str(error)
        tell(f"{why}; it runs again when all tasks answer: number {number} of at most {retries}")
        _wait_for_answers(backend, name, without)
    return backend.run(name, script).code


def _wait_for_answers(backend: Backend, name: str, without: Collection[Task]) -> None:
    errors: list[str] = []

    def all_answer() -> bool:
        tasks = [one.task for one in backend.observe(name).tasks if one.task not in without]
        errors[:] = [answer.error for answer in devices.ask_each(backend, name, tasks) if answer.error]
        return not errors

    waiting.wait_until(all_answer, lambda: f"the tasks to answer: {'; '.join(errors)}", READY_SECONDS)


def _left_out(backend: Backend, name: str, script: Script) -> list[Task]:
    """Return the tasks that a script does without."""
    if not (words := script.environment.get("TFK8S_WITHOUT")):
        return []
    status = backend.observe(name)
    return left_out(words.split(","), [one.task for one in status.tasks], status.master)
