"""Distributed TensorFlow on this machine or on Kubernetes, from one job file.

A script starts a cluster, and opens a session::

    import tfk8s

    with tfk8s.up("cluster.yaml", local=True) as cluster:
        with cluster.session(graph=graph) as session:
            print(session.run(y))

Every name is imported when it is first used: `import tfk8s` itself takes next to nothing, and needs nothing
but the standard library, as in pods.
"""

from __future__ import annotations

import importlib

from tfk8s.version import __version__

TYPE_CHECKING = False  # type checkers know better; `import typing` would cost as much as all the rest
if TYPE_CHECKING:
    from tfk8s.api import connect, diff, history, ls, up
    from tfk8s.cluster.handle import Cluster
    from tfk8s.cluster.submitting import Run
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
    from tfk8s.jobfile.loader import load
    from tfk8s.sessions.session import session
    from tfk8s.training import parallel
    from tfk8s.training.keras_support import correct_keras
    from tfk8s.training.paths import path
    from tfk8s.training.progress import progress
    from tfk8s.training.strategy import strategy

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
    "Run",
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
    "correct_keras",
    "diff",
    "history",
    "load",
    "ls",
    "parallel",
    "path",
    "progress",
    "session",
    "strategy",
    "up",
]

_HOMES = {
    "Cluster": "cluster.handle",
    "Run": "cluster.submitting",
    "connect": "api",
    "correct_keras": "training.keras_support",
    "diff": "api",
    "history": "api",
    "load": "jobfile.loader",
    "ls": "api",
    "path": "training.paths",
    "progress": "training.progress",
    "session": "sessions.session",
    "strategy": "training.strategy",
    "up": "api",
}
_MODULES = {"parallel": "training.parallel"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name) or _HOMES.get(name, 'errors')}")
    value: object = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
