"""Events of a cluster, the same for every backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event, which may have happened several times.

    Attributes:
        id: the same text each time that the event happens.
        time: the last time, in seconds since the epoch.
        about: the task ("worker/1") or session script ("script-4e9c21"), else the object ("StatefulSet mnist-worker").
        warning: whether the event is a warning, as Kubernetes has it.
        reason: one word, such as "FailedScheduling".
        message: the description.
        count: the number of times.
    """

    id: str
    time: float
    about: str
    warning: bool
    reason: str
    message: str
    count: int = 1
