"""The changes that a cluster in a queue of Kueue can't have: Kueue has admitted all its pods as one group."""

from __future__ import annotations

from collections.abc import Iterable

from tfk8s.errors import InvalidInput
from tfk8s.render import kueue
from tfk8s.render.pods import Object


def refusal(name: str, pairs: Iterable[tuple[Object, Object]]) -> InvalidInput | None:
    """Return the error about a change of what Kueue has admitted; None if there is none.

    Args:
        name: the cluster's.
        pairs: StatefulSets and Jobs of programs, before and after the change.
    """
    if any(_admitted(old) != _admitted(new) for old, new in pairs):
        return InvalidInput(
            f'the queue, the number of tasks and the requests of "{name}" can\'t change while it is in a queue: '
            "Kueue admits all its pods as one group",
            help=f"run tfk8s down {name}, then tfk8s up: the cluster waits in its queue again",
        )
    return None


def require_unqueued(name: str, workload: Object) -> None:
    """Raise an InvalidInput if the workload of a cluster that shall be scaled is in a queue."""
    if queue := kueue.queue_of(workload):
        raise InvalidInput(
            f'"{name}" can\'t be scaled in queue "{queue}": Kueue admits all its pods as one group',
            help=f"change the numbers in the job file, run tfk8s down {name}, then tfk8s up",
        )


def _admitted(workload: Object) -> tuple[object, ...] | None:
    """Return what Kueue counts of the pods of a workload; None without a queue."""
    if not (queue := kueue.queue_of(workload)):
        return None
    template = workload["spec"]["template"]
    containers = (*template["spec"]["containers"], *template["spec"].get("initContainers", ()))
    requests = [container.get("resources", {}).get("requests") for container in containers]
    return queue, template["metadata"].get("annotations", {}).get(kueue.TOTAL), requests
