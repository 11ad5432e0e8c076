"""The differences between two versions of an object of a cluster, apart from what others maintain in it."""

from __future__ import annotations

from collections.abc import Iterator

from tfk8s.backends.kubernetes.pods import containers
from tfk8s.backends.kubernetes.workloads import avoidance, program_jobs
from tfk8s.core.lifetime import SUSPENDED
from tfk8s.core.plan import Change, compare
from tfk8s.core.spec import Task
from tfk8s.render import manifests
from tfk8s.render.pods import Object


def change(old: Object | None, new: Object | None) -> Change | None:
    """Return the difference between an object before and after a command; None for none."""
    item = old or new
    assert item is not None
    return compare(item["kind"], item["metadata"]["name"], old and content(old), new and content(new))


def template(item: Object) -> Object | None:
    """Return the pod template of tasks; None for another object."""
    template: Object | None = content(item)["spec"]["template"] if manifests.has_tasks(item) else None
    return template


def tasks(old: Object, new: Object) -> Iterator[Task]:
    """Yield the tasks that both versions of a StatefulSet or a Job have."""
    job = containers.template_variables(new)["TFK8S_JOB"]
    return (Task(job, index) for index in range(min(map(manifests.task_count, (old, new)))))


def content(item: Object) -> Object:
    """Return an object without the fields that the API server maintains."""
    if manifests.is_program(item):
        return program_jobs.content(item)
    ignored = ["managedFields", "resourceVersion", "generation", "creationTimestamp"]
    if item["kind"] == "ServiceAccount":
        ignored.append("annotations")  # where `run` renews its lease
    metadata = {key: value for key, value in item["metadata"].items() if key not in ignored}
    if SUSPENDED in metadata.get("annotations", {}):
        metadata["annotations"] = {**metadata["annotations"]}
        del metadata["annotations"][SUSPENDED]
    content = {key: value for key, value in item.items() if key != "status"} | {"metadata": metadata}
    return avoidance.without(content) if manifests.has_tasks(item) else content
