"""The pod of a session script: its start, what it writes, and what its end means."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping

from tfk8s import polling
from tfk8s.backends.kubernetes import disruptions, informer, logs, paths, pod_status, script_status, status
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.reflector import LastSeen, Reflector
from tfk8s.backends.kubernetes.status import DeployedCluster
from tfk8s.backends.kubernetes.task_ends import TaskEndWatcher
from tfk8s.core.script import Outcome
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase
from tfk8s.errors import ClusterError, ScriptLost
from tfk8s.render import script_job
from tfk8s.render.pods import Object
from tfk8s.sessions import error_names, pod_entrypoint

START_SECONDS = 120.0
_FATE_SECONDS = 3.0  # kubelet tells so much later what became of a container, at most
_MARK = pod_entrypoint.MARK.decode()
_STREAMS = 2


def find(client: Client, cluster: DeployedCluster, name: str) -> Object | None:
    """Return the pod of a script, where there is one."""
    query = paths.labelled({script_job.JOB_NAME: script_job.object_name(cluster.name, name)})
    found = client.get(paths.collection("Pod", cluster.namespace), query)["items"]
    return found[0] if found else None


def started(client: Client, cluster: DeployedCluster, name: str) -> Object:
    """Return the pod of a script once its container runs, or has run.

    Raises:
        ClusterError: it can't start; says why.
        ScriptLost: it was taken away before.
    """
    reason = ""
    seen: Object | None = None

    def look() -> Object | None:
        nonlocal reason, seen
        pod = find(client, cluster, name)
        if pod is None and seen is None:
            return None
        seen = pod or seen
        assert seen is not None
        _require_kept(seen)
        if pod is None:
            raise ClusterError(f"the script can't start: {disruptions.DELETED}")
        if any("waiting" not in container["state"] for container in pod["status"].get("containerStatuses", ())):
            return pod
        phase, reason = pod_status.phase_and_reason(cluster.master.job, pod, ())
        reason = (
            reason or f"its container is being made on {pod['spec'].get('nodeName')}, which may have to get the image"
        )
        if phase is Phase.FAILED:
            raise ClusterError(f"the script can't start: {reason}")
        return None

    # What keeps a pod from being made is told by more than one object: the cluster's looks have them all.
    with informer.follow(client, cluster.namespace, cluster.name) as status:
        found = polling.wait_until(
            look, lambda: f"the script to start: {reason or _why_not_made(status, name)}", START_SECONDS, announce=True
        )
    assert found is not None
    return found


def _why_not_made(status: Callable[[], ClusterStatus], name: str) -> str:
    """Return why a script's Job has no pod."""
    with contextlib.suppress(ClusterError):  # who may not see it is told less
        why = next((script.reason for script in status().scripts if script.name == name), "its Job is gone")
        return why or "its pod is not made"
    return "its pod is not made"


def show(client: Client, cluster: DeployedCluster, name: str, tail: int | None) -> None:
    """Pass on what a script has written."""
    if pod := find(client, cluster, name):
        _write(logs.read_pod(client, cluster.namespace, pod["metadata"]["name"], _tail(pod, tail)))


def follow(client: Client, cluster: DeployedCluster, name: str, tail: int | None) -> Outcome:
    """Pass on what a script writes, to its end; return how it ended, and say what is known of tasks that it lost.

    Raises:
        ClusterError: it did not end by itself, or is out of sight; says why.
        ScriptLost: it was taken away.
    """
    with TaskEndWatcher(client, cluster) as fates:
        pod = started(client, cluster, name)
        pod, end = _follow(client, cluster, name, pod, _tail(pod, tail))
        outcome = _outcome(pod, end)
        if outcome.task_failed:
            known = fates.known(_FATE_SECONDS if end["message"] == error_names.A_TASK_FAILED_JUST_NOW else 0.0)
            _explain(client, cluster, pod_status.seconds(pod["metadata"]["creationTimestamp"]), known)
        return outcome


