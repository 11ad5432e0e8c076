"""The PodMonitor, by which the Prometheus Operator finds the metrics of a cluster's tasks."""

from __future__ import annotations

from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests, pods
from tfk8s.render.pods import Object


def pod_monitor(job_file: JobFile, namespace: str | None = None) -> Object:
    """Return the PodMonitor. `render` prints it alone: only clusters with the operator know this kind.

    Args:
        namespace: overrides the namespace of the job file. If both are None, the object has no namespace.

    Raises:
        InvalidInput: the tasks serve no metrics.
    """
    if not job_file.metrics:
        raise InvalidInput(f'the tasks of "{job_file.name}" serve no metrics', help="add metrics: true to the job file")
    made = manifests.new_object("PodMonitor", "monitoring.coreos.com/v1", job_file.name, job_file.name)
    if namespace := namespace or job_file.namespace:
        made["metadata"]["namespace"] = namespace
    return made | {
        "spec": {
            "selector": {"matchLabels": manifests.selector(job_file.name)},
            "podMetricsEndpoints": [{"port": pods.METRICS_PORT}],
        }
    }
