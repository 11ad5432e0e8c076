"""Suspends clusters: StatefulSets have no pods then, and the Jobs of programs are suspended.

An annotation of one workload, the master's, records the wish with the numbers of tasks before anything else changes,
and goes after all else. So the next `suspend`, `resume`, `up` or `down` finishes what a command that was killed has
left half-done. The Job that keeps `idle` does the same with an annotation of its own (`task.lifetime`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from tfk8s.backends.kubernetes import helm
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import FIELD_MANAGER, MERGE, Client
from tfk8s.backends.kubernetes.claims import DELETE_TIMEOUT
from tfk8s.backends.kubernetes.pods import pod_ends
from tfk8s.backends.kubernetes.workloads import gangs, lifetime, program_status
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core.lifetime import SUSPENDED, Suspension
from tfk8s.render import kueue, manifests
from tfk8s.render.lifetime import COMPONENT
from tfk8s.render.pods import Object


def suspend(client: Client, cluster: DeployedCluster, by: str) -> bool:
    """End all pods of a cluster but that of its limits and those that have ended; return whether this is new.

    A cluster in a queue gives its quota back.

    Raises:
        InvalidInput: Helm installed the cluster.
        WaitTimeout: pods do not end.
    """
    workloads = list(cluster.workloads.values())
    for item in workloads:
        helm.require_other(item)
    if cluster.suspended is None:
        counts = {
            job: manifests.task_count(item) for job, item in cluster.workloads.items() if item["kind"] == "StatefulSet"
        }
        wish = Suspension(time.time(), by, counts)
        _patch(client, cluster.workload(cluster.master.job) or workloads[0], _annotation(wish.to_text()))
    for item in workloads:
        if item["kind"] == "StatefulSet":
            _patch(client, item, {"spec": {"replicas": 0}})
        elif program_status.end(item) is None:
            _patch(client, item, {"spec": {"suspend": True}})
    for job in cluster.other_jobs:
        if not lifetime.is_lifetime(job) and program_status.end(job) is None:
            client.send("DELETE", paths.path(job, cluster.namespace), {"propagationPolicy": "Background"})
    if _wait_for_ends(client, cluster) and any(map(kueue.queue_of, workloads)):
        # Kueue gives the quota back itself once there is no pod. A pod whose program has ended keeps all of it.
        client.send("DELETE", paths.named("Workload", cluster.name, cluster.namespace))
    return cluster.suspended is None


def _wait_for_ends(client: Client, cluster: DeployedCluster) -> bool:
    """Wait until no pod runs; return whether there are pods that have ended by themselves."""
    path, query = paths.collection("Pod", cluster.namespace), paths.of_cluster(cluster.name)
    query["labelSelector"] += f",{manifests.COMPONENT}!={COMPONENT}"
    wait = pod_ends.PodWait(f'the pods of "{cluster.name}"', DELETE_TIMEOUT)

    left: list[Object] = []

    def are_gone() -> bool:
        left[:] = client.get(path, query)["items"]
        wait.note(running := list(filter(_is_left, left)))
        return not running

    wait.until(are_gone)
    return bool(left)


def _is_left(pod: Object) -> bool:
    """Return whether a pod runs or ends; one that has ended by itself keeps its log."""
    return "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") not in ("Succeeded", "Failed")


def resume(client: Client, cluster: DeployedCluster) -> bool:
    """Start the tasks of a cluster again if it is suspended; return whether it was."""
    if cluster.suspended is None:
        return False
    gangs.scale(client, cluster.namespace, cluster.name, cluster.workloads.values(), {}, has_ended=True)
    for item in (item for item in cluster.workloads.values() if item["kind"] == "StatefulSet"):
        if helm.refusal(item):  # `idle` has suspended it, and all but the number stays Helm's
            _patch(client, item, {"spec": {"replicas": manifests.task_count(item)}})
        else:  # by force: the number belongs to `up` again, whoever has suspended it
            client.apply(paths.path(item, cluster.namespace), manifests.scaled(item, {}), force=True)
    finish_resume(client, [*cluster.workloads.values(), *cluster.other_jobs])
    return True


def finish_resume(client: Client, objects: Iterable[Object]) -> None:
    """Resume the Jobs of programs, and then take back the wish that their cluster is suspended.

    Args:
        objects: the cluster's workloads and Jobs. Its StatefulSets have their numbers of tasks again.
    """
    objects = list(objects)
    for item in objects:
        if manifests.is_program(item) and item["spec"].get("suspend") and program_status.end(item) is None:
            _patch(client, item, {"spec": {"suspend": False}})
    for item in objects:
        if SUSPENDED in item["metadata"].get("annotations", {}):
            _patch(client, item, _annotation(None))


def _annotation(text: str | None) -> Object:
    return {"metadata": {"annotations": {SUSPENDED: text}}}


def _patch(client: Client, item: Object, change: Object) -> None:
    """Change an object as another manager of fields than `up`, which then does not undo the change by its absence."""
    path = paths.path(item, item["metadata"]["namespace"])
    client.send("PATCH", path, {"fieldManager": f"{FIELD_MANAGER}-suspend"}, change, MERGE)