def _follow(
    client: Client, cluster: DeployedCluster, name: str, pod: Object, tail: int | None
) -> tuple[Object, Object]:
    """Pass the output of a script's pod on to its end; return the pod as it was last, and how its container ended."""
    in_cluster = pod["metadata"]["name"]
    watch = Reflector(
        client, paths.collection("Pod", cluster.namespace), {"fieldSelector": f"metadata.name={in_cluster}"}
    )

    def look() -> tuple[Object, Object] | None:
        now = client.find(paths.pod(cluster.namespace, in_cluster))
        seen = now or last.thing or pod
        end = script_status.ended(seen) or (None if now else {})
        return None if end is None else (seen, end)

    try:
        with LastSeen(watch) as last:
            told = _write(logs.Follower(client, cluster.namespace, in_cluster, tail, lambda: look() is None))
            return (pod, told) if told else look() or (pod, {})
    except ClusterError as error:
        raise ClusterError(
            f"lost sight of {name}, which goes on: {error}",
            help=f"`tfk8s logs -f --namespace {cluster.namespace} {cluster.name} {name}` shows it again",
        ) from error


def _explain(client: Client, cluster: DeployedCluster, since: float, known: Mapping[Task, str]) -> None:
    """Write what Kubernetes knows of tasks that are missing or were lost since then: more than the script's pod saw."""
    for task in status.status(client, cluster).tasks:
        if why := known.get(task.task) or task.reason_since(since):
            sys.stderr.write(f"tfk8s: {task.task}: {why}\n")


def _outcome(pod: Object, end: Object) -> Outcome:
    """Return how a script ended whose container ended so.

    Raises:
        ClusterError: it was not the script's own end.
        ScriptLost: it was taken away.
    """
    code = end.get("exitCode")
    if code != 0:
        _require_kept(pod)
    if code is None:
        raise ClusterError(f"the script's pod {pod['metadata']['name']} is gone: {end.get('reason', 'it was deleted')}")
    if end.get("reason") == "OOMKilled":
        limit = pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
        raise ClusterError(
            f"the script was killed at its pod's memory limit of {limit}", help="raise the memory of the master's job"
        )
    return Outcome(int(code), task_failed=error_names.is_task_failure(end.get("message", "")))


def _require_kept(pod: Object) -> None:
    """Check that nobody takes a script's pod away.

    Raises:
        ScriptLost: Kubernetes does, for reasons that have nothing to do with the script.
        ClusterError: somebody deleted it.
    """
    if disrupted := disruptions.disruption("", pod):
        raise ScriptLost(
            f"the script was lost with its pod: {disrupted[0]}", help="`tfk8s submit --retries 3` runs it again"
        )
    if "deletionTimestamp" in pod["metadata"]:
        raise ClusterError(f"the script was ended: {disruptions.DELETED}")


def _tail(pod: Object, tail: int | None) -> int | None:
    """Return how many lines of a pod's log have so many of its script's: in the last ones it says how that ended."""
    return tail if tail is None or script_status.ended(pod) is None else tail + _STREAMS


def _write(lines: Iterable[str]) -> Object | None:
    """Write a script's lines to this process' streams, and return None: kubelet tells how it ended.

    That comes two seconds after the end. So where both of the script's streams say that it lost a task, return at once
    how it ended; in all other cases what is seen of the script afterwards must be right.
    """
    ended = 0
    for line in lines:
        end = pod_entrypoint.read_end(line)
        text = end[0] if end else line
        if text or not end:
            stream = sys.stderr if text.startswith(_MARK) else sys.stdout
            stream.write(f"{text.removeprefix(_MARK)}\n")
            stream.flush()
        if end and (ended := ended + 1) == _STREAMS and error_names.is_task_failure(end[2]):
            return {"exitCode": end[1], "message": end[2]}
    return None
