"""The pod of a session script: its start, its output, and the meaning of its end."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tfk8s import polling, spans
from tfk8s.backends.kubernetes import status
from tfk8s.backends.kubernetes.api_server import logs, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.informer import Informer
from tfk8s.backends.kubernetes.pods import containers, disruptions, image_pull, pod_status
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.backends.kubernetes.scripts import script_start
from tfk8s.backends.kubernetes.scripts.script_output import ScriptOutput
from tfk8s.backends.kubernetes.workloads import script_status
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.backends.protocol import NODE_TIMEOUT
from tfk8s.core import naming
from tfk8s.core.output.tensorflow_log import TensorFlowLines
from tfk8s.core.script import WHOLE_LOG, LogOptions, Outcome
from tfk8s.core.status import Phase
from tfk8s.errors import ClusterError, ScriptLost
from tfk8s.render import script_job
from tfk8s.render.pods import Object
from tfk8s.sessions import error_names
from tfk8s.sessions.pod.end_line import read_end
from tfk8s.sessions.timing import TIMING

if TYPE_CHECKING:  # which imports this module
    from tfk8s.backends.kubernetes.scripts.stream.pod_stream import PodScript

START_TIMEOUT = 120.0
QUOTA_TIMEOUT = 10.0  # for a quota that is used up: pods that end now, as after `restart`, make room
ENDED = "the script was ended"
RETRY_ADVICE = "`tfk8s submit --retries 3` runs it again"
_STREAMS = 2
_INTERRUPTED = 128 + signal.SIGINT


def find(client: Client, cluster: DeployedCluster, name: str) -> Object | None:
    """Return the pod of a script; None before and after its life."""
    query = paths.labelled({script_job.JOB_NAME: script_job.object_name(cluster.name, name)})
    pods = client.get(paths.collection("Pod", cluster.namespace), query)["items"]
    return pods[0] if pods else None


def wait_for_start(informer: Informer, cluster: DeployedCluster, name: str, timeout: float | None = None) -> Object:
    """Return the pod of a script once its container runs, or has run.

    Args:
        informer: of the cluster.
        cluster: the cluster.
        name: the script's name, or the warm pod's.
        timeout: in seconds; None is a default, which is longer for a node that starts and shorter for a quota.

    Raises:
        ClusterError: the script can't start; says why.
        PodDeleted: somebody deleted the pod or its Job.
        ScriptLost: Kubernetes removed the pod before its start.
    """
    reason, needs_node, pulls, used_up = "its pod is not created yet", False, False, False
    begin = time.monotonic()

    def poll() -> Object | None:
        nonlocal reason, needs_node, pulls, used_up
        change = informer.last_change(script_job.object_name(cluster.name, name))
        if change is None:
            if time.monotonic() - begin >= polling.TELL_SECONDS:  # the events need requests of their own
                reason, used_up = script_start.why_no_pod(informer, cluster, name)
            return None
        pod = change.object
        has_started = any("waiting" not in status["state"] for status in containers.statuses(pod))
        require_kept(pod, ENDED if has_started else "the script can't start", change.deleted)
        if has_started:
            return pod
        events = script_start.events(informer, pod) if status.needs_events(pod) else PodEvents()
        needs_node = needs_node or pod_status.waits_for_node(pod, events)
        phase, reason = pod_status.phase_and_reason(cluster.master.job, pod, events, fields=script_job.FIELDS)
        pulls = image_pull.is_under_way(pod, events.pull) or (pulls and not reason)  # not after a failure
        reason = reason or script_start.before_start(pod)
        if phase is Phase.FAILED:
            raise ClusterError(f"the script can't start: {reason}")
        return None

    def limit() -> float:
        if timeout is not None:
            return timeout
        return NODE_TIMEOUT if needs_node or pulls else QUOTA_TIMEOUT if used_up else START_TIMEOUT

    with spans.part("wait for pod"):
        return polling.wait_until(poll, lambda: f"the script to start: {reason}", limit, announce=True)


def show(client: Client, cluster: DeployedCluster, name: str, options: LogOptions) -> None:
    """Write the output of a script so far."""
    if pod := find(client, cluster, name):
        options = _with_ends(pod, options)
        write(_lines(client, cluster, pod, options), options)


def read(client: Client, cluster: DeployedCluster, name: str, options: LogOptions = WHOLE_LOG) -> Iterator[str]:
    """Yield the lines of a script so far, output and errors; with `follow`, until the script's end."""
    if pod := find(client, cluster, name):
        options = _with_ends(pod, options)
        yield from texts(_followed(client, pod, options) if options.follow else _lines(client, cluster, pod, options))


