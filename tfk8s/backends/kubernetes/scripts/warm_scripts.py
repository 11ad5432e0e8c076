"""Runs a session script in the user's warm pod."""

from __future__ import annotations

import contextlib
from typing import Any

from tfk8s.backends.kubernetes import containers
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.scripts import script_jobs, script_pod, warm_pods
from tfk8s.backends.kubernetes.scripts.end_watch import EndWatch
from tfk8s.backends.kubernetes.scripts.warm_stream import Unusable, WarmScript
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core import compact
from tfk8s.core.script import Outcome, Script
from tfk8s.errors import ClusterError, ScriptLost
from tfk8s.log import log
from tfk8s.render.pods import Object
from tfk8s.sessions import error_names, failures
from tfk8s.sessions.forks.fork_client import READ_LATER, read_at_import
from tfk8s.sessions.timing import TIMING

_OWN_TASK = "TFK8S_INDEX"  # the variable of scripts that run once for each task


def fits(cluster: DeployedCluster, script: Script) -> bool:
    """Return whether a script may run in a warm pod: it needs nothing that a fork lacks, and one folder is enough."""
    needs_pod = script.fresh or script.gpus or script.requirements or script.downloads
    at_import = read_at_import(script.environment).keys() - READ_LATER
    return cluster.warm is not False and not (needs_pod or at_import or _OWN_TASK in script.environment)


def run(client: Client, cluster: DeployedCluster, script: Script, archive: bytes) -> Outcome | None:
    """Run a script, whose folder is packed in the archive, in the user's warm pod to its end; return how it ended.

    None if the script needs a pod of its own.

    The first SIGINT or SIGTERM goes to the script as it is, the second as SIGTERM, the third as SIGKILL.

    Raises:
        ClusterError: the script did not end by itself; says why.
        ScriptLost: Kubernetes removed the pod.
    """
    pod = warm_pods.get(client, cluster)
    if pod is None:
        return None
    request = {
        "arguments": script.runner_arguments(script.path.name), "archive": len(archive), "stdin": streams.is_input(0),
        "environment": {
            **script.environment, "TFK8S_JOBS": compact.format_jobs(cluster.jobs), "TFK8S_TARGET": cluster.target,
        },
    }  # fmt: skip
    with EndWatch(client, cluster.namespace, cluster.name) as watch:
        try:
            with contextlib.closing(WarmScript(client, pod)) as running:
                end = running.run(request, archive)
            outcome = _outcome(client, script, pod, end)
        except Unusable:
            return None
        except ClusterError:
            script_jobs.require_cluster(client, cluster, script)
            raise
        if outcome.task_failed:
            is_recent = end["note"] == error_names.A_TASK_FAILED_JUST_NOW
            ends = watch.ends(TIMING.script_reason_timeout if is_recent else 0.0)
            script_pod.explain(client, cluster, end["since"], ends)
    return outcome


def _outcome(client: Client, script: Script, pod: Object, end: dict[str, Any]) -> Outcome:
    """Return how a script ended.

    Raises:
        ClusterError: the script ran out of memory, or its pod ended.
        ScriptLost: the process that runs scripts ended, or Kubernetes removed the pod.
    """
    if (end["pod_ends"] and end.get("exit")) or "error" in end:
        warm_pods.require_running(client, pod)
    if "error" in end:
        raise ScriptLost(f"the script was lost: {end['error']}", help="`tfk8s submit --retries 3` runs it again")
    if end["out_of_memory"]:
        cause, change = containers.out_of_memory(pod)
        raise ClusterError(f"the script was killed {cause}", help=f"{change} the memory of the master's job")
    code = int(end["exit"])
    if message := failures.ended_by_signal(str(script.path), code):
        log.warning(message)
    return Outcome(code if code >= 0 else 128 - code, task_failed=error_names.is_task_failure(end["note"]))
