"""The place of a cluster's record as the pod of the cluster's own Job sees it: a claim, or a bucket.

Of a bucket, the pod has a copy of the record in a volume of its own (`task.lifetime.record`).
"""

from __future__ import annotations

import urllib.parse

from tfk8s.core.history.shared import WITH_LOGS, WITHOUT_LOGS, parse_bucket
from tfk8s.core.job_file.mappings import SharedHistory
from tfk8s.render import manifests
from tfk8s.render.pods import Object

_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")  # of a Secret
_DEFAULT_PORTS = {"http": 80, "https": 443}
# The servers that give a pod its identity: "Network policies and Workload Identity" of GKE; "EKS Pod Identity Agent".
_IDENTITY = {"gs": (("169.254.169.252/32", 988), ("169.254.169.254/32", 80)), "s3": (("169.254.170.23/32", 80),)}


def volume(history: SharedHistory) -> Object:
    """Return the source of the volume that has the record."""
    return {"persistentVolumeClaim": {"claimName": history.claim}} if history.claim else {"emptyDir": {}}


def variables(history: SharedHistory) -> dict[str, str]:
    """Return the variables that name the place."""
    kept = WITH_LOGS if history.logs else WITHOUT_LOGS
    named = {"TFK8S_BUCKET": history.bucket, "TFK8S_ENDPOINT": history.endpoint, "TFK8S_HISTORY": kept,
             "TFK8S_SECRET": history.secret}  # fmt: skip
    return {name: value for name, value in named.items() if value}


def keys(history: SharedHistory) -> list[Object]:
    """Return the variables with the keys of a Secret. One that is missing keeps no pod from its start."""
    if not history.secret:
        return []
    source = {"name": history.secret, "optional": True}
    return [{"name": name, "valueFrom": {"secretKeyRef": {**source, "key": name}}} for name in _KEYS]


def egress(history: SharedHistory | None, open_ports: tuple[int, ...]) -> list[Object]:
    """Return the rules of a NetworkPolicy that let the pod reach the bucket, and its own identity.

    Args:
        open_ports: those that the pod may connect to anyway.
    """
    if history is None or not history.bucket:
        return []
    rules: list[Object] = []
    if history.endpoint:
        parts = urllib.parse.urlsplit(history.endpoint)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        if port not in open_ports:
            rules.append({"ports": [manifests.port_rule(port)]})
    if not history.secret:
        rules += [
            {"to": [{"ipBlock": {"cidr": cidr}}], "ports": [manifests.port_rule(port)]}
            for cidr, port in _IDENTITY[parse_bucket(history.bucket).scheme]
        ]
    return rules
