"""Frees what this process has made on tasks by eager execution.

When a client of TensorFlow 2 connects to tasks, each task keeps a context for the client, with its variables and
functions. A client that ends without a word leaves its contexts on the tasks for ten minutes (`_KEEP_ALIVE_SECS` in
tensorflow/python/eager/context.py). Closing them by requests of its own takes milliseconds, and works while other
threads still call TensorFlow. Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import Any

from tfk8s import concurrency
from tfk8s.core import naming
from tfk8s.core.addresses import host_and_port
from tfk8s.task import wire

MODULE = "tensorflow.python.eager.context"
CLOSE_CONTEXT = "/tensorflow.eager.EagerService/CloseContext"

_TIMEOUT = 1.0  # for each task; a task that is frozen or gone frees the context later, or has lost it
_MAX_THREADS = 64
_LATEST_VIEW = 2**63 - 1  # tasks ignore requests with an older view of the cluster than their own


def close() -> None:
    """Close the contexts of this process on all tasks that it has connected to."""
    context = _context()
    tasks = connected_tasks()
    if context is None or not tasks:
        return
    from tensorflow.python import pywrap_tfe

    request = close_request(pywrap_tfe.TFE_GetContextId(context._handle))
    concurrency.map_parallel(lambda address: _send(address, request), list(tasks.values()), _MAX_THREADS)


def connected_tasks() -> dict[str, str]:
    """Return the address of each task that this process has connected to by eager execution."""
    context = _context()
    server = context.get_server_def() if context else None
    return tasks_to_connect(server) if server else {}


def tasks_to_connect(server: Any) -> dict[str, str]:
    """Return the address of each task of a `ServerDef`, without the task that the process itself is."""
    tasks = {naming.task(job.name, i): at for job in server.cluster.job for i, at in job.tasks.items()}
    return {task: at for task, at in tasks.items() if task != naming.task(server.job_name, server.task_index)}


def _context() -> Any:
    """Return TensorFlow's eager context, or None."""
    module = sys.modules.get(MODULE)
    return module.context_safe() if module else None


def _send(address: str, request: bytes) -> None:
    with (
        contextlib.suppress(OSError, wire.ProbeError),
        socket.create_connection(host_and_port(address), _TIMEOUT) as stream,
    ):
        wire.call(stream, CLOSE_CONTEXT, _TIMEOUT, request)


def close_request(context_id: int) -> bytes:
    """Return the serialized `CloseContextRequest` (tensorflow/core/protobuf/eager_service.proto)."""
    return wire.fixed64_field(1, context_id) + wire.fixed64_field(2, _LATEST_VIEW)
