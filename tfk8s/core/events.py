"""Events of a cluster, the same for every backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfk8s.core.status import Phase

RESTARTED = "restarted on request"  # the reason of a phase


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


def of_phase(plain: Mapping[str, Any]) -> Event:
    """Return the event of a task that entered a phase, from plain data: time, task, phase, reason."""
    has_failed, is_requested = plain["phase"] == Phase.FAILED, plain["reason"] == RESTARTED
    return Event(
        id=f"{plain['task']}@{plain['time']}", time=plain["time"], about=plain["task"],
        warning=has_failed and not is_requested, reason="Ended" if has_failed and is_requested else plain["phase"],
        message=plain["reason"],
    )  # fmt: skip
