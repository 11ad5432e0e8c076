"""Restarts tasks, changes their numbers, and waits for the tasks."""

from __future__ import annotations

from collections.abc import Mapping

from tfk8s import spans
from tfk8s.backends.protocol import Backend
from tfk8s.cluster.program_run import require_up
from tfk8s.cluster.readiness import OnChange, wait_until_ready
from tfk8s.cluster.suspending import require_awake
from tfk8s.core.plan import Scaling
from tfk8s.core.task_names import parse_task, require_counts, require_no_variables


def scale(
    backend: Backend,
    name: str,
    tasks: Mapping[str, int],
    timeout: float | None,
    on_change: OnChange | None,
    *,
    lose_variables: bool,
) -> Scaling:
    """Change the numbers of tasks, as `Cluster.scale` does."""
    before = {status.task: status for status in require_awake(backend, backend.observe(name)).tasks}
    require_counts(tasks, before, {task.job for task, status in before.items() if status.is_data})
    if not lose_variables:
        require_no_variables(tasks, before, "save them; then add --yes (in Python: lose_variables=True)")
    with spans.part("scale jobs"):
        changed = backend.scale(name, tasks)
    if timeout is not None:
        restarting = before if changed is Scaling.RESTARTED else None
        require_up(backend, wait_until_ready(backend, name, timeout, on_change, restarting))
    return changed


def restart(backend: Backend, name: str, task: str | None, timeout: float | None, on_change: OnChange | None) -> None:
    """Restart a task, or all tasks, as `Cluster.restart` does."""
    before = {status.task: status for status in require_awake(backend, backend.observe(name)).tasks}
    chosen = None if task is None else parse_task(task, before)
    with spans.part("restart tasks"):
        is_seen = backend.restart(name, chosen)
    if timeout is not None:
        restarted = before if chosen is None else {chosen: before[chosen]}
        require_up(backend, wait_until_ready(backend, name, timeout, on_change, restarted if is_seen else {}))
