"""The suspension of a cluster, as an annotation of a workload, or of the Job of its limits, says it."""

from __future__ import annotations

from collections.abc import Iterable

from tfk8s.core.lifetime import SUSPENDED, Suspension
from tfk8s.errors import ClusterError
from tfk8s.render import manifests
from tfk8s.render.pods import Object


def read(objects: Iterable[Object]) -> Suspension | None:
    """Return since when and by whom the cluster of these workloads and Jobs is suspended; None if it is not.

    A command leaves the wish on a workload, and the Job that keeps `idle` leaves the wish on itself.

    Raises:
        ClusterError: somebody else has written the annotation.
    """
    for item in objects:
        metadata = item["metadata"]
        if text := metadata.get("annotations", {}).get(SUSPENDED):
            try:
                return Suspension.parse(text)
            except (ValueError, RecursionError) as error:
                what = f"{item['kind'].lower()} {metadata['name']}"
                raise ClusterError(
                    f"the annotation {SUSPENDED} of {what} is not as tfk8s makes it",
                    help=f"kubectl annotate -n {metadata['namespace']} {what} {SUSPENDED}- removes it; then `tfk8s up`",
                ) from error
    return None


def awake(workload: Object, suspension: Suspension | None) -> Object:
    """Return a workload with the number of tasks that it has while its cluster is not suspended."""
    if suspension is None or workload["kind"] != "StatefulSet":
        return workload
    spec, job = workload["spec"], workload["metadata"]["labels"][manifests.COMPONENT]
    return {**workload, "spec": {**spec, "replicas": suspension.tasks.get(job, max(1, spec.get("replicas", 1)))}}
