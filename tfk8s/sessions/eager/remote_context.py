"""Frees what this process has made on tasks by eager execution.

When a client of TensorFlow 2 connects to tasks, each task keeps a context for the client, with its variables and
functions. A client that ends without a word leaves its contexts on the tasks for ten minutes (`_KEEP_ALIVE_SECS` in
tensorflow/python/eager/context.py). Closing them by requests of its own takes milliseconds, and works while other
threads still call TensorFlow. Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from typing import Any

from tfk8s import concurrency
from tfk8s.core.addresses import host_and_port
from tfk8s.task import wire

CLOSE_CONTEXT = "/tensorflow.eager.EagerService/CloseContext"

_TIMEOUT = 1.0  # for each task; a task that is frozen or gone frees the context later, or has lost it
_MAX_THREADS = 64
_LATEST_VIEW = 2**63 - 1  # tasks ignore requests with an older view of the cluster than their own


def close() -> None:
    """Close the contexts of this process on all tasks that it has connected to."""
    module = sys.modules.get("tensorflow.python.eager.context")
    context: Any = module.context_safe() if module else None
    server = context.get_server_def() if context else None
    if server is None:
        return
    from tensorflow.python import pywrap_tfe

    request = close_request(pywrap_tfe.TFE_GetContextId(context._handle))
    own = server.job_name, server.task_index
    addresses = [at for job in server.cluster.job for i, at in job.tasks.items() if (job.name, i) != own]
    concurrency.map_parallel(lambda address: _send(address, request), addresses, _MAX_THREADS)


def _send(address: str, request: bytes) -> None:
    with (
        contextlib.suppress(OSError, wire.ProbeError),
        socket.create_connection(host_and_port(address), _TIMEOUT) as stream,
    ):
        wire.call(stream, CLOSE_CONTEXT, _TIMEOUT, request)


def close_request(context_id: int) -> bytes:
    """Return the serialized `CloseContextRequest` (tensorflow/core/protobuf/eager_service.proto)."""
    return struct.pack("<BQBQ", 1 << 3 | 1, context_id, 2 << 3 | 1, _LATEST_VIEW)  # two fields of the type fixed64
