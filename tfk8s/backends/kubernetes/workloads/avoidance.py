"""Starts pods away from nodes that may be at fault, once: the next start of the same tasks has all nodes again.

All pods of a StatefulSet share a template, and another template would replace all of them. So for the time of a start,
the StatefulSet has the strategy OnDelete, and a template that avoids the nodes. The pods that it creates meanwhile then
get the label of the template before, which is also the template after, and stay when the strategy comes back. An
annotation keeps the strategy, and the revision of the template, until then. Others may change the StatefulSet at the
same time: each write here keeps what they have changed, and the label is only for pods of the same template.

Nobody can change the template of a Job but before its first start (kubernetes.io/docs/concepts/workloads/controllers/
job, "Mutable Scheduling Directives"). So all pods that a Job ever makes avoid the nodes, and those of the next one not.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import errors, paths
from tfk8s.backends.kubernetes.api_server.client import FIELD_MANAGER, MERGE, Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pods import pod_status
from tfk8s.backends.kubernetes.workloads.bad_nodes import Fault
from tfk8s.errors import WaitTimeout
from tfk8s.log import log
from tfk8s.render import manifests, placement
from tfk8s.render.pods import Object

_REVISION = "controller-revision-hash"  # a label of a StatefulSet's pods
_BEFORE = "tfk8s.dev/before-avoiding"  # an annotation: a StatefulSet's strategy and revision before a start
_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}  # the API server's default
_END_TIMEOUT = 60.0  # for the end of the pods before, and the place of the next ones
_PLACE_TIMEOUT = 10.0
_MANAGER = {"fieldManager": f"{FIELD_MANAGER}-avoid"}  # not that of `up`, which would undo the change by its absence
_Find = Callable[[], Sequence[Object]]
_Delete = Callable[[], object]


def news(workload: Object, faults: Mapping[str, Fault]) -> dict[str, Fault]:
    """Return the faults on nodes that a StatefulSet or the Job of a program does not avoid anyway."""
    avoided = placement.avoided(placement.anywhere(workload["spec"]["template"])["spec"])
    return {name: fault for name, fault in faults.items() if fault.node not in avoided}


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
    before = {pod["metadata"]["uid"]: pod for pod in find()}
    try:
        for pod in itertools.islice(before.values(), 1):
            _label(client, pod, {}, dryRun="All")
        client.apply(path, _with_template(stateful_set, nodes), dry_run=True)
        settled = _settled(client, path)
    except (ApiError, WaitTimeout) as error:  # nothing has changed yet
        log.warning("the node can't be avoided: %s", error)
        delete()
        return
    try:
        _open(client, path, settled)
        _set_template(client, path, nodes)
        delete()
        _wait_for_places(find, before, manifests.task_count(stateful_set), _END_TIMEOUT)
    finally:
        fresh = _close(client, path, lambda: [pod for pod in find() if pod["metadata"]["uid"] not in before])
    for pod in filter(_is_refused, fresh):
        client.send("DELETE", paths.pod(pod["metadata"]["namespace"], pod["metadata"]["name"]))


def is_open(stateful_set: Object) -> bool:
    """Return whether the pods of a StatefulSet start away from nodes now, or a command that did that was killed."""
    return _BEFORE in stateful_set["metadata"].get("annotations", {})


def recover(client: Client, stateful_set: Object, find: _Find) -> None:
    """Finish the work of a command that was killed.

    Args:
        find: returns the pods that the StatefulSet has now.
    """
    path = paths.path(stateful_set, stateful_set["metadata"]["namespace"])
    _close(client, path, lambda: list(filter(placement.avoided_once, find())))


def _open(client: Client, path: str, settled: Object) -> None:
    """Begin the time of a start away from nodes. A command that was killed may have begun it already."""
    before = {"strategy": settled["spec"].get("updateStrategy", _ROLLING), "revision": _revision(settled)}
    text = settled["metadata"].get("annotations", {}).get(_BEFORE) or json.dumps(before)
    strategy = {"type": pod_status.ON_DELETE, "rollingUpdate": None}
    change = {"metadata": {"annotations": {_BEFORE: text}}, "spec": {"updateStrategy": strategy}}
    client.send("PATCH", path, _MANAGER, change, MERGE)


def _close(client: Client, path: str, find: _Find) -> Sequence[Object]:
    """End the time of a start away from nodes; return the pods that were created meanwhile.

    Args:
        find: returns those pods.
    """
    try:
        with errors.suppress(404):  # somebody has deleted the cluster
            _set_template(client, path, ())
            settled = _settled(client, path)
            pods, revision = find(), _revision(settled)
            if _before(settled).get("revision") == revision:  # else they have another template
                for pod in pods:
                    _label(client, pod, {"labels": {_REVISION: revision}})
            return pods
        return ()
    finally:
        _restore_strategy(client, path)


def _with_template(stateful_set: Object, nodes: Collection[str]) -> Object:
    """Return a StatefulSet as it is, ready to be applied, with a template that avoids the nodes, and no others once."""
    made = manifests.scaled(stateful_set, {})
    made["spec"].pop("updateStrategy", None)  # which `up` leaves to others
    made["spec"]["template"] = placement.away_from(made["spec"]["template"], nodes)
    return made


def _set_template(client: Client, path: str, nodes: Collection[str]) -> None:
    """Let the template of a StatefulSet avoid the nodes, unless another command has ended the time for that."""

    def write(current: Object) -> None:
        made = _with_template(current, nodes)
        if made["spec"]["template"] != current["spec"]["template"] and (is_open(current) or not nodes):
            client.apply(path, {**made, "metadata": {**made["metadata"], **_version(current)}})

    _change(client, path, write)


def _restore_strategy(client: Client, path: str) -> None:
    """Give a StatefulSet that has its own template the strategy from before."""

    def write(current: Object) -> None:
        if not is_open(current):
            return
        if placement.avoided_once(current["spec"]["template"]):  # RollingUpdate would replace all pods
            _tell_of_rest(path)
        else:
            strategy = _before(current).get("strategy", _ROLLING)
            metadata = {**_version(current), "annotations": {_BEFORE: None}}
            client.send("PATCH", path, _MANAGER, {"metadata": metadata, "spec": {"updateStrategy": strategy}}, MERGE)

    try:
        _change(client, path, write)
    except BaseException:
        _tell_of_rest(path)
        raise


def _tell_of_rest(path: str) -> None:
    log.warning("%s is left with OnDelete; `tfk8s up` puts it back", path.rpartition("/")[2])


def _change(client: Client, path: str, write: Callable[[Object], object]) -> None:
    """Read a StatefulSet, if it exists, and write it; both again if somebody else has written in between."""

    def has_written() -> bool:
        current = client.find(path)
        try:
            if current is not None:
                write(current)
        except ApiError as error:
            if not error.is_stale:
                raise
            return False
        return True

    polling.wait_until(has_written, "others to stop changing the StatefulSet", _END_TIMEOUT)


def _version(item: Object) -> Object:
    """Return the metadata with which the API server refuses a change if the object has changed meanwhile."""
    return {"resourceVersion": item["metadata"]["resourceVersion"]}


def _before(stateful_set: Object) -> Object:
    """Return the strategy and the revision from before a start away from nodes; {} if nobody says them."""
    try:
        found = json.loads(stateful_set["metadata"].get("annotations", {}).get(_BEFORE, "{}"))
    except (ValueError, RecursionError):  # anyone who may change the StatefulSet may write the annotation
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("strategy"), dict) else {}


def _settled(client: Client, path: str) -> Object:
    """Return a StatefulSet once its controller has seen the last change."""

    def read() -> Object | None:
        found = client.get(path)
        is_seen = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
        return found if is_seen and _revision(found) else None

    return polling.wait_until(read, "the StatefulSet's controller to see the template", _END_TIMEOUT)


def _revision(settled: Object) -> str:
    return str(settled["status"].get("updateRevision", ""))


def without(workload: Object) -> Object:
    """Return a StatefulSet or the Job of a program as it is without a start away from nodes."""
    template = placement.anywhere(workload["spec"]["template"])
    return {**workload, "spec": {**workload["spec"], "template": template}}


def create_job(
    client: Client, path: str, job: Object, nodes: Collection[str], find: _Find, timeout: float = _PLACE_TIMEOUT
) -> Object | None:  # fmt: skip
    """Create a Job whose pods avoid nodes; return the Job, or None if no other node takes one of the pods.

    Args:
        job: to be applied.
        nodes: some that the Job does not avoid anyway.
        find: returns the pods that the Job has now.
        timeout: in seconds, for the place of the next pod.
    """
    away = placement.away_from(job["spec"]["template"], nodes)
    template = {
        "metadata": {"annotations": away["metadata"]["annotations"]}, "spec": {"affinity": away["spec"]["affinity"]},
    }  # fmt: skip
    try:
        client.apply(path, {**job, "spec": {**job["spec"], "suspend": True}})
        made = client.send("PATCH", path, _MANAGER, {"spec": {"suspend": False, "template": template}}, MERGE)
    except BaseException as error:
        made = client.apply(path, job)  # which starts it on any node
        if not isinstance(error, ApiError):
            raise
        log.warning("the node can't be avoided: %s", error)
        return made
    _wait_for_places(find, (), manifests.task_count(job), timeout)
    return None if any(map(_is_refused, find())) else made


def _wait_for_places(find: _Find, before: Collection[str], count: int, timeout: float) -> None:
    """Wait until the scheduler has looked for a node for each pod other than those before.

    Args:
        timeout: in seconds, for the next of the pods.
    """
    limit = polling.TimeoutWithoutChange(timeout)

    def are_placed() -> bool:
        pods = find()
        ending = sum("deletionTimestamp" in pod["metadata"] for pod in pods)
        fresh = [pod for pod in pods if pod["metadata"]["uid"] not in before]
        placed = sum(map(_has_verdict, fresh))
        limit.note((ending, placed))
        return len(pods) >= count and not ending and placed == len(fresh)

    with contextlib.suppress(WaitTimeout):
        polling.wait_until(are_placed, "the scheduler to find nodes for the new pods", limit, announce=True)


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
    with errors.suppress(404):  # somebody has deleted it
        client.send("PATCH", path, query, {"metadata": metadata}, MERGE)
