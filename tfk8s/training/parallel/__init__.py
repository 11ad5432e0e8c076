"""Data parallelism over plain graphs and sessions: functions to divide, replicate, send, average and repeat.

All functions add operations to the current graph: TensorFlow 1's default graph, or a `tf.Graph` of TensorFlow 2. A task
is a device as TensorFlow writes it, "/job:worker/task:0", or "/job:worker/task:0/device:GPU:0"::

    from tfk8s import parallel

    workers = ["/job:worker/task:0", "/job:worker/task:1"]
    costs = parallel.map_tasks(cost, parallel.split(x, workers), workers)

A wrong argument raises `InvalidInput`. Standard library and TensorFlow only: this package also runs in pods. The first
use of a function imports TensorFlow.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tfk8s.training.parallel.averages import average_gradients, reduce_mean, ring_mean, tree_mean
    from tfk8s.training.parallel.division import inputs, map_tasks, split
    from tfk8s.training.parallel.loops import local_sgd, repeat
    from tfk8s.training.parallel.packing import broadcast
    from tfk8s.training.parallel.replicas import replicate

__all__ = [
    "average_gradients",
    "broadcast",
    "inputs",
    "local_sgd",
    "map_tasks",
    "reduce_mean",
    "repeat",
    "replicate",
    "ring_mean",
    "split",
    "tree_mean",
]

_HOMES = {
    "average_gradients": "averages",
    "broadcast": "packing",
    "inputs": "division",
    "local_sgd": "loops",
    "map_tasks": "division",
    "reduce_mean": "averages",
    "repeat": "loops",
    "replicate": "replicas",
    "ring_mean": "averages",
    "split": "division",
    "tree_mean": "averages",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
