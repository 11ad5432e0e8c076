"""Clusters that Helm installed: Helm alone changes them, and `diff` shows what `helm upgrade` would change."""

from __future__ import annotations

from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.workloads import lifetime, ownership, program_jobs
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests
from tfk8s.render.pods import Object

_CHART = "helm.sh/chart"
# What the API server and controllers give an object that exists, by the part of the object.
_GIVEN = {
    "metadata": ("uid", "ownerReferences", "finalizers"),
    "spec": ("clusterIP", "clusterIPs", "ipFamilies", "volumeName"),
}


def refusal(item: Object) -> InvalidInput | None:
    """Return the error for a change of an object that Helm installed; None for another object."""
    if not ownership.is_of_helm(item):
        return None
    metadata = item["metadata"]
    release = metadata.get("annotations", {}).get("meta.helm.sh/release-name", "RELEASE")
    arguments = f"{release} --namespace {metadata['namespace']}"
    return InvalidInput(
        f'cluster "{metadata["labels"][manifests.INSTANCE]}" was installed by Helm, as release "{release}"',
        help=f"`helm upgrade {arguments} …` changes it, `helm uninstall {arguments}` removes it",
    )


def require_other(item: Object) -> None:
    """Raise an InvalidInput if Helm installed the object's cluster, since only Helm may change it."""
    if error := refusal(item):
        raise error


def preview(client: Client, namespace: str, item: Object, existing: Object | None) -> Object:
    """Return an object as `helm upgrade` with this job file would leave it. Changes nothing.

    A dry run of the object itself would keep what the job file no longer has, since Helm set that.

    Args:
        namespace: the object's.
        item: the object that `render` makes.
        existing: the object that Helm installed, if it exists.

    Raises:
        ApiError: the API server refuses the object.
    """
    if existing and lifetime.is_lifetime(existing) and item["kind"] == "Job":
        return existing  # its name has a hash of its content
    try:
        made = program_jobs.preview(client, namespace, item)
    except ApiError as error:
        if (item["kind"], error.code) != ("RoleBinding", 404):
            raise
        made = item  # a dry run has created no Role
    return made if existing is None else _with_given(made, existing)


def _with_given(made: Object, existing: Object) -> Object:
    """Return an object with what Helm, the API server and controllers have given the existing one."""
    result = {**made, "metadata": dict(made["metadata"])}
    for part, names in _GIVEN.items():
        given = {name: existing[part][name] for name in names if name in existing.get(part, {})}
        if given:
            result[part] = {**result[part], **given}
    old, new = existing["metadata"], result["metadata"]
    own = {name: old["labels"][name] for name in (manifests.MANAGED_BY, _CHART) if name in old["labels"]}
    annotations = {
        name: value
        for name, value in old.get("annotations", {}).items()
        if "helm.sh/" in name or existing["kind"] == "PersistentVolumeClaim"
    }
    new["labels"] = {**new["labels"], **own}
    if annotations or new.get("annotations"):
        new["annotations"] = {**annotations, **new.get("annotations", {})}
    if made["kind"] == "PodDisruptionBudget":  # with `drain: idle`, the cluster's own Job sets the number
        result["spec"] = {**existing["spec"], **made["spec"]}
    return result
