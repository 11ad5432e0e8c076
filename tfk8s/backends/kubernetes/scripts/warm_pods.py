"""Warm pods: one for each user of a cluster, found or started by `submit`.

A warm pod has TensorFlow imported, so that a script starts in milliseconds. Its name has a hash of the user, so that
the scripts of two users share neither files nor processes.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable

from tfk8s.backends.kubernetes.api_server import access_review, objects, paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.informer import Informer
from tfk8s.backends.kubernetes.scripts import namespace_rules, script_jobs, script_pod, script_start
from tfk8s.backends.kubernetes.workloads import lifetime
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.errors import ClusterError
from tfk8s.render import package_files, script_job, warm_job
from tfk8s.render.pods import Object

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ENDED = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")


def get(client: Client, cluster: DeployedCluster, timeout: float | None = None) -> Object | None:
    """Return the user's warm pod, which runs; start one if there is none. None if the user may not use warm pods.

    Args:
        client: the API server.
        cluster: the cluster.
        timeout: as of `script_pod.wait_for_start`.

    Raises:
        ClusterError: the pod can't start; says why.
    """
    ending: set[str] = set()
    while job := start(client, cluster, ending):
        pod = script_pod.find(client, cluster, warm_job.name(job))
        if pod is None or pod["status"].get("phase") == "Pending":
            if started := _wait_for_start(client, cluster, job, timeout):
                return started
        elif pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
            return pod
        ending.add(job["metadata"]["uid"])
    return None


def _wait_for_start(client: Client, cluster: DeployedCluster, job: Object, timeout: float | None) -> Object | None:
    """Return the pod of a Job once the pod runs. A pod that does not start would stay for ever, so its Job goes.

    None if the Job is gone: another command of the user waited for the same pod, and its wait ended, as by Ctrl-C.
    """
    try:
        if job in cluster.other_jobs:  # the command that created the Job may have crashed before it created the Secret
            _add_files(client, cluster, job)
        with Informer(client, cluster.namespace, cluster.name) as informer:
            return script_pod.wait_for_start(informer, cluster, warm_job.name(job), timeout)
    except BaseException as error:
        if isinstance(error, script_start.PodDeleted) and _is_gone(client, cluster, job):
            return None
        script_jobs.delete_job(client, cluster, warm_job.name(job))
        raise


def _is_gone(client: Client, cluster: DeployedCluster, job: Object) -> bool:
    jobs = client.get(paths.collection("Job", cluster.namespace), paths.of_cluster(cluster.name))["items"]
    return job["metadata"]["uid"] not in {
        item["metadata"]["uid"] for item in jobs if "deletionTimestamp" not in item["metadata"]
    }


def start(client: Client, cluster: DeployedCluster, ending: Container[str] = ()) -> Object | None:
    """Return the Job of the user's warm pod, which is created if there is none. None if the user may not connect.

    Args:
        client: the API server.
        cluster: the cluster.
        ending: the uids of Jobs whose pods end.
    """
    master = cluster.workload(cluster.master.job)
    if master is None:
        raise ClusterError(f'the master of "{cluster.name}" is missing', help="`tfk8s up` creates it again")
    user = _user(client)
    if user is None:
        return None
    idle, digest = lifetime.limits(cluster.other_jobs).first_idle, package_files.digest_of_scripts()
    prefix = script_job.object_name(cluster.name, warm_job.key(user, master, idle, digest, cluster.script))
    if found := _oldest(cluster.other_jobs, prefix, ending):
        return found
    if not access_review.may_connect(client, cluster.namespace):
        return None
    name = f"{prefix}-{secrets.token_hex(2)}"
    collection, rules = paths.collection("Job", cluster.namespace), namespace_rules.read(client, cluster.namespace)
    made = client.send("POST", collection, body=warm_job.job(name, master, idle, cluster.script, rules))
    try:
        _add_files(client, cluster, made)
        # Another command of the user may have started a warm pod just now.
        jobs = client.get(collection, paths.of_cluster(cluster.name))["items"]
    except BaseException:
        script_jobs.delete_job(client, cluster, warm_job.name(made))
        raise
    oldest = _oldest(jobs, prefix, ending) or made
    if oldest["metadata"]["uid"] != made["metadata"]["uid"]:
        script_jobs.delete_job(client, cluster, warm_job.name(made))
        _add_files(client, cluster, oldest)  # the other command may crash before it does
    return oldest


def _add_files(client: Client, cluster: DeployedCluster, job: Object) -> None:
    """Create the Secret with tfk8s' files, for which the pod waits, unless the Secret exists."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    secret = script_job.secret(name, uid, cluster.name, {})
    objects.create_missing(client, cluster.namespace, secret)


def _oldest(jobs: Iterable[Object], prefix: str, ending: Container[str]) -> Object | None:
    """Return the first of the Jobs with this prefix that goes on."""
    named = [job for job in jobs if job["metadata"]["name"].startswith(f"{prefix}-")]
    own = [job for job in named if _goes_on(job) and job["metadata"]["uid"] not in ending]
    return min(own, key=lambda job: (job["metadata"]["creationTimestamp"], job["metadata"]["name"]), default=None)


def _goes_on(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    has_ended = any(item["status"] == "True" and item["type"] in _ENDED for item in conditions)
    return not has_ended and "deletionTimestamp" not in job["metadata"]


def _user(client: Client) -> str | None:
    """Return the name by which the API server knows this user; None if the API server does not say."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        return str(client.send("POST", _REVIEWS, body=body)["status"]["userInfo"]["username"])
    except ApiError as error:
        if error.code not in (403, 404):
            raise
    return None
