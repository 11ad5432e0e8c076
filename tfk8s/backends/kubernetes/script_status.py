"""The Job that runs a session script beside a cluster's tasks, and the Secret that brings the script to it.

It is made from the master's StatefulSet, not from the job file: the same image, volumes, variables and rights as the
master has, whoever applied the cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tfk8s.backends.kubernetes import disruptions, pod_status
from tfk8s.core.status import MOST_SHOWN, Phase, ScriptPhase, ScriptStatus
from tfk8s.render.pods import Object
from tfk8s.render.script_job import _COMMAND, _ROOM, name

# ---- what became of it ---------------------------------------------------------------------------------------------


def status(made: Object, pod: Object | None, complaints: Sequence[str] = ()) -> ScriptStatus:
    """Return where a script is in its life.

    Args:
        made: its Job.
        pod: its pod; None where there is none.
        complaints: warnings about the pod, or about the Job where there is no pod; the latest last.
    """
    phase, exit_code, reason = _outcome(made, pod, complaints)
    words = made["spec"]["template"]["spec"]["containers"][0]["command"][len(_COMMAND) :]
    node = pod["spec"].get("nodeName") if pod else None
    return ScriptStatus(
        name=name(made),
        phase=phase,
        command=shlex.join(words)[:MOST_SHOWN],
        runs_on=(f"{pod['metadata']['name']} on {node}" if node else pod["metadata"]["name"]) if pod else "",
        since=pod_status.since(pod or made),
        exit_code=exit_code,
        reason=reason,
    )


def _outcome(made: Object, pod: Object | None, complaints: Sequence[str]) -> tuple[ScriptPhase, int | None, str]:
    if pod is None:
        if any(one["type"] == "Failed" and one["status"] == "True" for one in made["status"].get("conditions", ())):
            return ScriptPhase.FAILED, None, "its pod was deleted"
        if made["spec"].get("suspend"):
            return ScriptPhase.PENDING, None, "its queue has not admitted it"
    elif end := ended(pod):
        return _ended(pod, end)
    elif pod["status"].get("phase") == "Running":
        return ScriptPhase.RUNNING, None, ""
    phase, reason = pod_status.phase_and_reason(_master_job(made), pod, complaints, _ROOM)
    return (ScriptPhase.FAILED if phase is Phase.FAILED else ScriptPhase.PENDING), None, reason


def _master_job(made: Object) -> str:
    """Return the job of the job file whose settings the script has."""
    variables = made["spec"]["template"]["spec"]["containers"][0]["env"]
    jobs: str = next(one["value"] for one in variables if one["name"] == "TFK8S_JOBS")
    return jobs.partition("=")[0]


def _ended(pod: Object, end: Object) -> tuple[ScriptPhase, int | None, str]:
    code = end.get("exitCode")
    if code == 0:
        return ScriptPhase.SUCCEEDED, 0, ""
    if disrupted := disruptions.disruption("", pod):
        return ScriptPhase.FAILED, code, disrupted[0]
    if end.get("reason") == "OOMKilled":
        limit = pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
        return ScriptPhase.FAILED, code, f"killed at its pod's memory limit of {limit}"
    return ScriptPhase.FAILED, code, "" if code is not None else f"its pod failed: {end.get('reason')}"


def ended(pod: Object) -> Object | None:
    """Return how a script's container ended, with "exitCode" where that is known; None while it has not."""
    for container in pod["status"].get("containerStatuses", ()):
        if "terminated" in container["state"]:
            return dict(container["state"]["terminated"])
    failed = pod["status"].get("phase") == "Failed"
    return {"reason": pod["status"].get("reason", "for no reason that it says")} if failed else None
