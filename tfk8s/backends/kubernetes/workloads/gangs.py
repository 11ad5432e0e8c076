"""PodGroups of clusters on an API server: which cluster gets one, whether a cluster has one, and its number of tasks.

Kubernetes starts no pod of a gang until as many pods as `minCount` are there and have not ended. A program that has
ended gets no pod any more, so that `up`, `resume` and `restart` leave the ended ones out of the number. A program that
they run again counts again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.claims import DELETE_TIMEOUT
from tfk8s.backends.kubernetes.pods import pod_status
from tfk8s.backends.kubernetes.workloads import ownership, program_status
from tfk8s.core import naming
from tfk8s.core.job_file import gangs
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput
from tfk8s.log import log
from tfk8s.render import gang, kueue, manifests
from tfk8s.render.pods import Object


def decided(client: Client, namespace: str, job_file: JobFile, served: Collection[str]) -> JobFile:
    """Return the job file with `gang` as the cluster gets it.

    Without the key, a new cluster is a gang where the API server has PodGroups and the user may read them. A cluster
    that exists stays what it is, since another pod template would restart all tasks.

    Args:
        namespace: the cluster's.
        served: the versions of groups that the API server has.

    Raises:
        InvalidInput: the job file asks for a gang, and the API server has no PodGroups.
    """
    is_served = gang.VERSION in served
    if job_file.gang and not is_served:
        raise InvalidInput(
            f"gang: true needs PodGroups, and the API server has no {gang.VERSION}",
            help="Kubernetes 1.37 has them behind the feature gate GenericWorkload; or remove gang, or name a queue",
        )
    if job_file.gang is None and is_served and not job_file.queue and gangs.is_possible(job_file):
        return dataclasses.replace(job_file, gang=_is_by_default(client, namespace, job_file))
    return job_file


def _is_by_default(client: Client, namespace: str, job_file: JobFile) -> bool:
    kind = "Job" if job_file.job(job_file.master).program else "StatefulSet"
    name = naming.stateful_set(job_file.name, job_file.master)
    existing = client.find(paths.named(kind, name, namespace))
    if existing is not None:
        return gang.is_member(existing, job_file.name)
    try:
        client.find(_path(namespace, job_file.name))
    except ApiError as error:
        if error.code != 403:
            raise
        log.warning("the tasks are started one by one, and not as a gang: %s", error)
        return False
    return True


def is_gang(workloads: Iterable[Object | None], cluster: str) -> bool:
    """Return whether a cluster is a gang, by its StatefulSets and Jobs; other objects don't count."""
    return any(item and manifests.has_tasks(item) and gang.is_member(item, cluster) for item in workloads)


def living(client: Client, namespace: str, existing: Object | None) -> Object | None:
    """Return an object; None for a PodGroup that is being deleted, after its end.

    Kubernetes keeps a PodGroup for a moment after its last pod. A change of it would be lost with it.

    Raises:
        WaitTimeout: the PodGroup does not end.
    """
    if not existing or existing.get("kind") != gang.KIND or "deletionTimestamp" not in existing["metadata"]:
        return existing
    path = paths.path(existing, namespace)
    name = existing["metadata"]["name"]
    polling.wait_until(lambda: client.find(path) is None, f"the end of PodGroup {name}", DELETE_TIMEOUT)
    return None


def kind(workloads: Collection[Object], cluster: str) -> str:
    """Return who lets the tasks of a cluster start together or not at all, as `ClusterStatus.gang` has it."""
    return gang.KIND if is_gang(workloads, cluster) else "Kueue" if any(map(kueue.queue_of, workloads)) else ""


def obsolete(cluster: str, before: Iterable[Object | None], objects: Iterable[Object]) -> list[Object]:
    """Return the PodGroup of a cluster that is no longer a gang."""
    if not is_gang(before, cluster) or any(item["kind"] == gang.KIND for item in objects):
        return []
    return [{"kind": gang.KIND, "metadata": {"name": cluster}}]


def without_ended(objects: Sequence[Object], running: Iterable[Object]) -> Sequence[Object]:
    """Return the objects of a cluster; its PodGroup, if there is one, starts those tasks together that have not ended.

    Args:
        running: the StatefulSets and Jobs of programs that exist, as they will be.
    """
    ended = _ended(running)
    return [_smaller(item, ended) if item["kind"] == gang.KIND else item for item in objects] if ended else objects


def _ended(workloads: Iterable[Object]) -> int:
    """Return the number of tasks that will have no pod any more."""
    return sum(program_status.ended_tasks(item) for item in workloads if manifests.is_program(item))


def _smaller(group: Object, ended: int) -> Object:
    """Return a PodGroup that starts fewer tasks together."""
    count = max(1, group["spec"]["schedulingPolicy"]["gang"]["minCount"] - ended)  # 0 is not allowed
    return {**group, "spec": {**group["spec"], "schedulingPolicy": {"gang": {"minCount": count}}}}


def why_it_waits(reason: str, workloads: Iterable[Object]) -> str:
    """Return the reason why a task of a cluster waits, with the cure if the pods of its gang are not all to come."""
    workloads = list(workloads)
    if reason != pod_status.GANG_IS_INCOMPLETE or not _ended(workloads):
        return reason
    cure = "`kubectl patch podgroup`" if any(map(ownership.is_of_helm, workloads)) else "`tfk8s up`"
    return f"{reason}, and a program has ended: {cure} lets it start"


def scale(
    client: Client, namespace: str, cluster: str, workloads: Collection[Object], tasks: Mapping[str, int], *,
    has_ended: bool = False,
) -> None:  # fmt: skip
    """Let the PodGroup of a cluster, if there is one that Helm did not make, start another number of tasks together.

    Args:
        tasks: as of `manifests.scaled`; empty for all tasks of the cluster.
        has_ended: leave out the tasks that have ended, instead of running them again.
    """
    if is_gang(workloads, cluster) and not any(map(ownership.is_of_helm, workloads)):
        group = manifests.pod_group(cluster, [manifests.scaled(item, tasks) for item in workloads])
        client.apply(_path(namespace, cluster), _smaller(group, _ended(workloads) if has_ended else 0))


def delete(client: Client, namespace: str, cluster: str) -> None:
    """Delete the PodGroup of a cluster. Kubernetes keeps the PodGroup until its pods are gone."""
    client.send("DELETE", _path(namespace, cluster), {"propagationPolicy": "Background"})


def _path(namespace: str, cluster: str) -> str:
    return paths.named(gang.KIND, cluster, namespace)
