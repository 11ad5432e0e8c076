"""Asks the API server what this user may do."""

from __future__ import annotations

from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.render import rbac
from tfk8s.render.rbac import Permission

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def may(client: Client, namespace: str, permission: Permission) -> bool:
    """Return whether this user has a permission in a namespace."""
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "namespace": namespace, "verb": permission.verb, "group": permission.group,
        "resource": resource, "subresource": subresource,
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool(client.send("POST", _REVIEWS, body=review)["status"]["allowed"])


def may_connect(client: Client, namespace: str) -> bool:
    """Return whether this user may connect to ports of pods in a namespace."""
    needed = (permission for permission in rbac.PERMISSIONS if permission.resource == "pods/portforward")
    return all(may(client, namespace, permission) for permission in needed)
