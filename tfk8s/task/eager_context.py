"""Gives a server a first context of eager execution, which no client owns.

Each client of TensorFlow 2 makes a context on each task. If a server has no context yet, CreateContext also replaces
the server's manager of collective operations (tensorflow/core/distributed_runtime/eager/eager_service_impl.cc). When
two clients come at the same time, both find no context: the second one frees the manager that the first one's context
uses, and the first one's next operation crashes the server (SIGSEGV). With a context from the start, no client replaces
the manager. Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import socket

from tfk8s.task import wire
from tfk8s.task.config import TaskConfig

_CREATE_CONTEXT = "/tensorflow.eager.EagerService/CreateContext"
_ID = 1  # clients take random numbers of 64 bits, and TensorFlow refuses 0
_TIMEOUT = 10.0  # seconds


def create(config: TaskConfig) -> None:
    """Create the context on the task's server, which runs in this process.

    Raises:
        ProbeError: the server refuses.
        OSError: the server does not answer in 10 s.
    """
    with socket.create_connection(("localhost", config.port), _TIMEOUT) as stream:
        wire.call(stream, _CREATE_CONTEXT, _TIMEOUT, create_request(config))


def create_request(config: TaskConfig) -> bytes:
    """Return a serialized `CreateContextRequest` (tensorflow/core/protobuf/eager_service.proto).

    Without `keep_alive_secs`, the context lives as long as the server.
    """
    return wire.field(1, config.server_def(threads=1)) + wire.fixed64_field(7, _ID)
