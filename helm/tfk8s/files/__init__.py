"""Distributed TensorFlow on this machine or on Kubernetes, from one job file.

    import tfk8s

    with tfk8s.up("cluster.yaml", local=True) as cluster:
        with cluster.session(graph=graph) as session:
            print(session.run(y))

Every name is imported when it is first used: `import tfk8s` itself takes next to nothing, and needs nothing
but the standard library, as in pods.
"""

from __future__ import annotations

import importlib
import sys
import types

from tfk8s.version import __version__

TYPE_CHECKING = False  # type checkers know better; `import typing` would cost as much as all the rest
if TYPE_CHECKING:
    from tfk8s.api import connect, up
    from tfk8s.cluster import Cluster
    from tfk8s.errors import (
        BackendUnreachable,
        ClusterError,
        DeviceMissing,
        GraphTooLarge,
        InvalidInput,
        JobFileError,
        NoSuchCluster,
        OutOfMemory,
        ScriptLost,
        TaskError,
        TaskLost,
        TaskRestarted,
        TaskUnreachable,
        Tfk8sError,
        VersionSkew,
        WaitTimeout,
    )
    from tfk8s.load import load
    from tfk8s.sessions import session

__all__ = [
    "BackendUnreachable",
    "Cluster",
    "ClusterError",
    "DeviceMissing",
    "GraphTooLarge",
    "InvalidInput",
    "JobFileError",
    "NoSuchCluster",
    "OutOfMemory",
    "ScriptLost",
    "TaskError",
    "TaskLost",
    "TaskRestarted",
    "TaskUnreachable",
    "Tfk8sError",
    "VersionSkew",
    "WaitTimeout",
    "__version__",
    "connect",
    "load",
    "session",
    "up",
]

_HOMES = {"Cluster": "cluster", "connect": "api", "load": "load", "session": "sessions", "up": "api"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


class _Package(types.ModuleType):
    """Keeps the function `load` where importing the module of that name would put the module."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOMES or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
