"""A cluster in a queue of Kueue: the pods of all its tasks are one group, which Kueue admits as a whole.

Kueue makes one Workload of a group, with a pod set for each job. Kueue counts the pods itself: neither the StatefulSets
nor the Jobs of programs belong to Kueue (kueue.sigs.k8s.io/docs/tasks/run/plain_pods, "Running a group of Pods").
"""

from __future__ import annotations

from typing import Any

from tfk8s.core import naming
from tfk8s.core.spec import Job, JobFile

Object = dict[str, Any]

PREFIX = "kueue.x-k8s.io/"
QUEUE = f"{PREFIX}queue-name"
LOCAL_QUEUE = f"{PREFIX}local-queue-name"  # which Kueue gives the pods of an admitted Job
GROUP = f"{PREFIX}pod-group-name"
TOTAL = f"{PREFIX}pod-group-total-count"
# The condition of a pod that Kueue deletes: ConditionTypeTerminationTarget in pkg/controller/jobs/pod there.
TAKEN_AWAY = "TerminationTarget"

# Kueue gives a pod with a parent no finalizer, so that a StatefulSet can create a pod again under the same name. Kueue
# also leaves a StatefulSet alone whose pods have a parent of another name, even where Kueue manages all workloads.
_PARENT = {f"{PREFIX}pod-suspending-parent": "tfk8s"}
_MANAGED = {f"{PREFIX}managed": "true"}


def in_queue(job_file: JobFile, job: Job, template: Object) -> Object:
    """Return the pod template of a job with what puts the pods into the cluster's queue, if the cluster has one."""
    if not job_file.queue:
        return template
    metadata = template["metadata"]
    labels = {**metadata["labels"], QUEUE: job_file.queue, GROUP: job_file.name, **_MANAGED}
    annotations = {
        **metadata.get("annotations", {}),
        TOTAL: str(sum(other.tasks for other in job_file.jobs)),
        f"{PREFIX}role-hash": naming.dns_label(job.name),  # the name of the pod set
        **_PARENT,
        # Without it, a server's pod that ends with code 0 would count as done.
        **({} if all(other.program for other in job_file.jobs) else {f"{PREFIX}pod-group-serving": "true"}),
    }
    return {**template, "metadata": {"labels": labels, "annotations": annotations}}


def queue_of(workload: Object) -> str | None:
    """Return the queue of the pods of a StatefulSet or of a program's Job; None without."""
    queue: str | None = workload["spec"]["template"]["metadata"]["labels"].get(QUEUE)
    return queue
