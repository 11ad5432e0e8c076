"""Runs session scripts as Jobs: brings the script's folder along, passes its output and its exit code on."""

from __future__ import annotations

import secrets
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping

from tfk8s import manifests, reasons, rendered, scriptjobs, unpack, verdicts, waiting
from tfk8s.backends import Outcome, Script
from tfk8s.backends.kubernetes import archive, logs, nodes, observe, paths, stdin, streams
from tfk8s.backends.kubernetes.client import Client, tell
from tfk8s.backends.kubernetes.errors import ApiError
from tfk8s.backends.kubernetes.fates import Fates
from tfk8s.backends.kubernetes.observe import Cluster
from tfk8s.backends.kubernetes.watch import LastSeen, Watch
from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.pods import Object
from tfk8s.spec import Task
from tfk8s.status import Phase

MOST_IN_SECRET = 700_000  # an object has at most 1.5 MB, and a Secret's data grow by a third
START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_FATE_SECONDS = 3.0  # kubelet tells so much later what became of a container, at most
_MARK = unpack.MARK.decode()
_STREAMS = 2
_HANGUP = 128 + signal.SIGHUP
_TERMINATION_MESSAGE = "/dev/termination-log"  # what a container writes there, its pod's status tells

# Takes an archive of a known size from standard input; it is there when it is whole.
_TAKE = """
import os, sys
with open(sys.argv[1] + ".part", "wb") as part:
    part.write(sys.stdin.buffer.read(int(sys.argv[2])))
os.rename(part.name, sys.argv[1])
"""


def run(client: Client, cluster: Cluster, script: Script) -> Outcome:
    """Run a script to its end; return how it ended.

    Ctrl-C and SIGTERM end the script too. It goes on where this process just goes away, loses its terminal, or loses
    sight of the script.
    """
    blocks = stdin.waiting()
    name = start(client, cluster, script, stdin=blocks is not None)
    failures: list[ClusterError] = []

    def unattached(error: ClusterError) -> None:
        failures.append(error)
        _discard(client, cluster, name)

    try:
        pod = _started(client, cluster, name)["metadata"]["name"]
    except BaseException:
        _discard(client, cluster, name)
        raise
    if blocks is not None:
        stdin.PassedOn(client, cluster.namespace, pod, blocks, unattached).start()
    try:
        return show(client, cluster, name, follow=True)
    except (KeyboardInterrupt, SystemExit) as end:
        if getattr(end, "code", None) != _HANGUP:
            _discard(client, cluster, name)
        raise
    except ClusterError as error:
        if failures:
            raise ClusterError(
                f"the script's standard input can't be passed on: {failures[0]}", help="give it none: < /dev/null"
            ) from error
        raise


def start(client: Client, cluster: Cluster, script: Script, *, stdin: bool = False) -> str:
    """Make the Job, and return the script's name once its pod can go on without this process.

    With `stdin`, it waits for somebody to attach to its standard input.
    """
    packed = archive.pack(script.path, script.requirements)
    small = len(packed) <= MOST_IN_SECRET
    master = cluster.set_of(cluster.master.job)
    if master is None:
        raise ClusterError(f'the master of "{cluster.name}" is missing', help="`tfk8s up` makes it again")
    name = f"script-{secrets.token_hex(3)}"
    on = scriptjobs.object_name(cluster.name, name)
    gpus = scriptjobs.gpus_like(script.gpus, cluster.sets.values())
    if gpus:
        nodes.require_gpus(client, gpus.resource, gpus.count)
    run = scriptjobs.Run(
        arguments=_arguments(script),
        environment=_environment(cluster, script, small=small),
        gpus=gpus,
        stdin=stdin,
    )
    made = scriptjobs.job(on, master, run)
    files = rendered.files((*manifests.TASK_FILES, *manifests.SCRIPT_FILES))
    try:
        # The pod waits for its Secret, which is the Job's from the first: nothing of it can be left behind.
        uid = client.send("POST", paths.collection("Job", cluster.namespace), body=made)["metadata"]["uid"]
        brought = scriptjobs.secret(on, uid, cluster.name, files, packed if small else None)
        client.send("POST", paths.collection("Secret", cluster.namespace), body=brought)
        if not small:
            pod = _started(client, cluster, name)["metadata"]["name"]
            command = ["python3", "-c", _TAKE, scriptjobs.STREAMED_ARCHIVE, str(len(packed))]
            streams.execute(client, cluster.namespace, pod, command, _blocks(packed))
    except BaseException:
        _discard(client, cluster, name)
        raise
    return name


