"""Forwards to a cluster's tasks, which give sessions the ClusterSpec of an elastic cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tfk8s.backends import devices
from tfk8s.backends.protocol import Backend
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus
from tfk8s.errors import Tfk8sError
from tfk8s.sessions.cluster.create_session import SessionFields
from tfk8s.sessions.forward import Forward


def forward_to_task(
    backend: Backend, status: ClusterStatus, notify: Callable[[str], None], task: Task | None = None, port: int = 0
) -> Forward:
    """Return a forward to a task of a cluster.

    Args:
        notify: as of `Forward`.
        task: the task; default: the master.
        port: the port; 0 is any free port.

    Raises:
        InvalidInput: the port is in use, or not allowed.
    """
    to = task or status.master

    def get_fields() -> SessionFields | None:
        nonlocal status
        with contextlib.suppress(Tfk8sError):  # then the latest ClusterSpec that is known has to do
            status = backend.observe(status.name)
        return SessionFields(devices.view(backend, status).addresses, str(to))

    fills = status.is_elastic and all(task.takes_part for task in status.tasks if task.task == to)
    return Forward(lambda: backend.dial(status.name, to), port, notify, get_fields=get_fields if fills else None)
