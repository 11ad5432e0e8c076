"""Runs session scripts as Jobs: copies the script's folder to the pod, shows the output, and stops the script."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
from collections.abc import Iterator, Mapping

from tfk8s import platforms, spans
from tfk8s.backends.kubernetes.api_server import access_review, paths, streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.informer import Informer
from tfk8s.backends.kubernetes.nodes import scheduling
from tfk8s.backends.kubernetes.pods import pod_ends
from tfk8s.backends.kubernetes.scripts import namespace_rules, script_archive, script_pod, warm_requests
from tfk8s.backends.kubernetes.scripts.stream.pod_stream import CURES, PodScript
from tfk8s.backends.kubernetes.workloads import deployed
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core import compact, naming
from tfk8s.core.script import LogOptions, Outcome, Script
from tfk8s.errors import ClusterError, InvalidInput, NoSuchCluster, Tfk8sError, there_are
from tfk8s.polling import wait_until
from tfk8s.render import package_files, program_job, script_job, warm_job
from tfk8s.render.pods import Object
from tfk8s.sessions import error_names
from tfk8s.task.stream import channel

_STOP_TIMEOUT = 60.0
REMOVAL_TIMEOUT = 3.0  # between the requests of `down` that remove scripts and tasks
_HANGUP = 128 + platforms.SIGHUP
_TERMINATION_MESSAGE = "/dev/termination-log"  # becomes part of the pod's status


def run(client: Client, cluster: DeployedCluster, script: Script, archive: bytes) -> Outcome:
    """Run a script, whose folder is packed in the archive, to its end; return how it ended.

    Ctrl-C and SIGTERM end the script too. After Ctrl-C, the script's downloads are copied. The script continues if this
    process is killed, loses its terminal, or can't reach the API server.
    """
    begun = streams.begin_stdin()
    may_connect = access_review.may_connect(client, cluster.namespace)
    needs = {"files": script.downloads, "standard input": begun is not None, "folder": not _is_small(archive)}
    if not may_connect:
        _require_none(cluster, needs)
    attached = {channel.CLIENT_VARIABLE: "" if begun is None else channel.HAS_INPUT} if may_connect else {}
    with contextlib.ExitStack() as stack:
        informer = stack.enter_context(Informer(client, cluster.namespace, cluster.name))
        name = _create(client, cluster, script, archive, attached)
        with _deleted_on_failure(client, cluster, name):
            pod = script_pod.wait_for_start(informer, cluster, name, script.start_timeout)
            stream = PodScript(client, pod, script.downloads, begun, cluster.grace or 0) if may_connect else None
            if stream is not None:
                stack.callback(stream.close)
                if needs["folder"]:
                    stream.upload(archive)
                stream.start()
        try:
            outcome = script_pod.follow(informer, cluster, name, LogOptions(follow=True), stream)
        except (KeyboardInterrupt, SystemExit) as end:
            if getattr(end, "code", None) != _HANGUP:
                delete_job(client, cluster, name)
            raise
        except ClusterError:
            if stream is not None:
                stream.report_loss()
                stream.require_connection()
            require_cluster(client, cluster, script)
            raise
        return outcome if stream is None else stream.report(outcome)


def require_cluster(client: Client, cluster: DeployedCluster, script: Script) -> None:
    """Raise a ClusterError if the cluster of a script that was ended is gone, too, or goes within 3 seconds.

    `down` removes scripts before tasks.
    """

    def is_removed() -> bool:
        try:
            tasks = deployed.find(client, cluster.namespace, cluster.name).workloads.values()
        except NoSuchCluster:
            return True
        return all("deletionTimestamp" in item["metadata"] for item in tasks)

    try:
        wait_until(is_removed, "the cluster to be removed", REMOVAL_TIMEOUT)
    except Tfk8sError:  # it is not, or the API server does not answer
        return
    raise ClusterError(f'cluster "{cluster.name}" was removed by `tfk8s down`, while {script.path} ran')


def start(client: Client, cluster: DeployedCluster, script: Script) -> str:
    """Create the Job; return the script's name once its pod needs this process no longer."""
    archive = script_archive.pack(script.path, script.requirements)
    if _is_small(archive):
        return _create(client, cluster, script, archive, {})
    if not access_review.may_connect(client, cluster.namespace):
        _require_none(cluster, {"folder": True})
    with Informer(client, cluster.namespace, cluster.name) as informer:
        name = _create(client, cluster, script, archive, {})
        with _deleted_on_failure(client, cluster, name):
            pod = script_pod.wait_for_start(informer, cluster, name, script.start_timeout)
            with contextlib.closing(PodScript(client, pod)) as stream:
                stream.upload(archive)
    return name