def show(client: Client, cluster: Cluster, name: str, *, follow: bool, tail: int | None = None) -> Outcome:
    """Pass the output of a script on; with `follow`, to its end, and return how it ended."""
    _require(client, cluster, name)
    if follow:
        fates = Fates(client, cluster)
        pod = _started(client, cluster, name)
        end = _follow(client, cluster, name, pod["metadata"]["name"], _tail(pod, tail))
        outcome = _outcome(pod, end)
        if outcome.for_a_task:
            known = fates.known(_FATE_SECONDS if end["message"] == verdicts.A_TASK_FAILED_JUST_NOW else 0.0)
            _explain(client, cluster, reasons.seconds(pod["metadata"]["creationTimestamp"]), known)
        return outcome
    if found := _pod(client, cluster, name):
        _write(logs.read_pod(client, cluster.namespace, found["metadata"]["name"], _tail(found, tail)))
    return Outcome(0)


def stop(client: Client, cluster: Cluster, name: str) -> None:
    """Delete a script's Job, and wait until its pod is gone."""
    _require(client, cluster, name)
    _discard(client, cluster, name)
    waiting.wait_until(lambda: _pod(client, cluster, name) is None, f"{name} to end", _STOP_SECONDS, tell=tell)


def _arguments(script: Script) -> list[str]:
    flags = ["--tf1"] * script.tf1 + ["--isolate"] * script.isolate
    return [*flags, script.path.name, *script.arguments]


def _environment(cluster: Cluster, script: Script, *, small: bool) -> dict[str, str]:
    environment = {
        **script.environment,
        "TFK8S_TARGET": cluster.target,
        verdicts.VARIABLE: _TERMINATION_MESSAGE,
        "TFK8S_ARCHIVE": scriptjobs.MOUNTED_ARCHIVE if small else scriptjobs.STREAMED_ARCHIVE,
    }
    if script.requirements:
        environment["TFK8S_REQUIREMENTS"] = archive.requirements_in_folder(script.path, script.requirements)
    return environment


def _blocks(data: bytes) -> Iterator[bytes]:
    size = 1 << 17
    return (data[start : start + size] for start in range(0, len(data), size))


def _discard(client: Client, cluster: Cluster, name: str) -> None:
    """Delete a script's Job, where there is one, and what belongs to it."""
    path = f"{paths.collection('Job', cluster.namespace)}/{scriptjobs.object_name(cluster.name, name)}"
    try:
        client.send("DELETE", path, {"propagationPolicy": "Background"})
    except ApiError as error:
        if error.code != 404:
            raise


# ---- looking -------------------------------------------------------------------------------------------------------


def _require(client: Client, cluster: Cluster, name: str) -> None:
    """Check that the cluster has a script of that name.

    Raises:
        InvalidInput: it has none; says which it has.
    """
    jobs = client.get(paths.collection("Job", cluster.namespace), paths.of_cluster(cluster.name))["items"]
    names = [scriptjobs.name(job) for job in jobs]
    if name not in names:
        there = f"there are {', '.join(names)}" if names else "there are none"
        raise InvalidInput(
            f'cluster "{cluster.name}" has no script "{name}"; {there}',
            help="one that has ended is removed after the job file's `ttl`",
        )


