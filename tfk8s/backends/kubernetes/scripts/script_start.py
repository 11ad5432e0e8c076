"""The reasons why the pod of a script does not run yet, or never will."""

from __future__ import annotations

import contextlib

from tfk8s.backends.kubernetes import status
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.informer import Informer
from tfk8s.backends.kubernetes.pods import admission, pod_events
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.backends.kubernetes.workloads import script_status
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.errors import ClusterError
from tfk8s.render import script_job
from tfk8s.render.pods import Object


class PodDeleted(ClusterError):
    """Somebody deleted the pod of a script, or its Job."""


def before_start(pod: Object) -> str:
    """Return the step of a pod that has no trouble, but no running container either."""
    if node := pod["spec"].get("nodeName"):
        return f"its container is being created on {node}, which may have to pull the image"
    return "its pod waits for the scheduler"


def events(informer: Informer, source: Object) -> PodEvents:
    """Return the events of a script's pod or Job."""
    with contextlib.suppress(ClusterError):  # users who may not read events learn less
        return pod_events.of(source, status.read_events(informer, informer.namespace, [source]))
    return PodEvents()


def why_no_pod(informer: Informer, cluster: DeployedCluster, name: str) -> tuple[str, bool]:
    """Return why a script's Job has no pod, and whether a quota is used up.

    Raises:
        PodDeleted: somebody deleted the Job.
        ClusterError: the API server refuses the pod, and would again.
    """
    jobs = informer.get(paths.collection("Job", informer.namespace), paths.of_cluster(cluster.name))["items"]
    wanted = script_job.object_name(cluster.name, name)
    job = next((job for job in jobs if job["metadata"]["name"] == wanted), None)
    if job is None:
        raise PodDeleted("the script can't start: its Job was deleted")
    found = events(informer, job)
    reason = script_status.outcome(cluster.master.job, job, None, found)[2] or "its pod is not created yet"
    message = found.warnings[-1] if found.warnings else ""
    if admission.is_final(message):
        raise ClusterError(f"the script can't start: {reason}")
    return reason, admission.is_used_up(message)
