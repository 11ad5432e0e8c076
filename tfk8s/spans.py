"""The parts of a command that users wait for, for the feature that sends them to a collector as spans.

Without a collector, nothing listens, and a part costs a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

# By their names, as OpenTelemetry has them. They have numbers and no text of users, which may be secret.
Attributes = dict[str, int]
Listener = Callable[[str], AbstractContextManager[Attributes]]

EXIT_CODE = "process.exit.code"  # other codes than 0 are errors
TASKS = "tfk8s.tasks"  # the number of tasks
FOLDER_SIZE = "tfk8s.folder.size"  # compressed, in bytes

_listeners: list[Listener] = []


def listen(listener: Listener) -> Callable[[], None]:
    """Call a function with the name of each part that begins, and leave the `with` that it returns at the part's end.

    Returns:
        What ends that.
    """
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def part(name: str) -> AbstractContextManager[Attributes]:
    """Return a `with` for a part of the command, which gives the part's attributes, to be set.

    Args:
        name: a verb and its object, the same for all clusters.
    """
    return _listeners[-1](name) if _listeners else nullcontext({})
