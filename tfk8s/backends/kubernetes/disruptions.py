"""Why a pod is taken away, in words: from what it says at its end, which Kubernetes keeps no longer than the pod."""

from __future__ import annotations

from tfk8s.render.pods import Object

DELETED = "its pod was deleted"

# By the reason of the condition DisruptionTarget (kubernetes.io/docs/concepts/workloads/pods/disruptions): what it
# means, and what a task's user can do or expect.
_DISRUPTIONS = {
    "PreemptionByScheduler": ("preempted by a pod of higher priority", "raise jobs.{job}.priority, or add nodes"),
    "EvictionByEvictionAPI": (
        "evicted from its node {node}, as by `kubectl drain`", "it starts again where there is room",
    ),
    "DeletionByTaintManager": (
        "evicted from its node {node}, which is not ready or was tainted ({message})",
        "`kubectl describe node {node}` shows why",
    ),
    "DeletionByPodGC": ("its node {node} is gone", "it starts again on another"),
    "TerminationByKubelet": ("evicted by its node {node} ({message})", "let it ask for what it needs, in jobs.{job}"),
}  # fmt: skip


def disruption(job: str, pod: Object) -> tuple[str, str] | None:
    """Return what Kubernetes takes a pod away for, and what to do about a task's; None where it does not.

    Args:
        job: its name in the job file.
        pod: as the API server gives it, or gave it last.
    """
    status = pod["status"]
    said = " ".join(str(status.get("message", "")).split()).rstrip(". ")
    for condition in status.get("conditions", ()):
        if (condition["type"], condition["status"]) == ("DisruptionTarget", "True"):
            message, reason = said or condition.get("message", "").rstrip(". "), condition.get("reason", "")
            break
    else:
        if (status.get("phase"), status.get("reason")) != ("Failed", "Evicted"):
            return None
        message, reason = said, "TerminationByKubelet"
    what, advice = _DISRUPTIONS.get(reason, ("disrupted ({message})", ""))
    node = pod["spec"].get("nodeName", "")
    return what.format(node=node, message=message), advice.format(node=node, job=job)


def why_removed(job: str, pod: Object) -> str:
    """Return why a task's pod is going, or has failed as a whole; "" where it stays. Takes what `disruption` does."""
    status = pod["status"]
    if disrupted := disruption(job, pod):
        return ": ".join(filter(None, disrupted))
    if status.get("phase") == "Failed":
        return f"its pod failed: {status.get('reason', '')} {status.get('message', '')}".strip()
    return DELETED if "deletionTimestamp" in pod["metadata"] else ""
