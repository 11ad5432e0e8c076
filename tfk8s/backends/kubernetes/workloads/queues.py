"""The words of Kueue about pods and Jobs that wait in a queue, from the conditions of Kueue's Workloads.

A Workload is owned by the StatefulSet or Job that waits, and by the pods of a StatefulSet. Kueue's events say the same
for an hour, and nothing of a queue that does not exist.
"""

from __future__ import annotations

import re
from http import HTTPStatus

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Reader
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.render import manifests
from tfk8s.render.pods import Object

_UNCOVERED = re.compile(r"resource (\S+) unavailable in ClusterQueue")
_NO_QUEUE = re.compile(r"LocalQueue \S+ doesn't exist")
_FORBIDDEN = "`kubectl get workloads` shows why, and tfk8s does with the right to list workloads.kueue.x-k8s.io"
_OTHER_VERSION = "`kubectl get workloads` shows why: this Kueue has no Workloads of kueue.x-k8s.io/v1beta2"


def is_waiting(item: Object) -> bool:
    """Return whether a pod, or the Job of a script or a program, waits in a queue of Kueue."""
    spec = item["spec"]
    if any(gate["name"].startswith("kueue.x-k8s.io/") for gate in spec.get("schedulingGates", ())):
        return True
    return bool(spec.get("suspend") and manifests.QUEUE in item["metadata"].get("labels", {}))


def waits(item: Object, said: str) -> str:
    """Return that a pod or a Job waits in its queue, with what Kueue said about it; "" if nothing."""
    name = item["metadata"].get("labels", {}).get(manifests.QUEUE)
    queue = f'queue "{name}"' if name else "its queue"
    return f"{queue} has not admitted it: {said}" if said else f"{queue} has not admitted it yet"


def read(client: Reader, namespace: str) -> dict[str, str]:
    """Return what Kueue says of those that wait, by their uid; the key "" has the text for all, if nothing is known."""
    try:
        workloads = client.get(paths.collection("Workload", namespace), {})["items"]
    except ApiError as error:
        return {"": _OTHER_VERSION if error.code == HTTPStatus.NOT_FOUND else _FORBIDDEN}
    return {
        owner["uid"]: reason
        for workload in workloads
        if (reason := _reason(workload))
        for owner in workload["metadata"].get("ownerReferences", ())
    }


def _reason(workload: Object) -> str:
    """Return why a Workload waits; "" if it does not, or if Kueue has said nothing yet."""
    status = workload.get("status", {})
    conditions = {item["type"]: item for item in status.get("conditions", ())}
    if _is_true(conditions.get("Admitted")):
        return ""
    if _is_true(conditions.get("QuotaReserved")):
        parts = [f"its quota is reserved, and it waits for admission checks{_checks(status)}"]
    else:
        message = conditions.get("QuotaReserved", {}).get("message", "")
        parts = [message + _cure(message)] if message else []
    evicted = conditions.get("Evicted", {})
    if _is_true(evicted):
        parts.append(f"it was evicted ({evicted.get('reason')}): {evicted.get('message', '')}")
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
