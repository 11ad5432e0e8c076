"""Creates the Jobs of programs again: the API server lets nobody change the pods of a Job, or run a Job again."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import MERGE, PAGE_SIZE, Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.claims import DELETE_TIMEOUT
from tfk8s.backends.kubernetes.pods import containers, pod_ends
from tfk8s.backends.kubernetes.workloads import avoidance, bad_nodes, program_status
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core import naming
from tfk8s.render import manifests, placement, script_job
from tfk8s.render.pods import Object

_IMMUTABLE = "field is immutable"
_PREVIEW = "-new"


def apply(client: Client, namespace: str, item: Object, existing: Object | None, *, dry_run: bool) -> Object:
    """Apply the Job of a program, or create it again if its pods are to change; return the Job.

    Args:
        existing: the Job that the API server has, whose pods may avoid nodes once.
        dry_run: change nothing.
    """
    item = _with_files_of(item, existing) if existing else item
    wanted = _started(item, existing) if existing else item
    if wanted:
        try:
            return client.apply(paths.path(item, namespace), wanted, dry_run=dry_run)
        except ApiError as error:
            if not is_refused_change(item, error):
                raise
    return replace(client, namespace, item, dry_run=dry_run)


def _with_files_of(job: Object, existing: Object | None) -> Object:
    """Return a Job with the files of `run --get` that another Job has, or without any (None): `up` leaves them."""
    made = copy.deepcopy(job)
    variables, *given = (containers.spec(one["spec"]["template"]).get("env", []) for one in (made, existing) if one)
    variables[:] = [one for one in variables if one["name"] != naming.FILES_VARIABLE]
    for index, one in enumerate(itertools.chain(*given)):
        if one["name"] == naming.FILES_VARIABLE:
            variables.insert(index, one)  # another order would be another template
    return made


def _started(job: Object, existing: Object) -> Object | None:
    """Return a Job, ready to be applied over the same one that may avoid nodes once; None if its place is another.

    Args:
        job: to be applied.
        existing: what the API server has.
    """
    template = existing["spec"]["template"]
    if not (nodes := placement.avoided_once(template)):
        return job
    away = placement.away_from(job["spec"]["template"], nodes)
    is_same = placement.avoided_once(away) == nodes and _node_rules(away) == _node_rules(template)
    return {**job, "spec": {**job["spec"], "template": away}} if is_same else None


def _node_rules(template: Object) -> Object:
    rules: Object = template["spec"].get("affinity", {}).get("nodeAffinity", {})
    return rules


def is_refused_change(item: Object, error: ApiError) -> bool:
    """Return whether an error says that an object is the Job of a program, which can't be changed so."""
    fields = error.invalid.fields if error.invalid else ()
    return manifests.is_program(item) and bool(fields) and all(_IMMUTABLE in field.problem for field in fields)


def replace(client: Client, namespace: str, item: Object, *, dry_run: bool = False) -> Object:
    """Delete a Job, wait until its pods are gone, and create the Job again, away from bad nodes; return the new Job.

    Two pods with the same host name would share an address in DNS.

    Args:
        namespace: the Job's.
        item: the Job to apply.
        dry_run: change nothing; the result is what the API server would make of the Job.
    """
    if dry_run:
        return preview(client, namespace, item)
    path, query = paths.path(item, namespace), paths.labelled({script_job.JOB_NAME: item["metadata"]["name"]})

    def find() -> list[Object]:
        pods: list[Object] = client.get(paths.collection("Pod", namespace), query)["items"]
        return pods

    faults = avoidance.news(item, bad_nodes.find(find()))
    avoidance.say(faults.items())
    _delete(client, namespace, item)
    if faults:
        nodes = sorted({fault.node for fault in faults.values()})
        if made := avoidance.create_job(client, path, item, nodes, find):
            return made
        _delete(client, namespace, item)
    return client.apply(path, item)


def _delete(client: Client, namespace: str, item: Object) -> None:
    """Delete a Job, and wait until its pods are gone."""
    path = paths.path(item, namespace)
    client.send("DELETE", path, {"propagationPolicy": "Foreground"})
    wait = pod_ends.PodWait(f"the pods of Job {item['metadata']['name']}", DELETE_TIMEOUT)
    pods = paths.collection("Pod", namespace)
    query = paths.labelled({script_job.JOB_NAME: item["metadata"]["name"]})

    def is_gone() -> bool:
        remaining = client.get(pods, {**query, "limit": PAGE_SIZE})["items"]
        wait.note(remaining)
        return client.find(path) is None

    wait.until(is_gone)


def preview(client: Client, namespace: str, item: Object) -> Object:
    """Return what the API server would make of a new object, from a dry run under another name."""
    name = item["metadata"]["name"]
    other = {**item, "metadata": {**item["metadata"], "name": name + _PREVIEW}}
    made = client.apply(paths.path(other, namespace), other, dry_run=True)
    return {**made, "metadata": {**made["metadata"], "name": name}}


def restart(client: Client, cluster: DeployedCluster) -> None:
    """Run all programs of a cluster again."""
    for workload in cluster.workloads.values():
        if manifests.is_program(workload):
            replace(client, cluster.namespace, manifests.scaled(workload, {}))


def end(client: Client, cluster: DeployedCluster, jobs: Sequence[str], *, succeeded: bool) -> None:
    """End the pods of programs whose run has ended, and note that on their Jobs.

    A suspended Job has no pods (kubernetes.io/docs/concepts/workloads/controllers/job, "Suspending a Job").

    Args:
        jobs: the jobs of the programs.
        succeeded: whether the run has succeeded.
    """
    result = program_status.COMPLETE if succeeded else program_status.FAILED
    body = {"metadata": {"annotations": {naming.RUN_END: result}}, "spec": {"suspend": True}}
    for job in filter(None, map(cluster.program_job, jobs)):
        # Not the field manager of `up`, which would start the programs again.
        path = paths.path(job, cluster.namespace)
        client.send("PATCH", path, {"fieldManager": naming.RUN_END}, body, MERGE)


def content(job: Object) -> Object:
    """Return a Job without what the API server and the Job controller maintain, and without files of `run --get`."""
    return _with_files_of(manifests.scaled({**job, "kind": "Job"}, {}), None)
