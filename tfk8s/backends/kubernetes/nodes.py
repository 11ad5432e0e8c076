"""Refuses what no node can ever hold, before anything is made of it."""

from __future__ import annotations

from collections.abc import Sequence

from tfk8s import placement
from tfk8s.backends.kubernetes import observe
from tfk8s.backends.kubernetes.client import Client
from tfk8s.backends.kubernetes.errors import ApiError
from tfk8s.errors import InvalidInput
from tfk8s.pods import Object

_PATH = "/api/v1/nodes"
_MOST = 500  # of more, one look does not tell what the others are


def require_room(client: Client, objects: Sequence[Object]) -> None:
    """Raise an InvalidInput where no node can ever hold a task of some job.

    Where nodes may come by themselves, or can't be seen, the scheduler has the last word: `up` passes that on.
    """
    nodes = _nodes(client)
    if placement.may_grow(nodes):
        return
    reasons = []
    for made in objects:
        if made["kind"] == "StatefulSet":
            job = observe.container_environment(made)["TFK8S_JOB"]
            reason = placement.impossible(job, made["spec"]["template"]["spec"], nodes)
            reasons += [f"no node can ever hold a task of {job}: {reason}"] if reason else []
    if reasons:
        raise InvalidInput("; ".join(reasons), help="or add such nodes first; nothing was made")


def require_gpus(client: Client, resource: str, count: int) -> None:
    """Raise an InvalidInput where no node can ever give a script so many GPUs."""
    nodes = _nodes(client)
    if placement.may_grow(nodes):
        return
    most = max(placement.has(node, resource) for node in nodes)
    if most < count:
        raise InvalidInput(
            f"the script asks for {count} {resource}, and no node has more than {most}",
            help="lower --gpus, or add such nodes first; nothing was made",
        )


def _nodes(client: Client) -> list[Object]:
    """Return all nodes; none where the user may not see them, or they are too many."""
    try:
        answer = client.get(_PATH, {"limit": _MOST})
    except ApiError as error:
        if error.code != 403:
            raise
        return []
    items: list[Object] = answer["items"]
    return [] if answer["metadata"].get("continue") else items
