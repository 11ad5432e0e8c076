"""Runs session scripts as Jobs: brings the script's folder along, passes its output and its exit code on."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator

from tfk8s import manifests, reasons, rendered, scriptjobs, unpack, waiting
from tfk8s.backends import Script
from tfk8s.backends.kubernetes import archive, logs, paths, streams
from tfk8s.backends.kubernetes.client import MERGE, Client
from tfk8s.backends.kubernetes.observe import Cluster
from tfk8s.errors import ClusterError
from tfk8s.pods import Object
from tfk8s.status import Phase

MOST_IN_SECRET = 700_000  # an object has at most 1.5 MB, and a Secret's data grow by a third
START_SECONDS = 120.0
_MARK = unpack.MARK.decode()

# Takes an archive of a known size from standard input; it is there when it is whole.
_TAKE = """
import os, sys
with open(sys.argv[1] + ".part", "wb") as part:
    part.write(sys.stdin.buffer.read(int(sys.argv[2])))
os.rename(part.name, sys.argv[1])
"""


def run(client: Client, cluster: Cluster, script: Script) -> int:
    """Run a script to its end; return its exit code. What interrupts this process ends the script too."""
    name = start(client, cluster, script)
    try:
        return follow(client, cluster.namespace, name)
    except BaseException:
        query = {"propagationPolicy": "Background"}
        client.send("DELETE", f"{paths.collection('Job', cluster.namespace)}/{name}", query)
        raise


def start(client: Client, cluster: Cluster, script: Script) -> str:
    """Make the Job, and return its name once its pod has the script."""
    packed = archive.pack(script.path)
    small = len(packed) <= MOST_IN_SECRET
    master = cluster.set_of(cluster.master.job)
    if master is None:
        raise ClusterError(f'the master of "{cluster.name}" is missing', help="`tfk8s up` makes it again")
    name = f"{cluster.name[:40].rstrip('-')}-script-{secrets.token_hex(4)}"
    made = scriptjobs.job(name, master, _arguments(script), _environment(cluster, script, small=small))
    brought = scriptjobs.secret(
        name, cluster.name, rendered.files((*manifests.TASK_FILES, *manifests.SCRIPT_FILES)), packed if small else None
    )
    client.send("POST", paths.collection("Secret", cluster.namespace), body=brought)
    uid = client.send("POST", paths.collection("Job", cluster.namespace), body=made)["metadata"]["uid"]
    client.send("PATCH", paths.path(brought, cluster.namespace), body=scriptjobs.owned(name, uid), content_type=MERGE)
    if not small:
        pod = _started(client, cluster.namespace, name)["metadata"]["name"]
        command = ["python3", "-c", _TAKE, scriptjobs.STREAMED_ARCHIVE, str(len(packed))]
        streams.execute(client, cluster.namespace, pod, command, _blocks(packed))
    return name


def follow(client: Client, namespace: str, name: str) -> int:
    """Pass the output of a script's Job on, from its beginning to its end; return its exit code."""
    pod = _started(client, namespace, name)["metadata"]["name"]
    for line in logs.Follower(client, namespace, pod, None, lambda: _end(client, namespace, pod) is None):
        stream = sys.stderr if line.startswith(_MARK) else sys.stdout
        stream.write(f"{line.removeprefix(_MARK)}\n")
        stream.flush()
    end = _end(client, namespace, pod)
    if end is None or "exitCode" not in end:
        raise ClusterError(f"the script's pod {pod} is gone: {(end or {}).get('reason', 'somebody deleted it')}")
    if end.get("reason") == "OOMKilled":
        raise ClusterError(
            "the script was killed at its pod's memory limit", help="raise the memory of the master's job"
        )
    return int(end["exitCode"])


def _arguments(script: Script) -> list[str]:
    flags = ["--tf1"] * script.tf1 + ["--isolate"] * script.isolate
    return [*flags, script.path.name, *script.arguments]


def _environment(cluster: Cluster, script: Script, *, small: bool) -> dict[str, str]:
    return {
        **script.environment,
        "TFK8S_TARGET": cluster.target,
        "TFK8S_ARCHIVE": scriptjobs.MOUNTED_ARCHIVE if small else scriptjobs.STREAMED_ARCHIVE,
    }


def _blocks(data: bytes) -> Iterator[bytes]:
    size = 1 << 17
    return (data[start : start + size] for start in range(0, len(data), size))


def _started(client: Client, namespace: str, name: str) -> Object:
    """Return the pod of a Job once its container runs, or has run.

    Raises:
        ClusterError: it can't start; says why.
    """
    reason = "its pod is not made"

    def look() -> Object | None:
        nonlocal reason
        found = client.get(
            paths.collection("Pod", namespace), {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
        )
        for pod in found["items"]:
            containers = pod["status"].get("containerStatuses", ())
            if any("waiting" not in container["state"] for container in containers):
                return dict(pod)
            phase, why = reasons.judge("JOB", pod, ())
            reason = why or reason
            if phase is Phase.FAILED:
                raise ClusterError(f"the script can't start: {reason}")
        return None

    found = waiting.wait_until(look, lambda: f"the script to start: {reason}", START_SECONDS)
    assert found is not None
    return found


def _end(client: Client, namespace: str, pod: str) -> Object | None:
    """Return how the script's container ended, or None while it runs."""
    found = client.find(paths.pod(namespace, pod))
    if found is None:
        return {}
    for container in found["status"].get("containerStatuses", ()):
        if "terminated" in container["state"]:
            return dict(container["state"]["terminated"])
    return {"reason": found["status"].get("reason")} if found["status"].get("phase") == "Failed" else None
