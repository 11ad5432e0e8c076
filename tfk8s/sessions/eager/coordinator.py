"""The script as the coordinator of TensorFlow 2's strategies: its `TF_CONFIG`.

The coordinator of a ParameterServerStrategy starts a server of its own, at the address of `chief` in `TF_CONFIG`. A ps
connects to that server when the script saves variables: the ps writes their values to the file that the script names.
Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from tfk8s.core.addresses import SCHEME
from tfk8s.core.cluster_spec import tf_config
from tfk8s.errors import InvalidInput, TaskUnreachable
from tfk8s.log import log
from tfk8s.sessions import adopted_server
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.eager import remote_context, silent_workers
from tfk8s.sessions.lost_tasks import of_script
from tfk8s.training import strategy

VARIABLE = "TF_CONFIG"
CHIEF = "chief"
MAX_VARIABLE = 131_071  # bytes of "NAME=value": MAX_ARG_STRLEN in Linux' execve(2), less the terminating zero

_NOT_ALONE = (
    "give the job a `program:` in the job file; or use tfk8s.strategy(), which trains on all workers from a session "
    "script"
)

# With other jobs, TensorFlow refuses the cluster ("Disallowed task type", multi_worker_util).
_JOBS = ("ps", "worker")


def become_coordinator(cluster: Mapping[str, list[str]], address: str) -> None:
    """Set `TF_CONFIG` for this process; leave it unset if the cluster is too large for a variable.

    Args:
        cluster: the address of each task, by job.
        address: the address of this process, for the tasks.
    """
    before = os.environ.pop(VARIABLE, None)
    jobs = {job: addresses for job, addresses in cluster.items() if job in _JOBS}
    value = tf_config({CHIEF: [address], **jobs}, CHIEF, 0)
    if len(f"{VARIABLE}={value}".encode()) <= MAX_VARIABLE:
        os.environ[VARIABLE] = value
    if before is not None:
        log.warning("the environment's TF_CONFIG is not used: in a session script, tfk8s sets TF_CONFIG")


def own_address(target: str, *, in_pod: bool) -> str:
    """Return an address at which the tasks can connect to a server of this process.

    Args:
        target: the master, "grpc://host:port".
        in_pod: whether this process runs in a pod, where it has the port alone. Otherwise, the tasks are on its
            machine.
    """
    if in_pod:
        # The forwards of the pod listen at the same port of the loopback address.
        os.environ.setdefault("TF_GRPC_REUSE_PORT", "true")
        with contextlib.suppress(TaskUnreachable):  # lost since the script's start
            return strategy.own_address(target)
    return f"localhost:{reserve_port()}"


def reserve_port() -> int:
    """Return a port on which only this process can start a server.

    Linux gives a bound port to no other `bind(0)`. A server of gRPC sets SO_REUSEADDR, as this socket does. So it may
    bind the same port, since this socket does not listen.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("", 0))
    port = int(reserved.getsockname()[1])
    reserved.detach()  # stays open as long as this process
    return port


def patch_connecting(view: ClusterView, check: Callable[[object], None]) -> None:
    """Check the tasks that this process connects to by eager execution; TensorFlow waits for all of them for ever.

    Args:
        view: the tasks of the cluster.
        check: is called with the address of each task, "grpc://host:port"; raises an error if no server answers.
    """
    from tensorflow.python.eager import context

    def patched(connect: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(connect)
        def patched_connect(self: Any, server_def: Any, *arguments: Any, **keywords: Any) -> None:
            server_def = _led(server_def)
            tasks = remote_context.tasks_to_connect(server_def)
            if tasks != remote_context.connected_tasks():  # equal if a coordinator connects to a restarted worker
                for task, address in tasks.items():
                    _require_included(task, address, view)
                    require_answer(address, check)
            else:
                silent_workers.wait_for_workers(of_script, view.answers, tasks)
            connect(self, server_def, *arguments, **keywords)

        return patched_connect

    for name in ("set_server_def", "update_server_def"):
        setattr(context.Context, name, patched(getattr(context.Context, name)))


def require_answer(address: str, check: Callable[[object], None]) -> None:
    """Check that a server answers at an address; say so if the address is the one that this script itself has.

    Args:
        address: the address of a task to connect to.
        check: is called with the address, "grpc://host:port"; raises an InvalidInput if no server answers.

    Raises:
        InvalidInput: no server answers.
    """
    try:
        check(f"{SCHEME}{address}")
    except InvalidInput:
        if address not in own_chief():
            raise
        raise InvalidInput(
            f"no TensorFlow server answers at {address}: the address is this script's own, as {CHIEF} in {VARIABLE}",
            help='call experimental_connect_to_cluster(…, job_name="chief", task_index=0), which makes the script the '
            "chief; or connect to a ClusterSpec that has the tasks alone",
        ) from None


def _led(server: Any) -> Any:
    """Lead the addresses of servers that the script meant to start to the tasks; return the `ServerDef`."""
    led = adopted_server.led(server)
    if led is not server and led.job_name == CHIEF and own_chief():
        for job in led.cluster.job:
            if job.name == CHIEF:
                job.tasks[led.task_index] = own_chief()[led.task_index]
    return led


def _require_included(task: str, address: str, view: ClusterView) -> None:
    if task in view.without and view.addresses.get(task) == address:
        raise InvalidInput(
            f"TensorFlow 2 connects to all tasks of the cluster, and --without leaves out {task}",
            help="omit --without; or give the strategy a cluster that ends before that task",
        )


def check_multi_worker(cluster: Mapping[str, list[str]]) -> None:
    """Refuse MultiWorkerMirroredStrategy; it would wait for the tasks for minutes, or train in this process alone.

    Args:
        cluster: the cluster of the strategy; empty without a `TF_CONFIG`.

    Raises:
        InvalidInput: the cluster is not one that the script made for itself.
    """
    if not cluster or cluster.get(CHIEF) == own_chief():
        raise InvalidInput(
            "MultiWorkerMirroredStrategy needs this program in every task, and a session script is one process",
            help=_NOT_ALONE,
        )


def check_parameter_server_v1(cluster: Mapping[str, list[str]]) -> None:
    """Refuse ParameterServerStrategy of TensorFlow 1 without a cluster; it would train in this process alone.

    Args:
        cluster: the cluster of the strategy; empty without a `TF_CONFIG`, as with `--tf1`.

    Raises:
        InvalidInput: the cluster is empty.
    """
    if not cluster:
        raise InvalidInput(
            "ParameterServerStrategy of TensorFlow 1 needs a TF_CONFIG, and this session script has none",
            help='open a session on os.environ["TFK8S_TARGET"]; or give the jobs a `program:` and `tf1: true` in the '
            "job file",
        )


def own_chief() -> list[str]:
    """Return the addresses of `chief` in this process' `TF_CONFIG`; empty without."""
    with contextlib.suppress(KeyError, TypeError, ValueError):  # the script may have set it to anything
        return list(json.loads(os.environ[VARIABLE])["cluster"][CHIEF])
    return []
