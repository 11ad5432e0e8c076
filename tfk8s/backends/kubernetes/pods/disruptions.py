"""The reasons for which Kubernetes removes pods, in words, from a pod's last status."""

from __future__ import annotations

from tfk8s.render import kueue
from tfk8s.render.pods import Object

DELETED = "its pod was deleted"
FAILED = "its pod failed"

# The meaning of each reason of the condition DisruptionTarget (kubernetes.io/docs/concepts/workloads/pods/disruptions),
# and what the user can do or expect.
_DISRUPTIONS = {
    "PreemptionByScheduler": ("preempted by a pod of higher priority", "raise jobs.{job}.priority_class, or add nodes"),
    "EvictionByEvictionAPI": (
        "evicted from its node {node}, as by `kubectl drain`", "it restarts where a node has room",
    ),
    "DeletionByTaintManager": (
        "evicted from its node {node}, which is not ready or was tainted ({message})",
        "`kubectl describe node {node}` shows why",
    ),
    "DeletionByPodGC": ("its node {node} is gone", "it restarts on another node"),
    "TerminationByKubelet": ("evicted by its node {node} ({message})", "let it ask for what it needs, in jobs.{job}"),
}  # fmt: skip
_BY_KUEUE = ("taken away by Kueue ({message})", "it comes back when Kueue admits its cluster again")


def disruption(job: str, pod: Object) -> tuple[str, str] | None:
    """Return why Kubernetes removes a pod, and the advice for a task's user; None if it does not.

    Args:
        job: the job's name in the job file.
        pod: the last version from the API server.
    """
    status = pod["status"]
    cause = " ".join(str(status.get("message", "")).split()).rstrip(". ")
    for condition in status.get("conditions", ()):
        if condition["type"] in ("DisruptionTarget", kueue.TAKEN_AWAY) and condition["status"] == "True":
            message, reason = cause or condition.get("message", "").rstrip(". "), condition.get("reason", "")
            by_kueue = condition["type"] == kueue.TAKEN_AWAY
            break
    else:
        if (status.get("phase"), status.get("reason")) != ("Failed", "Evicted"):
            return None
        message, reason, by_kueue = cause, "TerminationByKubelet", False
    meaning, advice = _BY_KUEUE if by_kueue else _DISRUPTIONS.get(reason, ("disrupted ({message})", ""))
    node = pod["spec"].get("nodeName", "")
    return meaning.format(node=node, message=message), advice.format(node=node, job=job)


def why_removed(job: str, pod: Object) -> str:
    """Return why a task's pod is removed, or has failed as a whole; "" if it stays. Arguments as for `disruption`.

    The kubelet gives no reason for a pod that failed with its container: see the end of the container.
    """
    status = pod["status"]
    if disrupted := disruption(job, pod):
        return ": ".join(filter(None, disrupted))
    cause = " ".join(filter(None, (status.get("reason"), status.get("message"))))
    if cause and status.get("phase") == "Failed":
        return f"{FAILED}: {cause}"
    return DELETED if "deletionTimestamp" in pod["metadata"] else ""
