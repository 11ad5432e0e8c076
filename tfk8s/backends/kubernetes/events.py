"""The events of a cluster's objects and pods, from the namespace's events."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.api_server.reflector import Reflector
from tfk8s.backends.kubernetes.pods import containers, pod_status
from tfk8s.backends.kubernetes.workloads import deployed
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core import naming
from tfk8s.core.events import Event
from tfk8s.errors import NoSuchCluster
from tfk8s.render import lifetime, script_job
from tfk8s.render.pods import Object


def read(client: Client, cluster: DeployedCluster, *, follow: bool) -> Iterator[Event]:
    """Yield a cluster's events by time; then, with `follow`, each new event until the cluster is gone."""
    path, begin = paths.collection("Event", cluster.namespace), _begin(client, cluster)
    existing = sorted(_of_cluster(cluster, begin, client.get(path)["items"]), key=lambda event: event.time)
    yield from existing
    if not follow:
        return
    yielded = {(event.id, event.count) for event in existing}
    with contextlib.closing(Reflector(client, path, {}).changes(lambda: _exists(client, cluster))) as changes:
        for change in changes:
            for event in () if change.deleted else _of_cluster(cluster, begin, [change.object]):
                if (event.id, event.count) not in yielded:
                    yielded.add((event.id, event.count))
                    yield event


def _begin(client: Client, cluster: DeployedCluster) -> str:
    """Return the time of the cluster's first `up`: a restart of programs makes their Jobs again."""
    with contextlib.suppress(ApiError):  # not everybody may read ConfigMaps
        if found := client.find(paths.named("ConfigMap", cluster.name, cluster.namespace)):
            return str(found["metadata"].get("creationTimestamp", ""))
    return min(str(item["metadata"]["creationTimestamp"]) for item in cluster.workloads.values())


def _of_cluster(cluster: DeployedCluster, begin: str, events: list[Object]) -> Iterator[Event]:
    """Yield the events of a cluster: those of an earlier cluster of the same name were created before its begin."""
    workloads = cluster.workloads.items()
    jobs = {component: containers.template_variables(item)["TFK8S_JOB"] for component, item in workloads}
    for event in events:
        subject = event.get("involvedObject", {})
        if event["metadata"]["creationTimestamp"] < begin or is_part_of_start(event):
            continue
        if about := find_subject(subject.get("kind", ""), subject.get("name", ""), cluster.name, jobs):
            yield parse_event(event, about)


def _exists(client: Client, cluster: DeployedCluster) -> bool:
    try:
        deployed.find(client, cluster.namespace, cluster.name)
    except NoSuchCluster:
        return False
    return True


def is_part_of_start(event: Object) -> bool:
    """Return whether an event tells that a server does not listen yet, as in each start.

    If the server never listens, kubelet ends it, and another event tells that.
    """
    return event.get("reason") == "Unhealthy" and str(event.get("message")).startswith("Startup probe failed")


_NAME_SUFFIXES = {"NetworkPolicy": ("",), "ConfigMap": ("",), "Service": ("", "-master")}


def parse_event(event: Object, about: str) -> Event:
    """Return a Kubernetes event, in either of its forms (core/v1, events.k8s.io/v1), with its subject."""
    series = event.get("series") or {}
    time = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return Event(
        id=event["metadata"]["uid"],
        time=pod_status.seconds(time or event["metadata"]["creationTimestamp"]),
        about=about,
        warning=event.get("type") == "Warning",
        reason=event.get("reason", ""),
        message=event.get("message", "").strip(),
        count=series.get("count") or event.get("count") or 1,
    )


def find_subject(kind: str, name: str, cluster: str, jobs: Mapping[str, str]) -> str:
    """Return the name of an event's subject in a cluster. It goes by the object's name, since events carry no labels.

    Args:
        kind: the object's.
        name: the object's.
        jobs: the names of its jobs by their DNS names.

    Returns:
        The task ("worker/1"), the session script ("script-4e9c21"), else the object; "" for an object of
        another cluster.
    """
    if match := re.fullmatch(rf"{script_job.object_name(cluster, '')}(script-[0-9a-f]{{6}})(-\w+)?", name):
        return match[1] if kind in ("Job", "Pod", "Secret") else ""
    if kind in ("Job", "Pod") and lifetime.is_job_name(cluster, name):
        return f"{kind} {name}"
    if kind == "Pod":
        match = re.fullmatch(rf"{cluster}-(.+?)-(\d+)(-\w{{5}})?", name)
        return naming.task(jobs[match[1]], int(match[2])) if match and match[1] in jobs else ""
    if kind in ("StatefulSet", "Job", "PodDisruptionBudget"):
        names = {f"{cluster}-{job}" for job in jobs}
    else:
        names = {cluster + suffix for suffix in _NAME_SUFFIXES.get(kind, ())}
    return f"{kind} {name}" if name in names else ""