def _followed(client: Client, pod: Object, options: LogOptions) -> Iterable[str]:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]

    def may_write() -> bool:
        found = client.find(paths.pod(namespace, name))
        return found is not None and script_status.ended(found) is None

    return logs.Follower(client, namespace, name, options, may_write, naming.SCRIPT_CONTAINER)


def texts(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that a script wrote, of all lines of its log."""
    for line in lines:
        text, _ = _parse(line)
        if text is not None:
            yield text.removeprefix(naming.SCRIPT_MARK)


def _lines(client: Client, cluster: DeployedCluster, pod: Object, options: LogOptions) -> list[str]:
    return logs.read_pod(client, cluster.namespace, pod["metadata"]["name"], options, naming.SCRIPT_CONTAINER)


def follow(
    informer: Informer, cluster: DeployedCluster, name: str, options: LogOptions,
    stream: PodScript | None = None,
) -> Outcome:  # fmt: skip
    """Write the output of a script until its end, and why it lost tasks; return how it ended.

    Args:
        informer: of the script's cluster.
        cluster: the script's cluster.
        name: the script's name.
        options: the part of the output.
        stream: to the script's pod, which tells the end, and copies files, also after Ctrl-C.

    Raises:
        ClusterError: the script did not end by itself, or can't be followed; says why.
        ScriptLost: Kubernetes removed its pod.
    """
    pod = wait_for_start(informer, cluster, name)
    try:
        pod, end = _follow(informer, script_job.object_name(cluster.name, name), pod, _with_ends(pod, options), stream)
    except ClusterError as error:
        raise ClusterError(
            f"lost sight of {name}, which goes on: {error}",
            help=f"`tfk8s logs -f --namespace {cluster.namespace} {cluster.name} {name}` shows it again",
        ) from error
    result = outcome(pod, end)
    if result.task_failed:
        since = pod_status.seconds(pod["metadata"]["creationTimestamp"])
        explain(informer.client, cluster, since, end["message"], informer.ends)
    return result


def _follow(
    informer: Informer, job: str, pod: Object, options: LogOptions, stream: PodScript | None
) -> tuple[Object, Object]:
    """Write the output of a script's pod until its end; return the pod's last version, and its container's end."""
    result: tuple[Object, Object] | None = None

    def is_running() -> bool:
        nonlocal result
        change = informer.last_change(job)
        assert change is not None
        end = script_status.ended(change.object) or ({} if change.deleted else None)
        result = None if end is None else (change.object, end)
        return result is None

    name = pod["metadata"]["name"]
    lines = logs.Follower(informer.client, informer.namespace, name, options, is_running, naming.SCRIPT_CONTAINER)
    confirms = stream.confirms if stream else None
    try:
        end = write(lines, options, confirms)
    except KeyboardInterrupt:
        if stream and stream.interrupt():
            write(lines, options, confirms)  # the lines that are left
            stream.report(Outcome(_INTERRUPTED))
        raise
    return (pod, end) if end else result or (pod, {})


def explain(
    client: Client, cluster: DeployedCluster, since: float, note: str, read_ends: Callable[[float], Mapping[str, str]]
) -> None:
    """Write why tasks are missing, or were lost while a script ran. Kubernetes knows more than the script's pod.

    Args:
        client: the API server.
        cluster: the script's cluster.
        since: when the script began.
        note: the note of the script's runner, which says that a task failed.
        read_ends: as `Informer.ends`.
    """
    is_recent = note == error_names.A_TASK_FAILED_JUST_NOW
    ends = read_ends(TIMING.script_reason_timeout if is_recent else 0.0)
    for task in status.read(client, cluster).tasks:
        pod = naming.pod(cluster.name, task.task.job, task.task.index)
        if why := ends.get(pod) or task.reason_since(since):
            sys.stderr.write(f"tfk8s: {task.task}: {why}\n")


def outcome(pod: Object, end: Object) -> Outcome:
    """Return how a script ended, from the end of its container.

    Raises:
        ClusterError: the script did not end by itself.
        ScriptLost: Kubernetes removed its pod.
    """
    code = end.get("exitCode")
    if code != 0:
        require_kept(pod, ENDED)
    if code is None:
        raise ClusterError(f"the script's pod {pod['metadata']['name']} is gone: {end.get('reason', 'it was deleted')}")
    if end.get("reason") == "OOMKilled":
        raise killed(pod)
    return Outcome(int(code), task_failed=error_names.is_task_failure(end.get("message", "")))


def killed(pod: Object, subject: str = "the script") -> ClusterError:
    """Return the error about a pod whose container ran out of memory."""
    cause, change = containers.out_of_memory(pod)
    return ClusterError(f"{subject} was killed {cause}", help=f"{change} {script_job.FIELDS}.memory in the job file")


def require_kept(
    pod: Object, state: str, deleted: bool = False, *, subject: str = "the script", advice: str | None = RETRY_ADVICE
) -> None:
    """Check that a script's pod is not removed.

    Args:
        pod: the last version of the pod.
        state: the state of the script, for an error, if somebody deleted the pod.
        deleted: whether the pod is gone.
        subject: the script, for an error.
        advice: the help if Kubernetes removes the pod.

    Raises:
        ScriptLost: Kubernetes removes it, for reasons that have nothing to do with the script.
        PodDeleted: somebody deleted it; begins with the state of the script.
    """
    if disrupted := disruptions.disruption("", pod):
        raise ScriptLost(f"{subject} was lost with its pod: {disrupted[0]}", help=advice)
    if deleted or "deletionTimestamp" in pod["metadata"]:
        raise script_start.PodDeleted(f"{state}: {disruptions.DELETED}")


def _with_ends(pod: Object, options: LogOptions) -> LogOptions:
    """Return the options that read the script's last lines: an ended script's log has two more."""
    if options.tail is None or script_status.ended(pod) is None:
        return options
    return replace(options, tail=options.tail + _STREAMS)


def _parse(line: str) -> tuple[str | None, tuple[str, int, str] | None]:
    """Return a line as the script wrote it, None for a line of process 1; and the script's end, if it is there."""
    end = read_end(line)
    text = end[0] if end else line
    return (text if text or text == line else None), end


def write(lines: Iterable[str], options: LogOptions, confirms: Callable[[int], bool] | None = None) -> Object | None:
    """Write lines of a script to this process' streams; return its end if both of its streams say that.

    The end is believed if the script lost a task, or if the script's pod confirms the exit code. Any other end comes
    from kubelet, which reports it two seconds later.
    """
    ended, own = 0, (TensorFlowLines(), TensorFlowLines())
    with contextlib.closing(ScriptOutput(in_place=options.follow and not options.timestamps)) as output:
        for line in lines:
            time, space, line = line.partition(" ") if options.timestamps else ("", "", line)
            text, end = _parse(line)
            written = (text or "").removeprefix(naming.SCRIPT_MARK)
            is_error = (text or "").startswith(naming.SCRIPT_MARK)
            if text is not None and not (options.brief and own[is_error].include(written)):
                output.write(f"{time}{space}{written}\n", is_error=is_error)
            ended += bool(end)
            if end and ended == _STREAMS and (error_names.is_task_failure(end[2]) or (confirms and confirms(end[1]))):
                return {"exitCode": end[1], "message": end[2]}
    return None
