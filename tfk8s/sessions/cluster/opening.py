"""Opens sessions with the ClusterSpec of an elastic cluster.

TensorFlow looks for the master in a session's ClusterSpec by the text of the session's target. So the target becomes
the address that the ClusterSpec has. Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tfk8s.core.addresses import SCHEME
from tfk8s.sessions.cluster import elastic, placement
from tfk8s.sessions.cluster.view import ClusterView


@dataclass(frozen=True, slots=True)
class Opening:
    """The parts of a session that its cluster decides.

    Attributes:
        target: the session's target, as the ClusterSpec has it.
        cluster: the tasks of the ClusterSpec that the session brings; None if it brings none.
        master: the task that the target leads to; "" if the session brings no ClusterSpec.
        place_on: the task for operations that name none, "worker/0"; "" if TensorFlow chooses the task as it should.
    """

    target: Any
    cluster: ClusterView | None = None
    master: str = ""
    place_on: str = ""


def open_in(view: ClusterView, target: Any, master: str = "") -> Opening:
    """Return how a session is opened.

    Args:
        view: the cluster.
        target: the target that the session's program gives.
        master: the task that the target leads to, if no address of the view shows the task.
    """
    text = target.decode(errors="replace") if isinstance(target, bytes) else target
    task = view.task_at(text) if isinstance(text, str) and text else ""
    if not (task or master) or not view.is_elastic:
        return Opening(target)
    place_on = (task or master) if placement.needed(view, task or master) else ""
    if view.brings_cluster and task:
        return Opening(f"{SCHEME}{view.addresses[task]}", view, task, place_on)
    return Opening(target, place_on=place_on)


def patch_config(config: Any, filters: Sequence[str], opened: Opening, *, isolate: bool = False) -> Any:
    """Return the `ConfigProto` of a session.

    Args:
        config: the session's own; it may be None.
        filters: device filters, unless the session has others.
        opened: how the session is opened; its ClusterSpec is for sessions that have no other.
        isolate: whether the session keeps its variables to itself.
    """
    if not filters and not isolate and opened.cluster is None:
        return config
    from tensorflow.core.protobuf import config_pb2

    patched = config_pb2.ConfigProto()
    if config is not None:
        patched.CopyFrom(config)
    if not patched.device_filters:
        patched.device_filters.extend(filters)
    patched.isolate_session_state = patched.isolate_session_state or isolate
    if opened.cluster is not None and not patched.cluster_def.job:
        patched.MergeFromString(elastic.session_config(opened.cluster.addresses, isolate=patched.isolate_session_state))
        if patched.device_filters:  # see `elastic.session_fields`
            patched.device_filters.append(elastic.device(opened.master))
    return patched
