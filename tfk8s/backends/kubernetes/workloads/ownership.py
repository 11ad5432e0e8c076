"""The objects that belong to a cluster, and those that somebody else has under the same names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.workloads import deployed, lifetime
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests
from tfk8s.render.pods import Object


def require_own(item: Object, existing: Object | None) -> None:
    """Raise an InvalidInput if the existing object belongs to somebody else."""
    if existing is None:
        return
    labels, own_labels = existing["metadata"].get("labels", {}), item["metadata"]["labels"]
    if any(labels.get(label) != own_labels[label] for label in (manifests.NAME, manifests.INSTANCE)):
        owner = (
            f'cluster "{labels.get(manifests.INSTANCE)}"'
            if labels.get(manifests.NAME) == "tfk8s"
            else labels.get(manifests.MANAGED_BY) or "somebody else"
        )
        raise InvalidInput(
            f'{item["kind"]} "{item["metadata"]["name"]}" exists already and belongs to {owner}',
            help="give this cluster another `name`",
        )


def is_of_helm(item: Object) -> bool:
    """Return whether Helm installed an object."""
    return bool(item["metadata"].get("labels", {}).get(manifests.MANAGED_BY) == "Helm")


def obsolete(client: Client, namespace: str, name: str, objects: Sequence[Object]) -> list[Object]:
    """Return the cluster's objects of jobs and of limits that are no longer in the job file."""
    needed = {(item["kind"], item["metadata"]["name"]) for item in objects}
    kinds = ("Job", "StatefulSet", "PodDisruptionBudget")
    jobs, *others = (deployed.items_of(client, kind, namespace, paths.of_cluster(name)) for kind in kinds)
    found = itertools.chain(lifetime.with_rights(jobs), filter(manifests.is_program, jobs), *others)
    return [item for item in found if (item["kind"], item["metadata"]["name"]) not in needed]
