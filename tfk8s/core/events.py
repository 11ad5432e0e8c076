"""What happened to a cluster, and what Kubernetes' events say of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened.

    Attributes:
        id: the same for one that happens again.
        time: when it did last, in seconds since the epoch.
        about: the task ("worker/1") or session script ("script-4e9c21"), else the object ("StatefulSet mnist-worker").
        warning: whether something is not as it should be.
        reason: one word for it, such as "FailedScheduling".
        message: what it was.
        count: how often it happened.
    """

    id: str
    time: float
    about: str
    warning: bool
    reason: str
    message: str
    count: int = 1
