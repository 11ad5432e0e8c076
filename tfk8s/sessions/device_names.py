"""Names of TensorFlow's devices, and the tasks that may have them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tfk8s.core import naming

ANY_DEVICE = "*"  # of operations whose devices can't be known
_JOB = re.compile(r"/job:(\w+)(?:/replica:\d+)?(?:/task:(\d+))?")


def tasks_of(devices: Iterable[str], tasks: Iterable[str]) -> list[str]:
    """Return those of the tasks that may have one of the devices. A device without a job is the master's."""
    names = list(devices)
    return [task for task in tasks if any(device == ANY_DEVICE or may_have(task, device) for device in names)]


def may_have(task: str, device: str) -> bool:
    """Return whether a name of a device, which may be a part, names devices of a task."""
    match = _JOB.search(device)
    if match is None:
        return False
    return naming.task(match[1], int(match[2])) == task if match[2] else task.startswith(f"{match[1]}/")
