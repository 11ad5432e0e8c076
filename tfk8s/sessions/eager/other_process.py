"""TensorFlow 2's strategies in a process that calls tfk8s, such as a notebook: refused, since they find no cluster.

A session script has `TF_CONFIG` (coordinator.py), and so has a program of a task.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping

from tfk8s.errors import InvalidInput, submit_advice
from tfk8s.task.programs import imports, strategies


@functools.cache
def refuse_strategies() -> None:
    """Refuse strategies of this process that have no cluster; TensorFlow would train here alone, without a word."""
    imports.when_imported(
        strategies.MULTI_WORKER_MODULE, functools.partial(strategies.patch_multi_worker, check_multi_worker)
    )
    imports.when_imported(
        strategies.PARAMETER_SERVER_MODULE,
        functools.partial(strategies.patch_parameter_server, check_parameter_server),
    )


def check_multi_worker(cluster: Mapping[str, list[str]]) -> None:
    """Refuse MultiWorkerMirroredStrategy without a cluster.

    Args:
        cluster: the cluster of the strategy; empty without a `TF_CONFIG`.

    Raises:
        InvalidInput: the cluster is empty.
    """
    if not cluster:
        raise InvalidInput(
            f"MultiWorkerMirroredStrategy needs this program in every task, and {_kind()} is one process",
            help="give the job a `program:` in the job file; or use tfk8s.strategy() in a session script, which trains "
            f"on all workers: {submit_advice()}",
        )


def check_parameter_server(cluster: Mapping[str, list[str]]) -> None:
    """Refuse ParameterServerStrategy without a cluster, as `check_multi_worker` does."""
    if not cluster:
        raise InvalidInput(
            f"ParameterServerStrategy needs a session script, which has a TF_CONFIG, and {_kind()} has none",
            help=submit_advice(),
        )


def _kind() -> str:
    return "a notebook" if "ipykernel" in sys.modules else "this Python session"
