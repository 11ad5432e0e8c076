"""Why a pod is taken away, in words: from what it says at its end, which Kubernetes keeps no longer than the pod."""

from __future__ import annotations

from tfk8s.pods import Object

DELETED = "its pod was deleted"

# By the reason of the condition DisruptionTarget (kubernetes.io/docs/concepts/workloads/pods/disruptions).
_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by a pod of higher priority: raise jobs.{job}.priority, or add nodes",
    "EvictionByEvictionAPI": "evicted from its node {node}, as by `kubectl drain`: it starts again where there is room",
    "DeletionByTaintManager": "evicted from its node {node}, which is not ready or was tainted ({message}): "
    "`kubectl describe node {node}` shows why",
    "DeletionByPodGC": "its node {node} is gone: it starts again on another",
    "TerminationByKubelet": "evicted by its node {node} ({message}): let it ask for what it needs, in jobs.{job}",
}


def why_removed(job: str, pod: Object) -> str:
    """Return why a pod is going, or has failed as a whole; "" where it stays.

    Args:
        job: its name in the job file.
        pod: as the API server gives it, or gave it last.
    """
    status = pod["status"]
    node = pod["spec"].get("nodeName", "")
    said = " ".join(str(status.get("message", "")).split()).rstrip(". ")
    for condition in status.get("conditions", ()):
        if (condition["type"], condition["status"]) == ("DisruptionTarget", "True"):
            message = said or condition.get("message", "").rstrip(". ")
            words = _DISRUPTIONS.get(condition.get("reason", ""), "disrupted ({message})")
            return words.format(job=job, node=node, message=message)
    if status.get("phase") == "Failed":
        if status.get("reason") == "Evicted":
            return _DISRUPTIONS["TerminationByKubelet"].format(job=job, node=node, message=said)
        return f"its pod failed: {status.get('reason', '')} {status.get('message', '')}".strip()
    return DELETED if "deletionTimestamp" in pod["metadata"] else ""
