"""Compares what the tasks of jobs request together with what nodes have together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tfk8s.core.job_file.spot import is_spot
from tfk8s.core.price.rates import billed
from tfk8s.core.resources import CPU, MEMORY, NOTHING, Resources, total
from tfk8s.core.spec import JobFile
from tfk8s.render import manifests
from tfk8s.render.placement import GKE_ACCELERATOR
from tfk8s.render.pods import Object, template

_DISK = "ephemeral-storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The tasks of a job, and the nodes that can take one of them.

    Attributes:
        job: the job's name in the job file.
        tasks: the number of its tasks.
        requests: the requests of one task.
        nodes: the names of the nodes.
    """

    job: str
    tasks: int
    requests: Resources
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Jobs whose tasks request more than their nodes have.

    Attributes:
        jobs: the names of the jobs.
        nodes: the number of nodes that can take their tasks.
        asked, present: what the tasks request, and what the nodes have, of the resources that are short.
    """

    jobs: tuple[str, ...]
    nodes: int
    asked: Resources
    present: Resources

    @property
    def remedy(self) -> str:
        """The fields of the jobs to lower."""
        return f"lower their {_listed(['tasks', *map(field_of, self.asked.amounts)], 'or')}"

    def __str__(self) -> str:
        nodes = f"the {self.nodes} nodes for them have" if self.nodes > 1 else "the only node for them has"
        room = f"{nodes} {self.present}" if self.nodes else "no node takes them"
        jobs = f"job{'s' * (len(self.jobs) > 1)} {_listed(self.jobs, 'and')}"
        return f"the tasks of {jobs} request {self.asked} in sum, and {room}"


def _listed(words: Sequence[str], conjunction: str) -> str:
    """Return a list in a sentence: a, b and c."""
    return f" {conjunction} ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def field_of(resource: str) -> str:
    """Return the field of a job that asks for a resource."""
    return resource if resource in (CPU, MEMORY) else "gpus"


def remedy(fields: str, resource: str) -> str:
    """Return what makes room for a pod, if its nodes have too little of a resource.

    Args:
        fields: the key of the job file with the resources of the pod, such as "jobs.worker".
        resource: the resource's name in Kubernetes.
    """
    return "free space on the nodes' disks" if resource == _DISK else f"lower {fields}.{field_of(resource)}"


def shortages(demands: Sequence[Demand], room: Mapping[str, Resources]) -> list[Shortage]:
    """Return what is short in sum. Tasks may still not fit, as one task can't use two halves of nodes.

    Some nodes take the tasks of some jobs only. So each set of nodes is compared with the jobs that depend on the set.

    Args:
        demands: the jobs.
        room: what each node has, by its name; nothing if the name is absent.
    """
    found: list[Shortage] = []
    sets = {*(demand.nodes for demand in demands), frozenset().union(*(demand.nodes for demand in demands))}
    for nodes in sorted(sets, key=lambda names: (len(names), sorted(names))):
        dependent = [demand for demand in demands if demand.nodes <= nodes]
        asked = total((demand.requests, demand.tasks) for demand in dependent)
        present = total((room[name], 1) for name in nodes if name in room)
        names = {demand.job for demand in dependent}
        known = {name for shortage in found if names.issuperset(shortage.jobs) for name in shortage.asked.amounts}
        short = [name for name, amount in asked.amounts.items() if amount > present[name] and name not in known]
        jobs = tuple(demand.job for demand in dependent if any(demand.requests[name] for name in short))
        if short:
            found.append(Shortage(jobs=jobs, nodes=len(nodes), asked=asked.only(short), present=present.only(short)))
    return found


def requests(pod: Object) -> Resources:
    """Return what the scheduler reserves for a pod: for its containers together, or for a greater init container.

    Requests of the pod as a whole replace the sums of its containers. Scratch storage is left out, because it is small.
    """
    amounts = NOTHING
    for container in (*pod["containers"], *filter(_is_sidecar, pod.get("initContainers", ()))):
        amounts += _requests(container)
    for container in pod.get("initContainers", ()):
        amounts |= _requests(container)
    amounts = Resources({**amounts.amounts, **_requests(pod).amounts})
    return amounts.only(name for name in amounts.amounts if name != _DISK)


def _is_sidecar(container: Object) -> bool:
    """Return whether an init container runs beside the other containers."""
    return container.get("restartPolicy") == "Always"


def _requests(container: Object) -> Resources:
    return Resources.parse(container.get("resources", {}).get("requests", {}))


def requested(workloads: Iterable[Object], others: Iterable[Object] = ()) -> Resources:
    """Return what the tasks of StatefulSets and of the Jobs of programs request together, and other pods."""
    tasks = ((requests(item["spec"]["template"]["spec"]), manifests.task_count(item)) for item in workloads)
    return total([*tasks, *((requests(pod["spec"]), 1) for pod in others)])


def billed_workloads(workloads: Iterable[Object]) -> Resources:
    """Return what StatefulSets and Jobs of programs request together, under the names that rates have."""
    return total((_billed(item["spec"]["template"]["spec"]), manifests.task_count(item)) for item in workloads)


def billed_jobs(job_file: JobFile) -> Resources:
    """Return what the tasks of a job file will request together, under the names that rates have."""
    return total((_billed(template(job_file, job, {})["spec"]), job.tasks) for job in job_file.jobs)


def _billed(pod: Object) -> Resources:
    selector = pod.get("nodeSelector", {})
    return billed(requests(pod), selector.get(GKE_ACCELERATOR), is_spot=is_spot(selector))


def allocatable(node: Object) -> Resources:
    """Return what a node has for pods, used or free."""
    return Resources.parse(node["status"].get("allocatable", {}))


def free(nodes: Iterable[Object], pods: Iterable[Object]) -> dict[str, Resources]:
    """Return what pods leave free on each node, by its name.

    Args:
        pods: the pods that use the nodes.
    """
    room = {node["metadata"]["name"]: allocatable(node) for node in nodes}
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node in room:
            room[node] -= requests(pod["spec"])
    return room
