"""The PersistentVolumeClaims of clusters, and the driver that mounts their buckets."""

from __future__ import annotations

from collections.abc import Sequence

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import errors, paths
from tfk8s.backends.kubernetes.api_server.client import Client, Reader
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import JobFile
from tfk8s.core.storage import claims
from tfk8s.core.storage.volumes import MANY_NODES, ONE_NODE, ONE_POD, KeptClaim
from tfk8s.errors import InvalidInput
from tfk8s.log import log
from tfk8s.render import manifests
from tfk8s.render.pod_volumes import BUCKET_DRIVER
from tfk8s.render.pods import Object

KIND = "PersistentVolumeClaim"
_DRIVER = f"/apis/storage.k8s.io/v1/csidrivers/{BUCKET_DRIVER}"
DRIVER_ADVICE = "on GKE: gcloud container clusters update NAME --update-addons GcsFuseCsiDriver=ENABLED"
DELETE_TIMEOUT = 60.0


def usable(client: Client, namespace: str, job_file: JobFile, objects: Sequence[Object]) -> list[Object]:
    """Return the objects to apply: without the claims that stay as they are. Warn of claims that need one node.

    Args:
        objects: its objects.

    Raises:
        InvalidInput: a claim does not fit the job file, or can't change so; nothing was changed.
        ApiError: the user may not make a claim; nothing was changed.
    """
    made = {item["metadata"]["name"]: item for item in objects if item["kind"] == KIND}
    applied: dict[str, Object] = {}
    for name in claims.claim_names(job_file):
        existing = _find(client, namespace, name, is_needed=name in made)
        _check_access(job_file, name, existing or made.get(name))
        if name in made and (item := _to_apply(made[name], existing)):
            _try(client, namespace, item, existing)
            applied[name] = item
    others = (item if item["kind"] != KIND else applied.get(item["metadata"]["name"]) for item in objects)
    return [item for item in others if item is not None]


def _find(client: Client, namespace: str, name: str, *, is_needed: bool) -> Object | None:
    """Return a claim; None if it does not exist, or can't be read and is not to be made."""
    try:
        return client.find(paths.named(KIND, name, namespace))
    except ApiError as error:
        if error.code != 403 or is_needed:
            raise
    return None


def _check_access(job_file: JobFile, name: str, claim: Object | None) -> None:
    """Warn if several tasks mount a claim of one node.

    Raises:
        InvalidInput: several tasks mount a claim of one pod.
    """
    modes = _modes(claim) if claim else set()
    jobs = claims.jobs_with(job_file, name)
    tasks = sum(job.tasks for job in jobs)
    if tasks < 2 or not modes or modes - {ONE_NODE, ONE_POD}:
        return
    if ONE_NODE not in modes:
        raise InvalidInput(
            f'{tasks} tasks would mount claim "{name}", which is {ONE_POD}',
            help=f"use a claim with the access mode {MANY_NODES}, or mount it in one task",
        )
    packed = [job for job in jobs if job.topology and job.topology.pack == "host" and job.topology.required]
    if packed != jobs or len(jobs) > 1:
        log.warning(
            'claim "%s" is %s: its %d tasks and their scripts start only if they are on one node; '
            "for several nodes, write access: %s, and name a StorageClass that has it",
            name, ONE_NODE, tasks, MANY_NODES,
        )  # fmt: skip


def _to_apply(item: Object, existing: Object | None) -> Object | None:
    """Return the claim to apply; None if the existing claim stays as it is.

    Raises:
        InvalidInput: the existing claim does not fit.
    """
    name = item["metadata"]["name"]
    if existing is None:
        return item
    if "deletionTimestamp" in existing["metadata"]:
        raise InvalidInput(
            f'claim "{name}" is being deleted', help="a pod that mounts the claim keeps it until the pod ends"
        )
    _require_same(item, existing)
    size, wanted = (Quantity.parse(_size(claim)) for claim in (existing, item))
    if size.value == wanted.value or (size.value > wanted.value and not _is_own(item, existing)):
        return None
    if size.value > wanted.value:
        raise InvalidInput(
            f'claim "{name}" has {size}, and a claim can\'t shrink to {wanted}', help=f"write create: {size}"
        )
    if not _is_own(item, existing):
        raise InvalidInput(
            f'claim "{name}" has {size}, less than {wanted}, and tfk8s did not make it for this cluster',
            help=f"grow the claim yourself, or write create: {size}",
        )
    spec = existing["spec"]
    kept = {"storageClassName": spec["storageClassName"]} if "storageClassName" in spec else {}
    return {**item, "spec": {**item["spec"], **kept}}


