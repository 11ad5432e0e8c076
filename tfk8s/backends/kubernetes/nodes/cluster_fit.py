"""Refuses clusters that the nodes can never hold, and warns about clusters that have to wait for room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfk8s.backends.kubernetes.api_server import errors, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.nodes import scheduling
from tfk8s.backends.kubernetes.pods import containers
from tfk8s.backends.kubernetes.pods.total_requests import Demand, Shortage, free, requested, requests, shortages
from tfk8s.core.resources import Resources
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput
from tfk8s.log import log
from tfk8s.render import kueue, manifests, warm_job
from tfk8s.render.pods import Object

# Either exists where an autoscaler adds nodes: the status of Kubernetes' cluster-autoscaler, and Karpenter's API.
_AUTOSCALERS = ("/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status", "/apis/karpenter.sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The room that nodes have for the tasks of a cluster.

    Attributes:
        asked: what all tasks request together.
        shortage: what the nodes lack, or "".
        is_final: whether no autoscaler can add what the nodes lack.
        is_known: whether the user may list the nodes, and no autoscaler adds any.
    """

    asked: Resources
    shortage: str = ""
    is_final: bool = False
    is_known: bool = True


def require_room(client: Client, namespace: str, job_file: JobFile, objects: Sequence[Object]) -> None:
    """Raise an InvalidInput if the nodes can never hold all tasks; warn if tasks have to wait for room."""
    room = find_room(client, namespace, job_file, objects)
    if room.is_final:
        raise InvalidInput(room.shortage, help="or add such nodes first; nothing was created")
    if room.shortage:
        log.warning("%s", room.shortage)


def find_room(client: Client, namespace: str, job_file: JobFile, objects: Sequence[Object]) -> Room:
    """Compare what a cluster's tasks request with what the nodes have, and with what other pods leave free.

    Where the user may not list nodes, or an autoscaler adds nodes, only the scheduler decides.

    Args:
        client: a client of the API server.
        namespace: the cluster's namespace.
    """
    sets = [item for item in objects if manifests.has_tasks(item)]
    nodes = scheduling.list_nodes(client)
    demands = [_demand(item, nodes) for item in sets]
    asked = requested(sets)
    if not nodes:
        return Room(asked=asked, is_known=False)
    is_fixed = not scheduling.may_grow(nodes)
    is_queued = any(map(kueue.queue_of, sets))
    short = shortages(demands, free(nodes, ()))
    refusal = _misfits(job_file, sets, nodes) if is_fixed else ""
    if short and is_fixed and not is_queued:
        refusal = refusal or _refusal(short)
    warning = _warning(short, "now")
    if not short and not is_queued:  # a queue decides itself when there is room
        warning = _warning(shortages(demands, _left_free(client, namespace, job_file.name, nodes)), "free")
    if (refusal or warning) and _has_autoscaler(client):
        return Room(asked=asked, is_known=False)
    return Room(asked=asked, shortage=refusal or warning, is_final=bool(refusal))


def _demand(workload: Object, nodes: Sequence[Object]) -> Demand:
    pod = workload["spec"]["template"]["spec"]
    return Demand(
        job=_job(workload),
        tasks=manifests.task_count(workload),
        requests=requests(pod),
        nodes=frozenset(node["metadata"]["name"] for node in nodes if scheduling.can_hold(pod, node)),
    )


def _job(workload: Object) -> str:
    return containers.template_variables(workload)["TFK8S_JOB"]


def _misfits(job_file: JobFile, sets: Sequence[Object], nodes: Sequence[Object]) -> str:
    """Return the jobs whose tasks fit no node, and why."""
    pods = {_job(item): item["spec"]["template"]["spec"] for item in sets}
    reasons = {
        job.name: scheduling.why_impossible(scheduling.JobFields(job_file, job), pods[job.name], nodes)
        for job in job_file.jobs
    }
    return "; ".join(
        f"no node can ever hold a task of job {job}: {reason}" for job, reason in reasons.items() if reason
    )


def _refusal(short: Sequence[Shortage]) -> str:
    return "; ".join(f"{one}: {one.remedy}" for one in short)


def _warning(short: Sequence[Shortage], when: str) -> str:
    return "; ".join(f"{one} {when}: tasks wait until nodes are added or pods end" for one in short)


def _left_free(client: Client, namespace: str, name: str, nodes: Sequence[Object]) -> dict[str, Resources]:
    """Return what pods leave free on the nodes that take new pods now. The cluster's own tasks are replaced."""
    pods = scheduling.list_few(client, paths.collection("Pod", None), {"fieldSelector": paths.UNFINISHED})
    others = [pod for pod in pods if not _is_own_task(pod, namespace, name)]
    return free([node for node in nodes if not scheduling.is_closed(node)], others)


def _is_own_task(pod: Object, namespace: str, name: str) -> bool:
    labels = pod["metadata"].get("labels", {})
    is_script = labels.get(manifests.COMPONENT) in (manifests.SCRIPT, warm_job.COMPONENT)
    return (
        not is_script
        and pod["metadata"]["namespace"] == namespace
        and manifests.selector(name).items() <= labels.items()
    )


def _has_autoscaler(client: Client) -> bool:
    """Return whether an autoscaler is seen. Users without rights in kube-system see Karpenter only."""
    for path in _AUTOSCALERS:
        with errors.suppress(403):
            if client.find(path) is not None:
                return True
    return False
