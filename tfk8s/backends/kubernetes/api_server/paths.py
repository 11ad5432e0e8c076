"""Paths and queries of objects on the API server, and the kinds of objects that tfk8s creates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from tfk8s.render import gang, manifests
from tfk8s.render.pods import Object

# In the order in which `down` deletes them: running pods first, the NetworkPolicy that isolates them last.
GROUPS = {
    "Job": ("batch/v1", "jobs"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "Service": ("v1", "services"),
    "ConfigMap": ("v1", "configmaps"),
    "Secret": ("v1", "secrets"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
}
KINDS = {
    **GROUPS,
    "Pod": ("v1", "pods"),
    "Event": ("v1", "events"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "Role": ("rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings"),
    gang.KIND: (gang.VERSION, "podgroups"),
    "Workload": ("kueue.x-k8s.io/v1beta2", "workloads"),
}
NODES = "/api/v1/nodes"
_KIND_OF = {
    "nodes": "Node", "limitranges": "LimitRange", "resourcequotas": "ResourceQuota",
    "selfsubjectaccessreviews": "SelfSubjectAccessReview", "selfsubjectreviews": "SelfSubjectReview",
    **{plural: kind for kind, (_, plural) in KINDS.items()},
}  # fmt: skip
_RESOURCE = re.compile(r"/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/[^/]+/)?([^/?]+)(?:/([^/?]+))?(?:\?.*)?")
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"  # the field selector of pods that hold resources


class Resource(NamedTuple):
    """The objects at a path.

    Attributes:
        kind: of objects; "" for a kind of which tfk8s reads nothing but that an object exists.
        name: of one object; "" for all of a collection.
    """

    kind: str
    name: str


def resource(path: str) -> Resource | None:
    """Return the objects at a path; None if there are no objects, but subresources or what the API server is."""
    match = _RESOURCE.fullmatch(path)
    return Resource(_KIND_OF.get(match[1], ""), match[2] or "") if match else None


def collection(kind: str, namespace: str | None) -> str:
    """Return the path of all objects of a kind, in a namespace or (None) in all namespaces."""
    group, plural = KINDS[kind]
    prefix = f"/apis/{group}" if "/" in group else f"/api/{group}"
    return f"{prefix}/namespaces/{namespace}/{plural}" if namespace else f"{prefix}/{plural}"


def path(item: Object, namespace: str) -> str:
    """Return the path of one object."""
    return named(item["kind"], item["metadata"]["name"], namespace)


def named(kind: str, name: str, namespace: str) -> str:
    """Return the path of the object of a kind that has a name."""
    return f"{collection(kind, namespace)}/{name}"


def pod(namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of a pod, or of a subresource of the pod."""
    return named("Pod", name, namespace) + (f"/{subresource}" if subresource else "")


def container(namespace: str, pod_name: str, name: str, subresource: str) -> str:
    """Return the path of a container's subresource: "attach", "exec" or "log". A pod may have other containers."""
    return f"{pod(namespace, pod_name, subresource)}?container={name}"


def of_cluster(cluster: str) -> dict[str, str]:
    """Return the query for a cluster's objects and pods."""
    return labelled(manifests.selector(cluster))


def labelled(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the query for objects with these labels."""
    return {"labelSelector": ",".join(f"{name}={value}" for name, value in labels.items())}