def _require_same(item: Object, existing: Object) -> None:
    """Raise an InvalidInput if the access mode or the StorageClass of an existing claim does not fit."""
    name, (access,) = item["metadata"]["name"], item["spec"]["accessModes"]
    modes = _modes(existing)
    if access not in modes and not (access == ONE_NODE and MANY_NODES in modes):
        raise InvalidInput(
            f'claim "{name}" exists with the access mode {", ".join(sorted(modes))}, not {access}', help=_NO_CHANGE
        )
    wanted, given = item["spec"].get("storageClassName"), existing["spec"].get("storageClassName")
    if wanted and given != wanted:
        raise InvalidInput(f'claim "{name}" exists with the StorageClass {given}, not {wanted}', help=_NO_CHANGE)


_NO_CHANGE = "Kubernetes can't change that: write what the claim has, or the name of another claim"


def _try(client: Client, namespace: str, item: Object, existing: Object | None) -> None:
    """Apply a claim in a dry run, so that a refusal comes before any change."""
    name = item["metadata"]["name"]
    try:
        client.apply(paths.path(item, namespace), item, dry_run=True)
    except ApiError as error:
        if existing is None or error.code not in (403, 422):
            raise
        reason = (
            f'its StorageClass "{existing["spec"].get("storageClassName", "")}" has no allowVolumeExpansion'
            if "resize" in str(error)
            else str(error)
        )
        raise InvalidInput(
            f'claim "{name}" has {_size(existing)}, and can\'t grow to {_size(item)}: {reason}',
            help=f"write create: {_size(existing)}, or the name of another claim",
        ) from error


def _is_own(item: Object, existing: Object) -> bool:
    """Return whether `up` made a claim for the same cluster. Only Helm changes the claims that Helm made."""
    labels, own = existing["metadata"].get("labels", {}), item["metadata"]["labels"]
    return all(labels.get(label) == own[label] for label in (manifests.NAME, manifests.INSTANCE, manifests.MANAGED_BY))


def _modes(claim: Object) -> set[str]:
    return set(claim["spec"]["accessModes"])


def _size(claim: Object) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])


# ---- kept claims ---------------------------------------------------------------------------------------------------


def kept(client: Reader, namespace: str | None) -> list[KeptClaim]:
    """Return the claims of a namespace that were made for clusters, by cluster and name.

    Args:
        namespace: None for all namespaces, or the context's where the user may not read all.
    """
    query, found = paths.labelled({manifests.NAME: "tfk8s"}), []
    for scope in (namespace,) if namespace else (None, client.namespace):
        with errors.suppress(403):
            found = client.get(paths.collection(KIND, scope), query)["items"]
            break
    made = (
        KeptClaim(
            name=item["metadata"]["name"],
            cluster=item["metadata"]["labels"].get(manifests.INSTANCE, ""),
            location=location(client, item["metadata"]["namespace"]),
            size=_size(item),
        )
        for item in found
    )
    return sorted(made, key=lambda claim: (claim.cluster, claim.location, claim.name))


def location(client: Reader, namespace: str) -> str:
    """Return the location of objects, as the status of clusters has it."""
    return f"context {client.context}, namespace {namespace}"


def names(client: Client, namespace: str, cluster: str, *, is_needed: bool) -> list[str]:
    """Return the names of the claims that were made for a cluster.

    Args:
        is_needed: whether to raise an error if the user may not list claims; otherwise none are returned.
    """
    try:
        items = client.get(paths.collection(KIND, namespace), paths.of_cluster(cluster))["items"]
    except ApiError as error:
        if error.code != 403 or is_needed:
            raise
        return []
    return sorted(item["metadata"]["name"] for item in items)


def delete(client: Client, namespace: str, cluster: str, found: Sequence[str]) -> None:
    """Delete claims of a cluster with their data, and wait until they are gone."""
    for name in found:
        client.send("DELETE", paths.named(KIND, name, namespace))
    polling.wait_until(
        lambda: not set(found) & set(names(client, namespace, cluster, is_needed=True)),
        f"the pods that mount {', '.join(found)} to end",
        DELETE_TIMEOUT,
        announce=True,
    )


# ---- buckets -------------------------------------------------------------------------------------------------------


def has_driver(client: Client) -> bool | None:
    """Return whether the driver of buckets is installed; None if the user may not see drivers."""
    with errors.suppress(403):
        return client.find(_DRIVER) is not None
    return None


def require_driver(client: Client, job_file: JobFile) -> None:
    """Raise an InvalidInput if a task mounts a bucket and the driver of buckets is missing."""
    if not claims.has_bucket(job_file):
        return
    found = has_driver(client)
    if found is None:
        log.info("you may not see whether the cluster has the CSIDriver %s, which mounts buckets", BUCKET_DRIVER)
    elif not found:
        raise InvalidInput(
            f"the cluster has no CSIDriver {BUCKET_DRIVER}, which mounts the buckets of the job file",
            help=DRIVER_ADVICE,
        )