def _is_small(archive: bytes) -> bool:
    """Return whether a script's folder fits into the Secret, beside tfk8s' own files."""
    return len(archive) <= program_job.max_secret_bytes(package_files.zip_of_scripts())


def _require_none(cluster: DeployedCluster, needs: Mapping[str, object]) -> None:
    """Check that a script of a user who may not connect to pods needs nothing that comes or goes by a connection.

    Raises:
        ClusterError: the script does; says how to do without.
    """
    if what := next((what for what, is_needed in needs.items() if is_needed), ""):
        raise ClusterError(
            f"the script's {what} can't be passed on: you may not connect to pods (pods/portforward) in namespace "
            f"{cluster.namespace}",
            help=CURES[what],
        )


@contextlib.contextmanager
def _deleted_on_failure(client: Client, cluster: DeployedCluster, name: str) -> Iterator[None]:
    """Delete a script's Job if the `with` fails."""
    try:
        yield
    except BaseException:
        delete_job(client, cluster, name)
        raise


def _create(
    client: Client, cluster: DeployedCluster, script: Script, archive: bytes, attached: Mapping[str, str]
) -> str:
    """Create the Job, with the script's folder if the folder is small; return the script's name.

    Args:
        client: the API server.
        cluster: the cluster.
        script: the script.
        archive: its folder.
        attached: the variables of a pod to which this process connects.
    """
    small = _is_small(archive)
    master = cluster.workload(cluster.master.job)
    if master is None:
        raise ClusterError(f'the master of "{cluster.name}" is missing', help="`tfk8s up` creates it again")
    resources = script.resources.over(cluster.script)
    gpus = script_job.gpus_like(resources.gpus or 0, cluster.workloads.values())
    if gpus:
        scheduling.require_gpus(client, gpus.resource, gpus.count)
    run = script_job.PodSettings(
        arguments=script.runner_arguments(script.path.name),
        environment={**_environment(cluster, script, small=small), **attached},
        gpus=gpus,
        resources=resources,
    )
    with spans.part("create script job"):
        return create_job(client, cluster, master, run, {script_job.ARCHIVE: archive} if small else {})


def create_job(
    client: Client,
    cluster: DeployedCluster,
    workload: Object,
    run: script_job.PodSettings,
    files: Mapping[str, bytes],
) -> str:
    """Create the Job and the Secret of a script; return the script's name.

    Args:
        client: the API server.
        cluster: the script's cluster.
        workload: the StatefulSet or the Job whose pods the script's pod resembles.
        run: the settings of the script's pod, to which the rules of the namespace are added.
        files: as of `script_job.secret`.
    """
    name = f"script-{secrets.token_hex(3)}"
    object_name = script_job.object_name(cluster.name, name)
    run = dataclasses.replace(run, rules=namespace_rules.read(client, cluster.namespace))
    with _deleted_on_failure(client, cluster, name):
        # The pod waits for its Secret. The Job owns the Secret from the start, so that both are deleted together.
        job = script_job.job(object_name, workload, run)
        uid = client.send("POST", paths.collection("Job", cluster.namespace), body=job)["metadata"]["uid"]
        secret = script_job.secret(object_name, uid, cluster.name, files)
        client.send("POST", paths.collection("Secret", cluster.namespace), body=secret)
    return name


