"""Compares the GPUs that tasks were given with the GPUs that TensorFlow sees in them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tfk8s import polling
from tfk8s.backends import devices
from tfk8s.backends.protocol import Backend
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus
from tfk8s.core.task_names import format_tasks
from tfk8s.errors import ClusterError

REASON_TIMEOUT = 3.0  # a server writes the reason a moment after it begins to listen
_MAX_LOGS = 8
_UNKNOWN = "its log shows no reason"


def require_gpus(backend: Backend, status: ClusterStatus) -> None:
    """Check that TensorFlow sees the GPUs of every task that may not run without them.

    Args:
        backend: the cluster's backend.
        status: of the ready cluster.

    Raises:
        ClusterError: names the tasks whose GPUs TensorFlow does not see, and the reasons.
        TaskUnreachable: a task does not answer any more.
    """
    required = {task.task: task.required_gpus for task in status.tasks if task.required_gpus}
    if not required:
        return
    answers = devices.list_devices(backend, status)
    devices.require_all(answers)
    seen = {answer.task: sum(device.kind == "GPU" for device in answer.devices) for answer in answers}
    lacking = [task for task, number in required.items() if seen[task] < number]
    if not lacking:
        return
    named = lacking[:_MAX_LOGS]
    reasons = _read_reasons(backend, status.name, named)
    groups: dict[str, list[Task]] = {}
    for task in named:
        groups.setdefault(f"{seen[task]} of {required[task]}: {reasons.get(task, _UNKNOWN)}", []).append(task)
    parts = [f"{format_tasks(tasks)} see{'s' * (len(tasks) == 1)} {words}" for words, tasks in groups.items()]
    more = f"; and {len(lacking) - len(named)} more tasks" if len(lacking) > len(named) else ""
    jobs = ", ".join(dict.fromkeys(f"jobs.{task.job}" for task in lacking))
    raise ClusterError(
        f'cluster "{status.name}" is up, but TensorFlow does not see all GPUs: {"; ".join(parts)}{more}',
        help=f"tfk8s logs{backend.flags} {status.name} {lacking[0]} shows TensorFlow's messages; "
        f"gpus_optional: true in {jobs} lets tasks run without GPUs",
    )


def _read_reasons(backend: Backend, name: str, tasks: Sequence[Task]) -> dict[Task, str]:
    """Return the reason that each task's server has logged; none for a server that logs no reason in time."""
    from tfk8s.task import gpus  # imports ctypes, which takes as long as the rest of this module

    reasons: dict[Task, str] = {}
    for _ in polling.poll(REASON_TIMEOUT):
        with contextlib.suppress(ClusterError):  # users who may not read logs learn less
            for line in backend.logs(name, [task for task in tasks if task not in reasons], LogOptions()):
                if reason := gpus.parse_unseen_line(line.text):
                    reasons[line.task] = reason
        if len(reasons) == len(tasks):
            break
    return reasons
