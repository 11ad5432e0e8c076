"""`tf.compat.v1.Session.reset` for elastic clusters. Standard library and TensorFlow only: this file also runs in pods.

TensorFlow passes the call on to the tasks that the master's server knew at its start (`Master::Reset` in
tensorflow/core/distributed_runtime/master.cc). An elastic server knows only itself.
"""

from __future__ import annotations

import functools
from typing import Any

from tfk8s.sessions.cluster.cluster_view import ClusterView


def patch_sessions(view: ClusterView) -> None:
    """Patch the sessions of this process: a reset of a task of an elastic cluster clears the other tasks, too.

    Args:
        view: the tasks, and those that sessions leave out.
    """
    from tensorflow.python.client.session import Session

    reset = Session.reset

    @functools.wraps(reset)
    def patched_reset(target: Any, containers: Any = None, config: Any = None) -> None:
        reset(target, containers, config)
        text = target.decode(errors="replace") if isinstance(target, bytes) else str(target or "")
        if (master := view.task_at(text)) and view.is_elastic:
            others = [task for task in view.addresses if task != master and task not in view.without]
            view.clear_containers(others, containers or ())

    Session.reset = staticmethod(patched_reset)
