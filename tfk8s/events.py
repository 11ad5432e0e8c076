"""What happened to a cluster, and what Kubernetes' events say of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tfk8s import naming, scriptjobs
from tfk8s.pods import Object

_ENDS = {"NetworkPolicy": ("",), "ConfigMap": ("",), "Service": ("", "-master")}


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


def read(event: Object, about: str) -> Event:
    """Return a Kubernetes event, of either of its two forms (core/v1, events.k8s.io/v1), about something."""
    series = event.get("series") or {}
    when = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return Event(
        id=event["metadata"]["uid"],
        time=datetime.fromisoformat(when or event["metadata"]["creationTimestamp"]).timestamp(),
        about=about,
        warning=event.get("type") == "Warning",
        reason=event.get("reason", ""),
        message=event.get("message", "").strip(),
        count=series.get("count") or event.get("count") or 1,
    )


def about(kind: str, name: str, cluster: str, jobs: Mapping[str, str]) -> str:
    """Return what an object is to a cluster, by its name: events carry no labels, and outlive what they are about.

    Args:
        kind: of the object.
        name: of the object.
        cluster: the cluster's name.
        jobs: the names of its jobs by their DNS names.

    Returns:
        The task ("worker/1"), the session script ("script-4e9c21"), else the object; "" where it is not the cluster's.
    """
    if match := re.fullmatch(rf"{scriptjobs.object_name(cluster, '')}(script-[0-9a-f]{{6}})(-\w+)?", name):
        return match[1] if kind in ("Job", "Pod", "Secret") else ""
    if kind == "Pod":
        match = re.fullmatch(rf"{cluster}-(.+)-(\d+)", name)
        return naming.task(jobs[match[1]], int(match[2])) if match and match[1] in jobs else ""
    if kind in ("StatefulSet", "PodDisruptionBudget"):
        own = {f"{cluster}-{job}" for job in jobs}
    else:
        own = {cluster + end for end in _ENDS.get(kind, ())}
    return f"{kind} {name}" if name in own else ""
