"""The status of warm pods, and of the scripts that run in them: the last line of a warm pod's log lists them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfk8s.backends.kubernetes.api_server.client import Reader
from tfk8s.backends.kubernetes.pods import pod_events, pod_status
from tfk8s.backends.kubernetes.workloads import log_progress, script_status
from tfk8s.core.progress import latest
from tfk8s.core.status import ScriptPhase, ScriptStatus
from tfk8s.render import warm_job
from tfk8s.render.pods import Object

WarmScripts = Sequence[Mapping[str, Any]]
_TAIL = {"tailLines": 20, "limitBytes": 1 << 20}
_LINE = '{"scripts":'
_COMMAND = "(warm pod: keeps TensorFlow imported)"
_TEXTS = ("name", "command", "progress")  # of a script in that line
_LATEST = 1e11  # seconds since the epoch, which a date can show
_PHASES = {ScriptPhase.PENDING: ScriptPhase.STARTING, ScriptPhase.RUNNING: ScriptPhase.READY}


def read_scripts(client: Reader, pods: Sequence[Object]) -> Mapping[str, WarmScripts]:
    """Return the scripts that run in warm pods, by the names of the pods."""
    return log_progress.read_logs(client, pods, _last_scripts, _TAIL)


def _last_scripts(lines: Sequence[str]) -> WarmScripts | None:
    """Return the scripts in the last line that lists them, which any program in the pod may have written."""
    found = next((line for line in reversed(lines) if line.startswith(_LINE)), None)
    try:
        return [script for script in json.loads(found)["scripts"] if _is_script(script)] if found else None
    except (ValueError, TypeError, RecursionError):  # the line is cut off, or another program's
        return None


def _is_script(script: object) -> bool:
    if not isinstance(script, dict) or not all(isinstance(script.get(name), str) for name in _TEXTS):
        return False
    since = script.get("since")
    return isinstance(since, int | float) and 0 <= since < _LATEST


def warm_pods(jobs: Sequence[Object], pods: Sequence[Object]) -> list[tuple[Object, Object | None]]:
    """Return the Jobs of a cluster's warm pods, each with its pod."""
    by_job = script_status.pods_by_job(pods)
    return [(job, by_job.get(job["metadata"]["name"])) for job in jobs if warm_job.is_warm(job)]


def running(warm: Iterable[tuple[Object, Object | None]]) -> list[Object]:
    """Return the warm pods that have not ended."""
    return [pod for _, pod in warm if pod and not script_status.ended(pod)]


def status(
    master: str, warm: tuple[Object, Object | None], scripts: WarmScripts, events: pod_events.PodEvents
) -> Iterator[ScriptStatus]:
    """Yield the status of the scripts in a warm pod, then of the pod.

    Args:
        master: the master's job.
        warm: the Job of the warm pod, and the pod.
        scripts: the scripts that run in the pod.
        events: of the pod, else of the Job.
    """
    job, pod = warm
    runs_on = pod_status.runs_on(pod) if pod else ""
    for script in scripts:
        yield ScriptStatus(
            name=script["name"], phase=ScriptPhase.RUNNING, command=script["command"], runs_on=runs_on,
            since=script["since"], progress=latest([script["progress"]]),
        )  # fmt: skip
    phase, exit_code, reason = script_status.outcome(master, job, pod, events)
    yield ScriptStatus(
        name=warm_job.name(job), phase=_PHASES.get(phase, phase), command=_COMMAND, runs_on=runs_on,
        since=pod_status.since(pod or job), exit_code=exit_code, reason=reason,
    )  # fmt: skip
