"""TensorBoard in a pod beside a cluster's tasks, with the volumes of the job file."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.informer import Informer
from tfk8s.backends.kubernetes.pods import containers, disruptions
from tfk8s.backends.kubernetes.scripts import script_jobs, script_pod
from tfk8s.backends.kubernetes.workloads import script_status
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core import compact
from tfk8s.errors import ClusterError, InvalidInput, TaskUnreachable, there_are
from tfk8s.render import pod_volumes, script_job
from tfk8s.render.pods import Object
from tfk8s.sessions.forward import Forward
from tfk8s.sessions.pod import tensorboard

_REQUIREMENTS = "requirements.txt"  # beside the files of this package
_ADVICE = "write event files to a volume of the job file, such as volumes: [{path: /logs, claim: CLAIM}]"


@contextlib.contextmanager
def run(
    client: Client, cluster: DeployedCluster, folder: str | None, requirements: Path | None, token: str, port: int
) -> Iterator[TensorBoardPod]:
    """Run TensorBoard in a `with`; at its end, the pod is deleted.

    If this process is killed, the pod ends by itself, because nobody asks for the page any more.

    Args:
        client: the API server.
        cluster: the cluster.
        folder: the folder of event files, on a volume; None is the only volume.
        requirements: a file for `pip install -r`.
        token: the page's path.
        port: a free port of this machine.

    Raises:
        InvalidInput: the folder is on no volume.
        ClusterError: the pod can't start.
    """
    workload, folder = find_folder(cluster, folder)
    files = {}
    environment = {"TFK8S_JOBS": compact.format_jobs(cluster.jobs), "TFK8S_TOKEN": token}
    if requirements:
        files[_REQUIREMENTS] = requirements.read_bytes()
        environment["TFK8S_REQUIREMENTS"] = f"{pod_volumes.PACKAGE_FOLDER}/{_REQUIREMENTS}"
    settings = script_job.PodSettings(
        arguments=[folder],
        environment=environment,
        command=script_job.TENSORBOARD_COMMAND,
        read_only=True,
        resources=cluster.script,
    )
    with Informer(client, cluster.namespace, cluster.name) as informer:
        name = script_jobs.create_job(client, cluster, workload, settings, files)
        try:
            pod = script_pod.wait_for_start(informer, cluster, name)["metadata"]["name"]
            dial = functools.partial(streams.dial, client, cluster.namespace, pod, tensorboard.PORT)
            with contextlib.suppress(TaskUnreachable):  # the pod has ended, and says why
                dial().close()  # a missing permission is known before the page is asked for
            with Forward(dial, port):
                yield TensorBoardPod(informer, cluster, name, folder)
        finally:
            script_jobs.delete_job(client, cluster, name)


def find_folder(cluster: DeployedCluster, folder: str | None) -> tuple[Object, str]:
    """Return the StatefulSet or the Job whose pods have a folder on a volume, and the folder.

    Args:
        cluster: the cluster.
        folder: the folder; None is the only volume.

    Raises:
        InvalidInput: the folder is on no volume, or there are several volumes.
    """
    workloads = [found for job in cluster.jobs if (found := cluster.workload(job))]
    paths = list(dict.fromkeys(path for workload in workloads for path in script_job.lasting_mounts(workload)))
    if not paths:
        raise InvalidInput(f'no volume of cluster "{cluster.name}" outlives its pods', help=_ADVICE)
    if folder is None and len(paths) > 1:
        raise InvalidInput(
            f'cluster "{cluster.name}" has several volumes: {", ".join(paths)}',
            help=f"name the folder of the event files: tfk8s tensorboard NAME {paths[0]}",
        )
    wanted = PurePosixPath(folder or paths[0])
    for workload in workloads:
        if ".." not in wanted.parts and any(map(wanted.is_relative_to, script_job.lasting_mounts(workload))):
            return workload, str(wanted)
    raise InvalidInput(
        f'"{folder}" is on no volume of cluster "{cluster.name}"; {there_are(paths, "volume")}', help=_ADVICE
    )


class TensorBoardPod:
    """A pod with TensorBoard.

    Args:
        informer: of the cluster.
        cluster: the cluster.
        name: of the script as which TensorBoard runs.
        folder: the folder of event files.

    Attributes:
        folder: the same.
    """

    def __init__(self, informer: Informer, cluster: DeployedCluster, name: str, folder: str) -> None:
        self._informer, self._cluster, self._name, self.folder = informer, cluster, name, folder

    def show_messages(self) -> None:
        """Write what the pod has written."""
        sys.stderr.writelines(f"{line}\n" for line in script_pod.read(self._informer.client, self._cluster, self._name))

    def require_running(self) -> None:
        """Check that the pod runs.

        Raises:
            InvalidInput: the pod's image has no TensorBoard.
            ClusterError: the pod has ended, or was deleted; says why.
        """
        change = self._informer.last_change(script_job.object_name(self._cluster.name, self._name))
        if change is None:
            return
        pod = change.object
        end = script_status.ended(pod) or {}
        if end.get("exitCode") == tensorboard.NOT_INSTALLED:
            raise InvalidInput(
                f'image "{containers.spec(pod)["image"]}" has no TensorBoard',
                help="install it for this pod by --requirements FILE; the file needs the line: tensorboard",
            )
        script_pod.require_kept(pod, "TensorBoard was ended", change.deleted, subject="TensorBoard", advice=None)
        if end.get("reason") == "OOMKilled":
            raise script_pod.killed(pod, "TensorBoard")
        if end and "exitCode" not in end:
            raise ClusterError(f"TensorBoard was ended: {disruptions.why_removed('', pod) or disruptions.FAILED}")
        if end:
            self.show_messages()
            raise ClusterError(f"TensorBoard ended with exit code {end['exitCode']}: its messages are above")
