"""Runs a session script in the user's warm pod."""

from __future__ import annotations

import contextlib
from typing import Any

from tfk8s import platforms
from tfk8s.backends import downloads, foreground_scripts
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.scripts import script_jobs, script_pod, script_start, warm_pods
from tfk8s.backends.kubernetes.scripts.end_watch import EndWatch
from tfk8s.backends.kubernetes.scripts.stream import arriving_files, script_stream
from tfk8s.backends.kubernetes.scripts.stream.script_stream import Unusable
from tfk8s.backends.kubernetes.scripts.stream.warm_stream import WarmScript
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core import compact
from tfk8s.core.script import Outcome, Script
from tfk8s.errors import ClusterError, ScriptLost, quoted
from tfk8s.log import log
from tfk8s.render import script_job
from tfk8s.render.pods import Object
from tfk8s.task.programs.import_variables import READ_LATER, read_at_import

_LONGEST = 500  # characters of the reason for which a script was lost


def fits(cluster: DeployedCluster, script: Script) -> bool:
    """Return whether a script may run in a warm pod: it needs nothing that a fork lacks, and one folder is enough.

    The stream to a warm pod waits for pipes.
    """
    own = script.resources
    gpus = own.over(cluster.script).gpus  # a warm pod would keep them while no script runs
    needs_pod = script.fresh or own.cpu or own.memory or gpus or script.requirements
    at_import = read_at_import(script.environment).keys() - READ_LATER
    is_possible = cluster.warm is not False and platforms.POLLS_FILES
    return is_possible and not (needs_pod or at_import)


def run(client: Client, cluster: DeployedCluster, script: Script, archive: bytes) -> Outcome | None:
    """Run a script, whose folder is packed in the archive, in the user's warm pod to its end; return how it ended.

    None if the script needs a pod of its own.

    The first SIGINT or SIGTERM goes to the script as it is, the second as SIGTERM, the third as SIGKILL. After the
    script's end, its downloads are copied, and a signal ends the copy.

    Raises:
        ClusterError: the script did not end by itself, or not all of its files were copied; says why.
        ScriptLost: Kubernetes removed the pod.
    """
    pod = warm_pods.get(client, cluster, script.start_timeout)
    if pod is None:
        return None
    request = {
        "arguments": script.runner_arguments(script.path.name), "archive": len(archive), "stdin": streams.is_input(0),
        "downloads": [download.path for download in script.downloads],
        "environment": {
            **script.environment, "TFK8S_JOBS": compact.format_jobs(cluster.jobs), "TFK8S_TARGET": cluster.target,
        },
    }  # fmt: skip
    with EndWatch(client, cluster.namespace, cluster.name) as watch:
        try:
            with contextlib.closing(WarmScript(client, pod)) as running:
                end = running.run(request, archive)
                problems = arriving_files.copy(running, end, script.downloads)
            outcome = _outcome(client, script, pod, end)
        except Unusable:
            return None
        except ClusterError as error:
            if script.downloads:
                log.warning("the script's files were not copied")
            script_jobs.require_cluster(client, cluster, script)
            if isinstance(error, script_start.PodDeleted):
                _require_kept(pod, watch)
            raise
        if outcome.task_failed:
            script_pod.explain(client, cluster, end["since"], end["note"], watch.ends)
    return downloads.report(problems, outcome)


def _require_kept(pod: Object, watch: EndWatch) -> None:
    """Check the last version of a warm pod that is gone, if that version is known.

    Raises:
        ScriptLost: Kubernetes removed the pod.
        PodDeleted: somebody deleted the pod.
    """
    if change := watch.last_change(pod["metadata"]["labels"][script_job.JOB_NAME]):
        script_pod.require_kept(change.object, script_pod.ENDED, change.deleted)


def _outcome(client: Client, script: Script, pod: Object, end: dict[str, Any]) -> Outcome:
    """Return how a script ended.

    Raises:
        ClusterError: the script ran out of memory, its pod ended, or somebody stopped it.
        ScriptLost: the process that runs scripts ended, or Kubernetes removed the pod.
    """
    if (end["pod_ends"] and end.get("exit")) or "error" in end:
        script_stream.require_running(client, pod)
    if end["stopped"] and end.get("exit"):
        raise ClusterError(f"{script_pod.ENDED} by `tfk8s stop`")
    if "error" in end:
        reason = quoted(end["error"], _LONGEST)[1:-1]  # in one line: any program in the pod may have sent it
        raise ScriptLost(f"the script was lost: {reason}", help=script_pod.RETRY_ADVICE)
    if end["out_of_memory"]:
        raise script_pod.killed(pod)
    return foreground_scripts.outcome(script, int(end["exit"]), end["note"])
