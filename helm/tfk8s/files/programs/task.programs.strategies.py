"""Checks of TensorFlow's strategies in a process: a mistake shows as a clear word, not as a wait or a lonely worker.

Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from tfk8s.task.programs import imports

MULTI_WORKER_MODULE = "tensorflow.python.distribute.collective_all_reduce_strategy"
PARAMETER_SERVER_MODULE = "tensorflow.python.distribute.parameter_server_strategy_v2"

_ADVICE = "leave TF_CONFIG as tfk8s sets it"


def watch(environment: Mapping[str, str], warn: Callable[[str], None]) -> None:
    """Check the strategies of this process, which is a program of a task.

    Args:
        environment: its variables, as tfk8s has set them.
        warn: is called with a warning.
    """
    config = json.loads(environment.get("TF_CONFIG", "{}"))
    check = functools.partial(check_cluster, config, warn)
    imports.when_imported(MULTI_WORKER_MODULE, functools.partial(patch_multi_worker, check))
    imports.when_imported(PARAMETER_SERVER_MODULE, patch_parameter_server)


def check_cluster(config: Mapping[str, Any], warn: Callable[[str], None], cluster: Mapping[str, list[str]]) -> None:
    """Warn of a cluster that can't be meant, before MultiWorkerMirroredStrategy connects to its tasks.

    Args:
        config: the TF_CONFIG of the task.
        warn: is called with a warning.
        cluster: the cluster of the strategy; empty if the strategy found no TF_CONFIG.
    """
    known = {address for addresses in config.get("cluster", {}).values() for address in addresses}
    unknown = [address for addresses in cluster.values() for address in addresses if address not in known]
    if config.get("task", {}).get("type") == "evaluator" or len(known) < 2:
        return
    if not cluster:
        warn(
            "MultiWorkerMirroredStrategy finds no TF_CONFIG: this process trains alone, and the cluster has "
            f"{len(known)} tasks; {_ADVICE}"
        )
    elif unknown:
        warn(
            f"MultiWorkerMirroredStrategy waits for {unknown[0]}, which is no task of this cluster: the program has "
            f"its own TF_CONFIG; {_ADVICE}"
        )


def patch_multi_worker(check: Callable[[Mapping[str, list[str]]], None]) -> None:
    """Call a function with the cluster of each MultiWorkerMirroredStrategy, before it connects to other tasks."""
    from tensorflow.python.distribute import collective_all_reduce_strategy

    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    initialize = extended._initialize_strategy

    @functools.wraps(initialize)
    def patched_initialize(self: Any, cluster_resolver: Any, *arguments: Any, **keywords: Any) -> None:
        check(cluster_resolver.cluster_spec().as_dict())
        initialize(self, cluster_resolver, *arguments, **keywords)

    extended._initialize_strategy = patched_initialize


def patch_parameter_server() -> None:
    """Make ParameterServerStrategy refuse to start in a worker or a ps; it would wait for other tasks for ever."""
    from tensorflow.python.distribute import parameter_server_strategy_v2

    strategy = parameter_server_strategy_v2.ParameterServerStrategyV2
    make = strategy.__init__

    @functools.wraps(make)
    def patched_init(self: Any, cluster_resolver: Any, *arguments: Any, **keywords: Any) -> None:
        job, index = cluster_resolver.task_type, cluster_resolver.task_id
        if job in ("worker", "ps"):
            is_own = json.loads(os.environ.get("TF_CONFIG") or "{}").get("task") == {"type": job, "index": index}
            source = "TF_CONFIG" if is_own else "its cluster resolver"
            raise ValueError(
                f"ParameterServerStrategy belongs in one process, the coordinator, and by {source} this is "
                f"{job}/{index}: give the tasks servers, without `program:`, and submit the program; or give the "
                "program to a job `chief`"
            )
        make(self, cluster_resolver, *arguments, **keywords)

    strategy.__init__ = patched_init
