"""Starts pods away from nodes that may be at fault, once: the next start of the same tasks has all nodes again.

All pods of a StatefulSet share a template, and another template would replace all of them. So for the time of a start,
the StatefulSet has the strategy OnDelete, and a template that avoids the nodes. The pods that it creates meanwhile then
get the label of the template before, which is also the template after, and stay when the strategy comes back.

Nobody can change the template of a Job but before its first start (kubernetes.io/docs/concepts/workloads/controllers/
job, "Mutable Scheduling Directives"). So all pods that a Job ever makes avoid the nodes, and those of the next one not.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import FIELD_MANAGER, MERGE, Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pods import pod_status
from tfk8s.backends.kubernetes.workloads.bad_nodes import Fault
from tfk8s.errors import WaitTimeout
from tfk8s.log import log
from tfk8s.render import manifests, placement
from tfk8s.render.pods import Object

_REVISION = "controller-revision-hash"  # a label of a StatefulSet's pods
_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}  # the API server's default
_END_TIMEOUT = 60.0  # for the end of the pods before, and the place of the next ones
_PLACE_TIMEOUT = 10.0
_MANAGER = {"fieldManager": f"{FIELD_MANAGER}-avoid"}  # not that of `up`, which would undo the change by its absence
_Find = Callable[[], Sequence[Object]]
_Delete = Callable[[], object]


def say(faults: Iterable[tuple[str, Fault]]) -> None:
    """Say which nodes the next start of tasks avoids.

    Args:
        faults: names of pods, each with the failure of its task.
    """
    for name, fault in faults:
        log.warning(
            "%s starts away from node %s, once: it %s there; avoid: [%s] in the job file keeps the cluster away, and "
            "another restart allows all nodes",
            name, fault.node, fault.reason, fault.node,
        )  # fmt: skip


def replace(client: Client, stateful_set: Object, nodes: Collection[str], find: _Find, delete: _Delete) -> None:
    """Delete pods of a StatefulSet, which creates the next ones on other nodes if those have room.

    Args:
        stateful_set: as the API server has it.
        find: returns the pods that the StatefulSet has now.
        delete: deletes pods.
    """
    path = paths.path(stateful_set, stateful_set["metadata"]["namespace"])
    made = manifests.scaled(stateful_set, {})
    made["spec"].pop("updateStrategy", None)  # which `up` leaves to others
    template = placement.away_from(made["spec"]["template"], nodes)
    away = {**made, "spec": {**made["spec"], "template": template}}
    before = {pod["metadata"]["uid"]: pod for pod in find()}
    try:
        for pod in itertools.islice(before.values(), 1):
            _label(client, pod, {}, dryRun="All")
        client.apply(path, away, dry_run=True)
    except ApiError as error:  # nothing has changed yet
        log.warning("the node can't be avoided: %s", error)
        delete()
        return
    try:
        _set_strategy(client, path, {"type": pod_status.ON_DELETE, "rollingUpdate": None})
        client.apply(path, away)
        delete()
        _wait_for_places(find, before, manifests.task_count(stateful_set), _END_TIMEOUT)
    finally:
        client.apply(path, made)
        fresh = [pod for pod in find() if pod["metadata"]["uid"] not in before]
        _finish(client, path, fresh)
    for pod in filter(_is_refused, fresh):
        client.send("DELETE", paths.pod(pod["metadata"]["namespace"], pod["metadata"]["name"]))


def recover(client: Client, stateful_set: Object, pods: Iterable[Object]) -> None:
    """Finish the work of a command that was killed, for a StatefulSet that has its own template again."""
    path = paths.path(stateful_set, stateful_set["metadata"]["namespace"])
    _finish(client, path, filter(placement.avoided_once, pods))


def _finish(client: Client, path: str, pods: Iterable[Object]) -> None:
    """End the time of a start away from nodes, after which a StatefulSet has its own template.

    Args:
        pods: those that were created meanwhile.
    """
    revision = polling.wait_until(lambda: _revision(client.get(path)), "the StatefulSet's controller", _END_TIMEOUT)
    for pod in pods:
        _label(client, pod, {"labels": {_REVISION: revision}})
    _set_strategy(client, path, _ROLLING)


def without(workload: Object) -> Object:
    """Return a StatefulSet or the Job of a program as it is without a start away from nodes."""
    template = placement.anywhere(workload["spec"]["template"])
    return {**workload, "spec": {**workload["spec"], "template": template}}


def create_job(client: Client, path: str, job: Object, nodes: Collection[str], find: _Find) -> Object | None:
    """Create a Job whose pods avoid nodes; return the Job, or None if no other node takes one of the pods.

    Args:
        job: to be applied.
        find: returns the pods that the Job has now.
    """
    away = placement.away_from(job["spec"]["template"], nodes)
    client.apply(path, {**job, "spec": {**job["spec"], "suspend": True}})
    template = {
        "metadata": {"annotations": away["metadata"]["annotations"]}, "spec": {"affinity": away["spec"]["affinity"]},
    }  # fmt: skip
    made = client.send("PATCH", path, _MANAGER, {"spec": {"suspend": False, "template": template}}, MERGE)
    _wait_for_places(find, (), manifests.task_count(job), _PLACE_TIMEOUT)
    return None if any(map(_is_refused, find())) else made


def _wait_for_places(find: _Find, before: Collection[str], count: int, timeout: float) -> None:
    """Wait, within limits, until the scheduler has looked for a node for each pod other than those before."""

    def are_placed() -> bool:
        pods = find()
        if len(pods) < count:
            return False
        is_ending = any("deletionTimestamp" in pod["metadata"] for pod in pods)
        return not is_ending and all(_has_verdict(pod) for pod in pods if pod["metadata"]["uid"] not in before)

    with contextlib.suppress(WaitTimeout):
        polling.wait_until(are_placed, "the scheduler to find nodes for the new pods", timeout, announce=True)


def _has_verdict(pod: Object) -> bool:
    return "nodeName" in pod["spec"] or pod_status.condition(pod, "PodScheduled") is not None


def _is_refused(pod: Object) -> bool:
    """Return whether the scheduler has found no node for a pod, and log that the pod gets all nodes again."""
    scheduled = pod_status.condition(pod, "PodScheduled") or {}
    is_refused = (scheduled.get("status"), scheduled.get("reason")) == ("False", "Unschedulable")
    if is_refused:
        log.warning("%s: no other node takes it now, so it may start on any", pod["metadata"]["name"])
    return is_refused


def _label(client: Client, pod: Object, metadata: Object, **query: str) -> None:
    path = paths.pod(pod["metadata"]["namespace"], pod["metadata"]["name"])
    client.send("PATCH", path, query, {"metadata": metadata}, MERGE)


def _set_strategy(client: Client, path: str, strategy: Object) -> None:
    client.send("PATCH", path, _MANAGER, {"spec": {"updateStrategy": strategy}}, MERGE)


def _revision(stateful_set: Object) -> str | None:
    """Return the revision of a StatefulSet's template; None before its controller has seen the last change."""
    status = stateful_set.get("status", {})
    is_seen = status.get("observedGeneration") == stateful_set["metadata"]["generation"]
    return status.get("updateRevision") if is_seen else None
