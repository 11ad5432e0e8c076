"""The status of a session script, from its Job and the Job's pod."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from tfk8s.backends.kubernetes.pods import containers, disruptions, pod_status, queues
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.core.progress import StepProgress
from tfk8s.core.status import MAX_COMMAND_LENGTH, Phase, ScriptPhase, ScriptStatus
from tfk8s.render.pods import Object
from tfk8s.render.script_job import FIELDS, JOB_NAME, name, shown_command
from tfk8s.render.script_resources import described


def status(
    job: Object, pod: Object | None, events: PodEvents | None = None, progress: StepProgress | None = None
) -> ScriptStatus:
    """Return the status of a script.

    Args:
        job: the script's Job.
        pod: the Job's pod; None without a pod.
        events: of the pod, else of the Job.
        progress: of the script; None if unknown.
    """
    phase, exit_code, reason = outcome(master_job(job), job, pod, events or PodEvents())
    words = shown_command(containers.spec(job["spec"]["template"])["command"])
    return ScriptStatus(
        name=name(job),
        phase=phase,
        command=shlex.join(words)[:MAX_COMMAND_LENGTH],
        runs_on=pod_status.runs_on(pod) if pod else "",
        since=pod_status.since(pod or job),
        exit_code=exit_code,
        reason=reason,
        progress=progress,
    )


def outcome(master: str, job: Object, pod: Object | None, events: PodEvents) -> tuple[ScriptPhase, int | None, str]:
    """Return the phase of a script or of a warm pod, the exit code if there is one, and the reason.

    Args:
        master: the master's job in the job file.
        job: the Job of the script or of the warm pod.
        pod: the Job's pod; None without a pod.
        events: of the pod, else of the Job.
    """
    if pod is None:
        if any((item["type"], item["status"]) == ("Failed", "True") for item in job["status"].get("conditions", ())):
            return ScriptPhase.FAILED, None, "its pod was deleted"
        if job["spec"].get("suspend"):
            return ScriptPhase.PENDING, None, queues.waits(job, events.queue)
    elif end := ended(pod):
        return _ended(pod, end)
    elif pod["status"].get("phase") == "Running":
        return ScriptPhase.RUNNING, None, ""
    phase, reason = pod_status.phase_and_reason(master, pod, events, _advice(job), FIELDS)
    return (ScriptPhase.FAILED if phase is Phase.FAILED else ScriptPhase.PENDING), None, reason


def _advice(job: Object) -> str:
    """Return what to do if the namespace refuses the pod of a script or a warm pod."""
    resources = described(containers.spec(job["spec"]["template"])["resources"])
    return f"change {FIELDS}.cpu or memory in the job file, or --cpu and --memory: the script requests {resources}"


def master_job(job: Object) -> str:
    """Return the master's job in the job file; the pods of the cluster besides its tasks have its settings."""
    variables = containers.template_variables(job)
    jobs = variables.get("TFK8S_JOBS") or variables.get("TFK8S_SERVERS") or variables["TFK8S_PROGRAMS"]
    return str(re.split("[=,]", jobs, maxsplit=1)[0])


def _ended(pod: Object, end: Object) -> tuple[ScriptPhase, int | None, str]:
    code = end.get("exitCode")
    if code == 0:
        return ScriptPhase.SUCCEEDED, 0, ""
    if disrupted := disruptions.disruption("", pod):
        return ScriptPhase.FAILED, code, disrupted[0]
    if end.get("reason") == "OOMKilled":
        return ScriptPhase.FAILED, code, f"killed {containers.out_of_memory(pod)[0]}"
    if code is not None:
        return ScriptPhase.FAILED, code, ""
    return ScriptPhase.FAILED, None, disruptions.why_removed("", pod) or disruptions.FAILED


def pods_by_job(pods: Iterable[Object]) -> dict[str, Object]:
    """Return the pods of Jobs by the names of the Jobs."""
    return {labels[JOB_NAME]: pod for pod in pods if JOB_NAME in (labels := pod["metadata"]["labels"])}


def ended(pod: Object) -> Object | None:
    """Return how a script's container ended, with "exitCode" if it is known; None before the end."""
    for container in containers.statuses(pod):
        if "terminated" in container["state"]:
            return dict(container["state"]["terminated"])
    failed = pod["status"].get("phase") == "Failed"
    return {"reason": pod["status"].get("reason", "without a reason")} if failed else None
