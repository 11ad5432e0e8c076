"""Runs a session script, and retries it if a task or the script itself is lost."""

from __future__ import annotations

from collections.abc import Collection

from tfk8s import polling, spans
from tfk8s.backends import devices
from tfk8s.backends.protocol import Backend
from tfk8s.cluster.readiness import excluded_tasks
from tfk8s.cluster.removal_notice import RemovalNotice
from tfk8s.core.script import Outcome, Script
from tfk8s.core.spec import Task
from tfk8s.errors import ScriptLost, TaskError
from tfk8s.log import log

_READY_TIMEOUT = 120.0


def run_with_retries(backend: Backend, name: str, script: Script, retries: int) -> int:
    """Run a script until it ends without the loss of a task, and warn of the cluster's removal; return its exit code.

    Args:
        retries: the maximum number of further runs.

    Raises:
        InvalidInput: a task that the script excludes does not exist, or is the master.
        TaskError, ScriptLost: a task or the script was lost in the last run.
        WaitTimeout: the tasks did not recover in time.
    """
    without = script.environment.get("TFK8S_WITHOUT")
    excluded = excluded_tasks(backend, name, without.split(",") if without else [])
    with RemovalNotice(backend, name):
        return _run(backend, name, script, retries, excluded)


def _run(backend: Backend, name: str, script: Script, retries: int, excluded: Collection[Task]) -> int:
    for number in range(1, retries + 1):
        try:
            outcome = _run_once(backend, name, script)
            if not outcome.task_failed:
                return outcome.code
            reason = "the script failed because of a task"
        except (TaskError, ScriptLost) as error:
            reason = str(error)
        log.warning("%s; it runs again when all tasks answer (retry %d of %d)", reason, number, retries)
        _wait_for_answers(backend, name, excluded)
    return _run_once(backend, name, script).code


def _run_once(backend: Backend, name: str, script: Script) -> Outcome:
    with spans.part("run script") as part:
        outcome = backend.scripts.run(name, script)
        part[spans.EXIT_CODE] = outcome.code
    return outcome


def _wait_for_answers(backend: Backend, name: str, excluded: Collection[Task]) -> None:
    errors: list[str] = []

    def all_answer() -> bool:
        servers = [task.task for task in backend.observe(name).tasks if task.has_server]
        tasks = [task for task in servers if task not in excluded]
        errors[:] = [answer.error for answer in devices.ask_each(backend, name, tasks) if answer.error]
        return not errors

    with spans.part("wait for tasks"):
        polling.wait_until(all_answer, lambda: f"the tasks to answer: {'; '.join(errors)}", _READY_TIMEOUT)
