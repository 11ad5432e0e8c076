"""What happened to a cluster's objects and pods, as the namespace's events tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from tfk8s.backends.kubernetes import paths, status
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.reflector import Reflector
from tfk8s.core import naming
from tfk8s.core.events import Event
from tfk8s.errors import NoSuchCluster
from tfk8s.render import script_job
from tfk8s.render.pods import Object


def read(client: Client, cluster: status.DeployedCluster, *, follow: bool) -> Iterator[Event]:
    """Yield a cluster's events in the order of time; then, with `follow`, each new one until the cluster is gone."""
    path = paths.collection("Event", cluster.namespace)
    so_far = sorted(_own(cluster, client.get(path)["items"]), key=lambda event: event.time)
    yield from so_far
    if not follow:
        return
    told = {(event.id, event.count) for event in so_far}
    for change in Reflector(client, path, {}).changes(lambda: _exists(client, cluster)):
        for event in () if change.deleted else _own(cluster, [change.object]):
            if (event.id, event.count) not in told:
                told.add((event.id, event.count))
                yield event


def _own(cluster: status.DeployedCluster, found: list[Object]) -> Iterator[Event]:
    jobs = {component: status.container_environment(made)["TFK8S_JOB"] for component, made in cluster.sets.items()}
    for event in found:
        thing = event["involvedObject"]
        if about := find_subject(thing["kind"], thing.get("name", ""), cluster.name, jobs):
            yield parse_event(event, about)


def _exists(client: Client, cluster: status.DeployedCluster) -> bool:
    try:
        status.find(client, cluster.namespace, cluster.name)
    except NoSuchCluster:
        return False
    return True


_ENDS = {"NetworkPolicy": ("",), "ConfigMap": ("",), "Service": ("", "-master")}


def parse_event(event: Object, about: str) -> Event:
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


def find_subject(kind: str, name: str, cluster: str, jobs: Mapping[str, str]) -> str:
    """Return what an object is to a cluster, by its name: events carry no labels, and outlive what they are about.

    Args:
        kind: of the object.
        name: of the object.
        cluster: the cluster's name.
        jobs: the names of its jobs by their DNS names.

    Returns:
        The task ("worker/1"), the session script ("script-4e9c21"), else the object; "" where it is not the cluster's.
    """
    if match := re.fullmatch(rf"{script_job.object_name(cluster, '')}(script-[0-9a-f]{{6}})(-\w+)?", name):
        return match[1] if kind in ("Job", "Pod", "Secret") else ""
    if kind == "Pod":
        match = re.fullmatch(rf"{cluster}-(.+)-(\d+)", name)
        return naming.task(jobs[match[1]], int(match[2])) if match and match[1] in jobs else ""
    if kind in ("StatefulSet", "PodDisruptionBudget"):
        own = {f"{cluster}-{job}" for job in jobs}
    else:
        own = {cluster + end for end in _ENDS.get(kind, ())}
    return f"{kind} {name}" if name in own else ""
