"""Checks of TensorFlow's strategies in a process: a mistake shows as a clear word, not as a wait or a lonely worker.

Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tfk8s.core import naming
from tfk8s.errors import InvalidInput, submit_advice
from tfk8s.task.programs import imports

MULTI_WORKER_MODULE = "tensorflow.python.distribute.collective_all_reduce_strategy"
PARAMETER_SERVER_MODULE = "tensorflow.python.distribute.parameter_server_strategy_v2"
PARAMETER_SERVER_V1_MODULE = "tensorflow.python.distribute.parameter_server_strategy"
PREEMPTION_MODULE = "tensorflow.python.distribute.failure_handling.failure_handling"
_CONFIG, _PLACE = "termination_config", 3  # an argument of PreemptionCheckpointHandler

_ADVICE = "leave TF_CONFIG as tfk8s sets it"


def watch(environment: Mapping[str, str], warn: Callable[[str], None]) -> None:
    """Check the strategies of this process, which is a program of a task.

    Args:
        environment: its variables, as tfk8s has set them.
    """
    config = json.loads(environment.get("TF_CONFIG", "{}"))
    check = functools.partial(check_cluster, config, warn)
    imports.when_imported(MULTI_WORKER_MODULE, functools.partial(patch_multi_worker, check))
    imports.when_imported(PARAMETER_SERVER_MODULE, patch_parameter_server)


def check_cluster(config: Mapping[str, Any], warn: Callable[[str], None], cluster: Mapping[str, list[str]]) -> None:
    """Warn of a cluster that can't be meant, before MultiWorkerMirroredStrategy connects to its tasks.

    Args:
        config: the TF_CONFIG of the task.
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


def patch_parameter_server(check: Callable[[Mapping[str, list[str]]], None] | None = None) -> None:
    """Make ParameterServerStrategy refuse to start in a worker or a ps; it would wait for other tasks for ever.

    Args:
        check: is called with the cluster of each strategy first; raises an error that refuses the strategy.
    """
    from tensorflow.python.distribute import parameter_server_strategy_v2

    strategy = parameter_server_strategy_v2.ParameterServerStrategyV2
    make = strategy.__init__

    @functools.wraps(make)
    def patched_init(self: Any, cluster_resolver: Any, *arguments: Any, **keywords: Any) -> None:
        if check is not None:
            check(cluster_resolver.cluster_spec().as_dict())
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


def patch_parameter_server_v1(check: Callable[[Mapping[str, list[str]]], None]) -> None:
    """Call a function with the cluster of each ParameterServerStrategy of TensorFlow 1, before the strategy is made.

    Without a cluster, that strategy trains in its process alone (TensorFlow 2.21, `_initialize_strategy` in
    tensorflow/python/distribute/parameter_server_strategy.py).
    """
    from tensorflow.python.distribute import parameter_server_strategy

    strategy = parameter_server_strategy.ParameterServerStrategyV1
    make = strategy.__init__

    @functools.wraps(make)
    def patched_init(self: Any, cluster_resolver: Any = None) -> None:
        resolver = cluster_resolver or parameter_server_strategy.tfconfig_cluster_resolver.TFConfigClusterResolver()
        check(resolver.cluster_spec().as_dict())
        make(self, resolver)

    strategy.__init__ = patched_init


@functools.cache
def refuse_without_cluster() -> None:
    """Refuse the strategies of this process that have no cluster; TensorFlow would train here alone, without a word.

    The process is a notebook's kernel, or another that calls tfk8s. A session script has `TF_CONFIG`, and so has a
    program of a task.
    """
    imports.when_imported(MULTI_WORKER_MODULE, functools.partial(patch_multi_worker, _require_programs))
    imports.when_imported(PARAMETER_SERVER_MODULE, functools.partial(patch_parameter_server, _require_script))
    imports.when_imported(PARAMETER_SERVER_V1_MODULE, functools.partial(patch_parameter_server_v1, _require_script))


def _require_programs(cluster: Mapping[str, list[str]]) -> None:
    if not cluster:
        raise InvalidInput(
            f"MultiWorkerMirroredStrategy needs this program in every task, and {_this_process()} is one process",
            help="give the job a `program:` in the job file; or use tfk8s.strategy() in a session script, which trains "
            f"on all workers: {submit_advice()}",
        )


def _require_script(cluster: Mapping[str, list[str]]) -> None:
    if not cluster:
        raise InvalidInput(
            f"ParameterServerStrategy needs a session script, which has a TF_CONFIG, and {_this_process()} has none",
            help=submit_advice(),
        )


def _this_process() -> str:
    return "a notebook" if "ipykernel" in sys.modules else "this Python session"


def watch_preemption(environment: Mapping[str, str], grace: float, warn: Callable[[str], None]) -> None:
    """Let TensorFlow's PreemptionCheckpointHandler save at SIGTERM, within the job file's `grace`.

    On Google Cloud, the handler polls the metadata server for the maintenance of the machine instead of SIGTERM, and
    trains on for an hour; without a GPU there, it does nothing (TensorFlow 2.21, failure_handling.py and
    failure_handling_util.py in tensorflow/python/distribute/failure_handling/). But whatever ends a pod sends SIGTERM,
    and soon SIGKILL. So here the handler believes that it is elsewhere.

    Args:
        environment: the variables of the program.
        grace: the seconds between SIGTERM and SIGKILL.
    """
    imports.when_imported(PREEMPTION_MODULE, functools.partial(_patch_preemption, environment, grace, warn))


def preemption_warning(environment: Mapping[str, str], grace: float, config: Any) -> str:
    """Return why the handler's checkpoint may come too late, or never; "" if it comes in time.

    Args:
        environment: the variables of the program.
        grace: the seconds between SIGTERM and SIGKILL.
        config: the TerminationConfig that the program gives the handler, or None.
    """
    if getattr(config, "termination_watcher_fn", None):
        return (
            "PreemptionCheckpointHandler does not see SIGTERM, because its TerminationConfig has a "
            "termination_watcher_fn: leave that out to save before the end of a pod"
        )
    if (period := getattr(config, "grace_period", None) or 0) >= grace:
        return (
            f"PreemptionCheckpointHandler saves {period:g} s after SIGTERM, and the program is killed after {grace:g} s"
            f": leave grace_period out of TerminationConfig, or set grace: {int(period) * 2}s in the job file"
        )
    if naming.GRACE not in environment:
        return f"PreemptionCheckpointHandler has {grace:g} s to save after SIGTERM: set grace: 30s in the job file"
    return ""


def _patch_preemption(environment: Mapping[str, str], grace: float, warn: Callable[[str], None]) -> None:
    from tensorflow.python.distribute.failure_handling import failure_handling

    with contextlib.suppress(AttributeError):  # another version of TensorFlow
        failure_handling.failure_handling_util.on_gcp = lambda: False
    handler = failure_handling.PreemptionCheckpointHandler
    make = handler.__init__

    @functools.wraps(make)
    def patched_init(self: Any, *arguments: Any, **keywords: Any) -> None:
        config = keywords.get(_CONFIG, arguments[_PLACE] if len(arguments) > _PLACE else None)
        if text := preemption_warning(environment, grace, config):
            warn(text)
        make(self, *arguments, **keywords)

    handler.__init__ = patched_init
