"""The pull of an image that a pod waits for: the kubelet's event Pulling, and the state of the container."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from tfk8s.backends.kubernetes.pods.containers import STARTING
from tfk8s.render.pods import Object

_CONTAINER = re.compile(r"spec\.(?:initContainers|containers)\{(.+)\}")
_IMAGE = re.compile(r'Pulling image "([^"]+)"')
_STATUSES = ("initContainerStatuses", "containerStatuses")


@dataclass(frozen=True, slots=True)
class Pull:
    """The begin of a pull.

    Attributes:
        container: the name of the container that needs the image.
        image: the image.
        since: when the node began, as the API server writes times.
    """

    container: str
    image: str
    since: str


def of_event(event: Object) -> Pull | None:
    """Return the pull that an event reports; None for another event."""
    if event.get("reason") != "Pulling":
        return None
    container = _CONTAINER.fullmatch(event["involvedObject"].get("fieldPath", ""))
    image, since = _IMAGE.fullmatch(event.get("message", "")), event.get("lastTimestamp") or event.get("eventTime")
    return Pull(container[1], image[1], since) if container and image and since else None


def is_under_way(pod: Object | None, pull: Pull | None) -> bool:
    """Return whether a pod still waits for a pull: kubelet reports neither the container's start nor a failure."""
    if pod is None or pull is None:
        return False
    statuses = (status for kind in _STATUSES for status in pod["status"].get(kind, ()))
    return any(
        status["name"] == pull.container and status["state"].get("waiting", {}).get("reason") in STARTING
        for status in statuses
    )


def describe(pod: Object, pull: Pull | None, clock: Callable[[], float] = time.time) -> str:
    """Return in words what a pod's node pulls, and since when; "" if the pod waits for no pull."""
    if pull is None or not is_under_way(pod, pull):
        return ""
    minutes = int((clock() - datetime.fromisoformat(pull.since).timestamp()) / 60)
    node = f" on {pod['spec']['nodeName']}" if pod["spec"].get("nodeName") else ""
    return f'pulling image "{pull.image}"{node}' + (f" for {minutes} min" if minutes > 0 else "")