def _pod(client: Client, cluster: Cluster, name: str) -> Object | None:
    """Return the pod of a script, where there is one."""
    query = paths.labelled({scriptjobs.JOB_NAME: scriptjobs.object_name(cluster.name, name)})
    found = client.get(paths.collection("Pod", cluster.namespace), query)["items"]
    return found[0] if found else None


def _started(client: Client, cluster: Cluster, name: str) -> Object:
    """Return the pod of a script once its container runs, or has run.

    Raises:
        ClusterError: it can't start; says why.
    """
    reason = "its pod is not made"

    def look() -> Object | None:
        nonlocal reason
        pod = _pod(client, cluster, name)
        if pod is None:
            return None
        if any("waiting" not in container["state"] for container in pod["status"].get("containerStatuses", ())):
            return pod
        phase, reason = reasons.judge(cluster.master.job, pod, ())
        reason = (
            reason or f"its container is being made on {pod['spec'].get('nodeName')}, which may have to get the image"
        )
        if phase is Phase.FAILED:
            raise ClusterError(f"the script can't start: {reason}")
        return None

    found = waiting.wait_until(look, lambda: f"the script to start: {reason}", START_SECONDS, tell=tell)
    assert found is not None
    return found


def _follow(client: Client, cluster: Cluster, name: str, pod: str, tail: int | None) -> Object:
    """Pass the output of a script's pod on to its end; return how it ended."""
    last = LastSeen(
        Watch(client, paths.collection("Pod", cluster.namespace), {"fieldSelector": f"metadata.name={pod}"})
    )

    def end() -> Object | None:
        found = client.find(paths.pod(cluster.namespace, pod))
        if found is not None:
            return scriptjobs.ended(found)
        return (scriptjobs.ended(last.thing) if last.thing else None) or {"reason": "somebody deleted it"}

    try:
        told = _write(logs.Follower(client, cluster.namespace, pod, tail, lambda: end() is None))
        return told or end() or {}
    except ClusterError as error:
        raise ClusterError(
            f"lost sight of {name}, which goes on: {error}",
            help=f"`tfk8s logs -f --namespace {cluster.namespace} {cluster.name} {name}` shows it again",
        ) from error


def _explain(client: Client, cluster: Cluster, since: float, known: Mapping[Task, str]) -> None:
    """Write what Kubernetes knows of tasks that are missing or were lost since then: more than the script's pod saw."""
    for task in observe.status(client, cluster).tasks:
        stands = task.reason if task.phase is not Phase.READY or (task.since or since) >= since else ""
        if why := known.get(task.task) or stands:
            sys.stderr.write(f"tfk8s: {task.task}: {why}\n")


def _outcome(pod: Object, end: Object) -> Outcome:
    """Return how a script ended whose container ended so.

    Raises:
        ClusterError: it was not the script's own end.
    """
    if "exitCode" not in end:
        raise ClusterError(f"the script's pod {pod['metadata']['name']} is gone: {end.get('reason')}")
    if end.get("reason") == "OOMKilled":
        limit = pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
        raise ClusterError(
            f"the script was killed at its pod's memory limit of {limit}", help="raise the memory of the master's job"
        )
    return Outcome(int(end["exitCode"]), for_a_task=verdicts.is_of_a_task(end.get("message", "")))


def _tail(pod: Object, tail: int | None) -> int | None:
    """Return how many lines of a pod's log have so many of its script's: in the last ones it says how that ended."""
    return tail if tail is None or scriptjobs.ended(pod) is None else tail + _STREAMS


def _write(lines: Iterable[str]) -> Object | None:
    """Write a script's lines to this process' streams; return at once how it ended where both of its streams say so."""
    ended = 0
    for line in lines:
        end = unpack.read_end(line)
        text = end[0] if end else line
        if text or not end:
            stream = sys.stderr if text.startswith(_MARK) else sys.stdout
            stream.write(f"{text.removeprefix(_MARK)}\n")
            stream.flush()
        if end and (ended := ended + 1) == _STREAMS:
            return {"exitCode": end[1], "message": end[2]}
    return None
