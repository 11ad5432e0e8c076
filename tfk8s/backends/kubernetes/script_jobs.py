"""Runs session scripts as Jobs: brings the script's folder along, has it shown, and ends it."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator

from tfk8s import polling
from tfk8s.backends.kubernetes import paths, scheduling, script_archive, script_pod, stdin, streams
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.informer import Informer
from tfk8s.backends.kubernetes.status import DeployedCluster
from tfk8s.core.script import Outcome, Script
from tfk8s.errors import ClusterError, InvalidInput, Tfk8sError, there_are
from tfk8s.render import package_files, script_job
from tfk8s.sessions import error_names

MOST_IN_SECRET = 700_000  # an object has at most 1.5 MB, and a Secret's data grow by a third
_STOP_SECONDS = 60.0
_HANGUP = 128 + signal.SIGHUP
_TERMINATION_MESSAGE = "/dev/termination-log"  # what a container writes there, its pod's status tells

# Takes an archive of a known size from standard input; it is there when it is whole.
_TAKE = """
import os, sys
with open(sys.argv[1] + ".part", "wb") as part:
    part.write(sys.stdin.buffer.read(int(sys.argv[2])))
os.rename(part.name, sys.argv[1])
"""


def run(client: Client, cluster: DeployedCluster, script: Script) -> Outcome:
    """Run a script to its end; return how it ended.

    Ctrl-C and SIGTERM end the script too. It goes on where this process just goes away, loses its terminal, or loses
    sight of the script.
    """
    blocks = stdin.waiting()
    failures: list[Tfk8sError] = []

    def discard(error: Tfk8sError) -> None:
        failures.append(error)
        _discard(client, cluster, name)

    with Informer(client, cluster.namespace, cluster.name) as informer:
        name = _create(informer, cluster, script, stdin=blocks is not None)
        try:
            pod = script_pod.wait_for_start(informer, cluster, name)["metadata"]["name"]
        except BaseException:
            _discard(client, cluster, name)
            raise
        if blocks is not None:
            stdin.PassedOn(client, cluster.namespace, pod, blocks, discard).start()
        try:
            return script_pod.follow(informer, cluster, name, tail=None)
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


def start(client: Client, cluster: DeployedCluster, script: Script) -> str:
    """Create the Job; return the script's name once its pod needs this process no longer."""
    with Informer(client, cluster.namespace, cluster.name) as informer:
        return _create(informer, cluster, script)


def _create(informer: Informer, cluster: DeployedCluster, script: Script, *, stdin: bool = False) -> str:
    """Create the Job and bring it the script's folder; return the script's name.

    With `stdin`, the script waits until somebody attaches to its standard input.
    """
    packed = script_archive.pack(script.path, script.requirements)
    small = len(packed) <= MOST_IN_SECRET
    master = cluster.set_of(cluster.master.job)
    if master is None:
        raise ClusterError(f'the master of "{cluster.name}" is missing', help="`tfk8s up` makes it again")
    name = f"script-{secrets.token_hex(3)}"
    on = script_job.object_name(cluster.name, name)
    client = informer.client
    gpus = script_job.gpus_like(script.gpus, cluster.sets.values())
    if gpus:
        scheduling.require_gpus(client, gpus.resource, gpus.count)
    files = package_files.of_scripts()
    run = script_job.Run(
        arguments=_arguments(script),
        environment=_environment(cluster, script, small=small),
        files=list(files),
        archived=small,
        gpus=gpus,
        stdin=stdin,
    )
    made = script_job.job(on, master, run)
    try:
        # The pod waits for its Secret, which is the Job's from the first: nothing of it can be left behind.
        uid = client.send("POST", paths.collection("Job", cluster.namespace), body=made)["metadata"]["uid"]
        brought = script_job.secret(on, uid, cluster.name, files, packed if small else None)
        client.send("POST", paths.collection("Secret", cluster.namespace), body=brought)
        if not small:
            pod = script_pod.wait_for_start(informer, cluster, name)["metadata"]["name"]
            command = ["python3", "-c", _TAKE, script_job.STREAMED_ARCHIVE, str(len(packed))]
            streams.execute(client, cluster.namespace, pod, command, _blocks(packed))
    except BaseException:
        _discard(client, cluster, name)
        raise
    return name


def show(client: Client, cluster: DeployedCluster, name: str, *, follow: bool, tail: int | None = None) -> Outcome:
    """Pass the output of a script on; with `follow`, to its end, and return how it ended."""
    _require(client, cluster, name)
    if follow:
        with Informer(client, cluster.namespace, cluster.name) as informer:
            return script_pod.follow(informer, cluster, name, tail)
    script_pod.show(client, cluster, name, tail)
    return Outcome(0)


def stop(client: Client, cluster: DeployedCluster, name: str) -> None:
    """Delete a script's Job, and wait until its pod is gone."""
    _require(client, cluster, name)
    _discard(client, cluster, name)
    polling.wait_until(
        lambda: script_pod.find(client, cluster, name) is None, f"{name} to end", _STOP_SECONDS, announce=True
    )


def _arguments(script: Script) -> list[str]:
    flags = ["--tf1"] * script.tf1 + ["--isolate"] * script.isolate
    return [*flags, script.path.name, *script.arguments]


def _environment(cluster: DeployedCluster, script: Script, *, small: bool) -> dict[str, str]:
    environment = {
        **script.environment,
        "TFK8S_TARGET": cluster.target,
        error_names.VARIABLE: _TERMINATION_MESSAGE,
        "TFK8S_ARCHIVE": script_job.MOUNTED_ARCHIVE if small else script_job.STREAMED_ARCHIVE,
    }
    if script.requirements:
        environment["TFK8S_REQUIREMENTS"] = script_archive.requirements_in_folder(script.path, script.requirements)
    return environment


def _blocks(data: bytes) -> Iterator[bytes]:
    size = 1 << 17
    return (data[start : start + size] for start in range(0, len(data), size))


def _discard(client: Client, cluster: DeployedCluster, name: str) -> None:
    """Delete a script's Job, where there is one, and what belongs to it."""
    path = f"{paths.collection('Job', cluster.namespace)}/{script_job.object_name(cluster.name, name)}"
    client.send("DELETE", path, {"propagationPolicy": "Background"})


# ---- looking -------------------------------------------------------------------------------------------------------


def _require(client: Client, cluster: DeployedCluster, name: str) -> None:
    """Check that the cluster has a script of that name.

    Raises:
        InvalidInput: it has none; says which it has.
    """
    jobs = client.get(paths.collection("Job", cluster.namespace), paths.of_cluster(cluster.name))["items"]
    names = [script_job.name(job) for job in jobs]
    if name not in names:
        raise InvalidInput(
            f'cluster "{cluster.name}" has no script "{name}"; {there_are(names)}',
            help="one that has ended is removed after the job file's `ttl`",
        )
