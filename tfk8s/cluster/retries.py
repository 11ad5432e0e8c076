"""Runs a session script, and runs it again after the loss of a task, or its own."""

from __future__ import annotations

from collections.abc import Collection

from tfk8s import polling
from tfk8s.backends import devices
from tfk8s.backends.protocol import Backend
from tfk8s.core.script import Script
from tfk8s.core.spec import Task
from tfk8s.core.task_names import parse_excluded
from tfk8s.errors import ScriptLost, TaskError
from tfk8s.log import log

READY_SECONDS = 120.0


def run(backend: Backend, name: str, script: Script, retries: int) -> int:
    """Run a script until no task is lost to it, and it is not lost itself; return its exit code.

    Args:
        backend: where the cluster is.
        name: the cluster's.
        script: which, and how.
        retries: how often to run it again, at most.

    Raises:
        InvalidInput: it is to do without a task that isn't there, or without the master.
        TaskError, ScriptLost: the last attempt had no better luck.
        WaitTimeout: the tasks did not come back.
    """
    without = _left_out(backend, name, script)
    for number in range(1, retries + 1):
        try:
            outcome = backend.run(name, script)
            if not outcome.task_failed:
                return outcome.code
            why = "the script failed because of a task"
        except (TaskError, ScriptLost) as error:
            why = str(error)
        log.warning("%s; it runs again when all tasks answer: number %d of at most %d", why, number, retries)
        _wait_for_answers(backend, name, without)
    return backend.run(name, script).code


def _wait_for_answers(backend: Backend, name: str, without: Collection[Task]) -> None:
    errors: list[str] = []

    def all_answer() -> bool:
        tasks = [one.task for one in backend.observe(name).tasks if one.task not in without]
        errors[:] = [answer.error for answer in devices.ask_each(backend, name, tasks) if answer.error]
        return not errors

    polling.wait_until(all_answer, lambda: f"the tasks to answer: {'; '.join(errors)}", READY_SECONDS)


def _left_out(backend: Backend, name: str, script: Script) -> list[Task]:
    """Return the tasks that a script does without."""
    if not (words := script.environment.get("TFK8S_WITHOUT")):
        return []
    status = backend.observe(name)
    return parse_excluded(words.split(","), [one.task for one in status.tasks], status.master)