def show(client: Client, cluster: DeployedCluster, name: str, options: LogOptions) -> Outcome:
    """Write a script's output to this process' streams; with `follow`, until the script's end. Return how it ended.

    Raises:
        InvalidInput: there is no such script, or the options ask for the log before a restart.
    """
    warm = _find(client, cluster, name)
    if options.previous:
        raise InvalidInput(f"{name} has no previous log: a script never restarts", help="leave out --previous")
    if warm is not None:
        return warm_requests.show(client, warm, name, options)
    if options.follow:
        with Informer(client, cluster.namespace, cluster.name) as informer:
            return script_pod.follow(informer, cluster, name, options)
    script_pod.show(client, cluster, name, options)
    return Outcome(0)


def read(client: Client, cluster: DeployedCluster, name: str, options: LogOptions) -> Iterator[str]:
    """Return the lines of a script so far, output and errors; with `follow`, until the script's end.

    Raises:
        InvalidInput: there is no such script.
        ClusterError: its warm pod sends no log.
    """
    if (warm := _find(client, cluster, name)) is None:
        return script_pod.read(client, cluster, name, options)
    lines = warm_requests.lines(client, warm, name, options)
    return script_pod.texts(line.partition(" ")[2] for line in lines)


def stop(client: Client, cluster: DeployedCluster, name: str) -> None:
    """Delete a script's Job, and wait until its pod is gone. In a warm pod, the script alone ends."""
    if (warm := _find(client, cluster, name)) is not None:
        warm_requests.stop(client, warm, name, _STOP_TIMEOUT + (cluster.grace or 0))
        return
    delete_job(client, cluster, name)
    wait = pod_ends.PodWait(name, _STOP_TIMEOUT)

    def is_gone() -> bool:
        pod = script_pod.find(client, cluster, name)
        wait.note([pod] if pod else [])
        return pod is None

    wait.until(is_gone)


def _environment(cluster: DeployedCluster, script: Script, *, small: bool) -> dict[str, str]:
    environment = {
        **script.environment,
        "TFK8S_JOBS": compact.format_jobs(cluster.jobs),
        "TFK8S_TARGET": cluster.target,
        error_names.VARIABLE: _TERMINATION_MESSAGE,
        "TFK8S_ARCHIVE": script_job.MOUNTED_ARCHIVE if small else script_job.STREAMED_ARCHIVE,
    }
    if script.downloads:
        environment[naming.FILES_VARIABLE] = json.dumps([download.path for download in script.downloads])
    if script.requirements:
        environment["TFK8S_REQUIREMENTS"] = script_archive.requirements_in_folder(script.path, script.requirements)
    return environment


def delete_job(client: Client, cluster: DeployedCluster, name: str) -> None:
    """Delete a script's Job, if it exists, and all that belongs to it."""
    path = f"{paths.collection('Job', cluster.namespace)}/{script_job.object_name(cluster.name, name)}"
    client.send("DELETE", path, {"propagationPolicy": "Background"})


def _find(client: Client, cluster: DeployedCluster, name: str) -> Object | None:
    """Return the warm pod in which a script runs, or None for a script with a Job.

    Raises:
        InvalidInput: no script has that name; lists the others.
    """
    jobs = client.get(paths.collection("Job", cluster.namespace), paths.of_cluster(cluster.name))["items"]
    names = [script_job.name(job) for job in jobs if script_job.is_script(job)]
    names += [warm_job.name(job) for job in jobs if warm_job.is_warm(job)]
    if name in names:
        return None
    if (warm := warm_requests.find(client, cluster, name)) is not None:
        return warm
    raise InvalidInput(
        f'cluster "{cluster.name}" has no script "{name}"; {there_are(names, "script")}',
        help="`tfk8s stop` removes a script at once, and the job file's `ttl` some time after its end",
    )
