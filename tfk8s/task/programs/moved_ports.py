"""Leads the addresses that a script knows to the ports that its cluster has.

Two clusters of one machine may want the same port. Then a task of one of them gets another port, and a script may
still name the task by `localhost:2222`, as a tutorial does: in a session's target, in a ClusterSpec, in flags. Standard
library and TensorFlow only: any interpreter runs this file.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from tfk8s.task.programs import imports

VARIABLE = "TFK8S_PORTS"

_SCHEME = "grpc://"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_SESSION_MODULE = "tensorflow.python.client.session"
_SERVER_MODULE = "tensorflow.python.training.server_lib"
_CONTEXT_MODULE = "tensorflow.python.eager.context"
_DATA_MODULE = "tensorflow.python.data.experimental.ops.data_service_ops"
_TAKES_SERVER = ("set_server_def", "update_server_def", "enable_collective_ops")  # methods of TensorFlow's context


def lead(environment: Mapping[str, str]) -> None:
    """Patch the sessions, servers and connections of this process, if tasks have other ports.

    Args:
        environment: the variables of the process.
    """
    ports = json.loads(environment.get(VARIABLE, "{}"))
    if ports:
        imports.when_imported(_SESSION_MODULE, lambda: _patch_sessions(ports))
        imports.when_imported(_SERVER_MODULE, lambda: _patch_servers(ports))
        imports.when_imported(_CONTEXT_MODULE, lambda: _patch_context(ports))
        imports.when_imported(_DATA_MODULE, lambda: _patch_data_service(ports))


def moved(address: str, ports: Mapping[str, int]) -> str:
    """Return the address of a task that has moved, `127.0.0.1:PORT`; another address as it is.

    Args:
        address: "host:port".
        ports: the port of each task that has moved, by the port that scripts know.
    """
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{ports[port]}" if host in _LOOPBACK and port in ports else address


def _patch_sessions(ports: Mapping[str, int]) -> None:
    from tensorflow.python.client.session import BaseSession, Session

    make, reset = BaseSession.__init__, Session.reset

    @functools.wraps(make)
    def patched_init(self: Any, target: Any = "", *arguments: Any, **keywords: Any) -> None:
        make(self, _moved_target(target, ports), *arguments, **keywords)

    @functools.wraps(reset)
    def patched_reset(target: Any, *arguments: Any, **keywords: Any) -> Any:
        return reset(_moved_target(target, ports), *arguments, **keywords)

    BaseSession.__init__, Session.reset = patched_init, staticmethod(patched_reset)


def _moved_target(target: Any, ports: Mapping[str, int]) -> Any:
    text = target.decode(errors="replace") if isinstance(target, bytes) else target
    if isinstance(text, str) and text.startswith(_SCHEME):
        return _SCHEME + moved(text.removeprefix(_SCHEME), ports)
    return target


def _patch_data_service(ports: Mapping[str, int]) -> None:
    from tensorflow.python.data.experimental.ops import data_service_ops

    parse = data_service_ops._parse_service

    @functools.wraps(parse)
    def parse_moved(service: Any) -> Any:
        protocol, address = parse(service)
        return protocol, moved(address, ports)

    data_service_ops._parse_service = parse_moved


def _patch_servers(ports: Mapping[str, int]) -> None:
    from tensorflow.python.training import server_lib

    make = server_lib._make_server_def

    @functools.wraps(make)
    def make_moved(*arguments: Any, **keywords: Any) -> Any:
        return _move(make(*arguments, **keywords), ports)

    server_lib._make_server_def = make_moved


def _patch_context(ports: Mapping[str, int]) -> None:
    from tensorflow.python.eager import context

    def patched(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, server_def: Any, *arguments: Any, **keywords: Any) -> Any:
            return method(self, _move(server_def, ports), *arguments, **keywords)

        return call

    for name in _TAKES_SERVER:
        setattr(context.Context, name, patched(getattr(context.Context, name)))


def _move(server: Any, ports: Mapping[str, int]) -> Any:
    """Return a `ServerDef` with the addresses of tasks that have moved."""
    if server is None:  # TensorFlow refuses it
        return server
    copy = type(server)()
    copy.CopyFrom(server)
    for job in copy.cluster.job:
        for index in list(job.tasks):
            job.tasks[index] = moved(job.tasks[index], ports)
    return copy
