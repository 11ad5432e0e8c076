"""The status of a session script and of the cluster's own Job, which removes the cluster, from Jobs and their pods."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfk8s.backends.kubernetes import containers, disruptions, pod_events, pod_status
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pod_events import Events, PodEvents
from tfk8s.core import compact
from tfk8s.core.status import MAX_COMMAND_LENGTH, Phase, ScriptPhase, ScriptStatus
from tfk8s.render import lifetime, manifests
from tfk8s.render.pods import Object
from tfk8s.render.script_job import COMMAND, JOB_NAME, QUOTA_ADVICE, name

if TYPE_CHECKING:
    from tfk8s.backends.kubernetes.status import Reader


def status(job: Object, pod: Object | None, events: PodEvents | None = None) -> ScriptStatus:
    """Return the status of a script.

    Args:
        job: the script's Job.
        pod: the Job's pod; None without a pod.
        events: of the pod, else of the Job.
    """
    phase, exit_code, reason = _outcome(job, pod, events or PodEvents())
    words = containers.spec(job["spec"]["template"])["command"][len(COMMAND) :]
    return ScriptStatus(
        name=name(job),
        phase=phase,
        command=shlex.join(words)[:MAX_COMMAND_LENGTH],
        runs_on=pod_status.runs_on(pod) if pod else "",
        since=pod_status.since(pod or job),
        exit_code=exit_code,
        reason=reason,
    )


def _outcome(job: Object, pod: Object | None, events: PodEvents) -> tuple[ScriptPhase, int | None, str]:
    if pod is None:
        if any((item["type"], item["status"]) == ("Failed", "True") for item in job["status"].get("conditions", ())):
            return ScriptPhase.FAILED, None, "its pod was deleted"
        if job["spec"].get("suspend"):
            return ScriptPhase.PENDING, None, "its queue has not admitted it"
    elif end := ended(pod):
        return _ended(pod, end)
    elif pod["status"].get("phase") == "Running":
        return ScriptPhase.RUNNING, None, ""
    phase, reason = pod_status.phase_and_reason(_master_job(job), pod, events, QUOTA_ADVICE)
    return (ScriptPhase.FAILED if phase is Phase.FAILED else ScriptPhase.PENDING), None, reason


def _master_job(job: Object) -> str:
    """Return the master's job in the job file; the pods of the cluster besides its tasks have its settings."""
    return next(iter(compact.parse_jobs(containers.template_variables(job)["TFK8S_JOBS"])))


def _ended(pod: Object, end: Object) -> tuple[ScriptPhase, int | None, str]:
    code = end.get("exitCode")
    if code == 0:
        return ScriptPhase.SUCCEEDED, 0, ""
    if disrupted := disruptions.disruption("", pod):
        return ScriptPhase.FAILED, code, disrupted[0]
    if end.get("reason") == "OOMKilled":
        return ScriptPhase.FAILED, code, f"killed {containers.out_of_memory(pod)[0]}"
    return ScriptPhase.FAILED, code, "" if code is not None else f"its pod failed: {end.get('reason')}"


def ended(pod: Object) -> Object | None:
    """Return how a script's container ended, with "exitCode" if it is known; None before the end."""
    for container in containers.statuses(pod):
        if "terminated" in container["state"]:
            return dict(container["state"]["terminated"])
    failed = pod["status"].get("phase") == "Failed"
    return {"reason": pod["status"].get("reason", "without a reason")} if failed else None


def limit_keepers(jobs: Sequence[Object], pods: Sequence[Object]) -> list[tuple[Object, Object | None]]:
    """Return the Job that removes the cluster at its limits, with its pod; nothing without such a Job."""
    own = [job for job in jobs if lifetime.is_lifetime(job) and "completionTime" not in job.get("status", {})]
    by_job = {
        pod["metadata"]["labels"].get(JOB_NAME): pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and not ended(pod)
    }
    return [(job, by_job.get(job["metadata"]["name"])) for job in own[:1]]


def limits_problem(keepers: Sequence[tuple[Object, Object | None]], events: Events) -> str:
    """Return why no pod removes the cluster at its limits; "" while a pod runs or starts.

    Args:
        keepers: what `limit_keepers` returns.
        events: of the pods and Jobs.
    """
    for job, pod in keepers:
        found = pod_events.of(pod or job, events)
        phase, reason = pod_status.phase_and_reason(_master_job(job), pod, found, lifetime.QUOTA_ADVICE)
        if reason and phase in (Phase.PENDING, Phase.FAILED) and not pod_status.waits_for_node(pod, found):
            return f"Job {job['metadata']['name']} has no {'running ' if pod else ''}pod: {reason}"
    return ""


def why_removed(client: Reader, namespace: str, name: str) -> str:
    """Return why a cluster's own Job removed the cluster; "" if the Job is gone, or did not."""
    labels = {**manifests.selector(name), manifests.COMPONENT: lifetime.COMPONENT}
    try:
        pods = client.get(paths.collection("Pod", namespace), paths.labelled(labels))["items"]
    except ApiError:
        return ""
    ends = (ended(pod) or {} for pod in pods)
    return next((end["message"] for end in ends if end.get("exitCode") == 0 and "message" in end), "")
