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
from tfk8s.sessions.cluster.cluster_view import ClusterView


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


def open_in(view: ClusterView, target: Any, config: Any = None, master: str = "") -> Opening:
    """Return how a session is opened.

    Args:
        view: the cluster.
        target: the target that the session's program gives.
        config: the `ConfigProto` that the program gives, or None. One with a ClusterSpec decides by itself.
        master: the task that the target leads to, if no address of the view shows the task.
    """
    if _has_cluster(config):
        return Opening(target)
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
        config: the session's own; None is TensorFlow's default.
        filters: device filters, unless the session has others, or a ClusterSpec with names of its own.
        opened: how the session is opened.
        isolate: whether the session keeps its variables to itself.
    """
    if _has_cluster(config):
        filters = ()
    if not filters and not isolate and opened.cluster is None:
        return config
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    patched = config_pb2.ConfigProto()
    patched.CopyFrom(context.context().config if config is None else config)  # as `BaseSession.__init__` does
    if not patched.device_filters:
        patched.device_filters.extend(filters)
    patched.isolate_session_state = patched.isolate_session_state or isolate
    if opened.cluster is not None:
        patched.MergeFromString(elastic.session_config(opened.cluster.addresses, isolate=patched.isolate_session_state))
        if patched.device_filters:  # see `elastic.session_fields`
            patched.device_filters.append(elastic.device(opened.master))
    return patched


def _has_cluster(config: Any) -> bool:
    """Return whether a session brings a ClusterSpec of its own."""
    cluster = getattr(config, "cluster_def", None)  # TensorFlow refuses other types
    return cluster is not None and bool(cluster.job)
