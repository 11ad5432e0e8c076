"""The words of Kueue about pods and Jobs that wait in a queue, from the conditions of Kueue's Workloads.

A Workload is owned by the pods of a cluster's tasks, or by the Job that waits. Kueue's events say the same
for an hour, and nothing of a queue that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Reader
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.errors import listed
from tfk8s.render import kueue, manifests
from tfk8s.render.pods import Object

EVICTED = "it was evicted"
_MAX_AHEAD = 3  # names of those that are ahead
_UNCOVERED = re.compile(r"resource (\S+) unavailable in ClusterQueue")
_NO_QUEUE = re.compile(r"LocalQueue \S+ doesn't exist")
_FORBIDDEN = "`kubectl get workloads` shows why, and tfk8s does with the right to list workloads.kueue.x-k8s.io"
_HELD = (
    "Kueue has suspended its Job, which is in no queue: have an administrator make a LocalQueue named default for such "
    "Jobs (manageJobsWithoutQueueName)"
)
_TWICE = (
    "Kueue manages all Jobs here (manageJobsWithoutQueueName), and runs no program of a cluster in a queue then: take "
    "`queue` out of the job file"
)
_OTHER_VERSION = "`kubectl get workloads` shows why: this Kueue has no Workloads of kueue.x-k8s.io/v1beta2"


def is_waiting(item: Object) -> bool:
    """Return whether a pod, or the Job of a script or a program, waits in a queue of Kueue."""
    spec = item["spec"]
    if any(gate["name"].startswith(kueue.PREFIX) for gate in spec.get("schedulingGates", ())):
        return True
    return bool(spec.get("suspend") and kueue.QUEUE in item["metadata"].get("labels", {}))


def waits(item: Object, said: str) -> str:
    """Return that a pod or a suspended Job waits in its queue.

    Args:
        item: the pod or the Job.
        said: what Kueue said about it; "" if nothing.
    """
    name = item["metadata"].get("labels", {}).get(kueue.QUEUE)
    if _is_managed_twice(item):
        return _TWICE
    if "suspend" in item["spec"] and not name:
        return _HELD
    queue = f'queue "{name}"' if name else "its queue"
    return f"{queue} has not admitted it: {said}" if said else f"{queue} has not admitted it yet"


def _is_managed_twice(item: Object) -> bool:
    """Return whether Kueue manages the Job of a program besides the pods, which are in the queue of their cluster.

    Kueue has labelled the pods for the queue of the Job then, and can't label them for their own.
    """
    if "template" in item["spec"]:
        return manifests.is_program({**item, "kind": "Job"}) and kueue.queue_of(item) is not None
    labels = item["metadata"].get("labels", {})
    own = labels.get(kueue.QUEUE)
    return bool(labels.get(kueue.LOCAL_QUEUE, own) != own)


def evicted(reason: str, message: str) -> str:
    """Return that a workload was evicted, with the reason and the message of Kueue."""
    return f"{EVICTED} ({reason}): {message}"


def read(client: Reader, namespace: str) -> dict[str, str]:
    """Return what Kueue says of those that wait, by their uid; the key "" has the text for all, if nothing is known."""
    try:
        workloads = client.get(paths.collection("Workload", namespace), {})["items"]
    except ApiError as error:
        return {"": _OTHER_VERSION if error.code == HTTPStatus.NOT_FOUND else _FORBIDDEN}
    waiting = sorted((item for item in workloads if _waits(item)), key=_order)
    return {
        owner["uid"]: reason
        for workload in waiting
        if (reason := "; ".join(filter(None, (_reason(workload), _place(workload, waiting)))))
        for owner in workload["metadata"].get("ownerReferences", ())
    }


def _waits(workload: Object) -> bool:
    conditions = _conditions(workload)
    return not any(_is_true(conditions.get(kind)) for kind in ("Admitted", "Finished"))


def _order(workload: Object) -> tuple[int, str]:
    """Return what Kueue orders a queue by: the priority, then the age.

    A workload whose pods were not ready in time goes to the end (`GetQueueOrderTimestamp` in pkg/workload of Kueue).
    """
    evicted = _conditions(workload).get("Evicted", {})
    is_late = _is_true(evicted) and evicted.get("reason") == "PodsReadyTimeout"
    since = evicted.get("lastTransitionTime") if is_late else workload["metadata"].get("creationTimestamp")
    return -int(workload.get("spec", {}).get("priority", 0)), str(since)


def _place(workload: Object, waiting: Sequence[Object]) -> str:
    """Return the place of a workload among those that wait in the same LocalQueue, and who is ahead; "" for the first.

    Args:
        workload: one of `waiting`.
        waiting: the workloads of the namespace that wait, in their order.
    """
    queue = _queue_of_waiting(workload)
    ahead = [_name(item) for item in waiting[: waiting.index(workload)] if queue and _queue_of_waiting(item) == queue]
    return f"place {len(ahead) + 1} in the queue, behind {listed(ahead, _MAX_AHEAD)}" if ahead else ""


def _queue_of_waiting(workload: Object) -> str:
    """Return the LocalQueue that a workload waits in; "" if its quota is reserved, or if it was taken out."""
    spec = workload.get("spec", {})
    is_out = not spec.get("active", True) or _is_true(_conditions(workload).get("QuotaReserved"))
    return "" if is_out else str(spec.get("queueName", ""))


def _name(workload: Object) -> str:
    """Return the name of the cluster or of the Job that a workload is for."""
    owners = workload["metadata"].get("ownerReferences", ())
    name = owners[0]["name"] if owners and owners[0]["kind"] != "Pod" else workload["metadata"]["name"]
    return str(name)


def _conditions(workload: Object) -> Mapping[str, Object]:
    return {item["type"]: item for item in workload.get("status", {}).get("conditions", ())}


def _reason(workload: Object) -> str:
    """Return why a Workload waits; "" if Kueue has said nothing yet."""
    status, conditions = workload.get("status", {}), _conditions(workload)
    if _is_true(conditions.get("QuotaReserved")):
        parts = [f"its quota is reserved, and it waits for admission checks{_checks(status)}"]
    else:
        message = conditions.get("QuotaReserved", {}).get("message", "")
        parts = [message + _cure(message)] if message else []
    condition = conditions.get("Evicted", {})
    if _is_true(condition):
        parts.append(evicted(str(condition.get("reason")), condition.get("message", "")))
    return "; ".join(dict.fromkeys(parts))


def _is_true(condition: Object | None) -> bool:
    return (condition or {}).get("status") == "True"


def _cure(message: str) -> str:
    if uncovered := _UNCOVERED.search(message):
        return f": take {uncovered[1]} out of the job file, or let an administrator add it to the ClusterQueue"
    if _NO_QUEUE.search(message):
        return ": change `queue` to one that `kubectl get localqueues` lists, or let an administrator create it"
    return ""


def _checks(status: Object) -> str:
    return "".join(_check(check) for check in status.get("admissionChecks", ()) if check.get("state") != "Ready")


def _check(check: Object) -> str:
    message = f": {check['message']}" if check.get("message") else ""
    return f"; {check['name']} is {check['state']}{message}"
