"""`tfk8s.strategy()`: synchronous training over a cluster's tasks, from one script.

Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfk8s.core import naming
from tfk8s.core.addresses import SCHEME, host_and_port, script_ports
from tfk8s.errors import InvalidInput, TaskUnreachable, submit_advice
from tfk8s.training import task_roles

if TYPE_CHECKING:
    import tensorflow as tf

_CONNECT_TIMEOUT = 4.0


def strategy(job: str | None = None, *, variables: str | None = None) -> tf.distribute.Strategy:
    """Return a strategy that trains on the cluster's tasks synchronously, for Keras' `fit` and for custom loops.

    Each step divides the global batch among the replicas: one for each GPU of a task, or one for a task without GPUs.
    The gradients are summed before the variables change. So the losses equal those of one process with the same
    global batch. The script reads its data itself, and sends each replica its part::

        strategy = tfk8s.strategy()
        with strategy.scope():
            model = keras.Sequential([…])
            model.compile(…)
        model.fit(dataset)

    Args:
        job: the job whose tasks compute; default: "worker" if the cluster has it, else the master's job.
        variables: the job whose tasks hold the variables, one after another; default: "ps" if the cluster has it, else
            `job`.

    Returns:
        The strategy. All strategies of a script share one connection to the cluster.

    Raises:
        InvalidInput: `tfk8s submit` did not start the script, or started it with `--here`; the cluster does not have a
            job, TensorFlow 1's behaviour is on, or TensorFlow is connected to another cluster.
        ClusterError: the tasks can't connect to the script.
        TaskUnreachable: the master does not answer.
    """
    if "TFK8S_CLUSTER" not in os.environ:
        raise InvalidInput("no cluster to train on: TFK8S_CLUSTER is not set", help=submit_advice())
    if naming.FORWARDED in os.environ:
        raise InvalidInput(
            "tfk8s.strategy() does not work with --here: the tasks can't connect to a script on this machine",
            help="leave out --here to run the script beside the tasks",
        )
    cluster = json.loads(os.environ["TFK8S_CLUSTER"])
    tasks = task_roles.used_tasks(cluster, [*os.environ.get("TFK8S_WITHOUT", "").split(","), *own_task(cluster)])
    roles = task_roles.assign_roles(tasks, job, variables)

    from tfk8s.training import cluster_strategy

    cluster_strategy.connect(tasks, functools.partial(own_address, os.environ.get("TFK8S_TARGET", "")))
    return cluster_strategy.ClusterStrategy(roles)


def own_task(cluster: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the task whose program this process is ("chief/0"), which has no server that could compute.

    A script has the address of its own as a task in `TF_CONFIG`.

    Args:
        cluster: the address of each task, by job.

    Returns:
        The task; empty for scripts.
    """
    with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):  # the process may have set them to anything
        config = json.loads(os.environ["TF_CONFIG"])
        job, index = config["task"]["type"], int(config["task"]["index"])
        if config["cluster"][job][index] == cluster[job][index]:
            return [naming.task(job, index)]
    return []


def own_address(target: str) -> str:
    """Return a free address of this process at which the tasks can connect to it.

    The NetworkPolicy of a cluster allows connections between its pods at the ports of its tasks, and at `script_ports`
    for scripts that share a pod. In a pod of its own, a script has the master's port.

    Args:
        target: the master, "grpc://host:port".

    Raises:
        TaskUnreachable: the master does not answer.
    """
    server = host_and_port(target.removeprefix(SCHEME))
    try:
        with socket.create_connection(server, _CONNECT_TIMEOUT) as connection:
            family, host = connection.family, str(connection.getsockname()[0])
    except OSError as error:
        raise TaskUnreachable(f"the master does not answer at {target}: {error}") from error
    port = _own_port(server[1]) if naming.SHARED_POD in os.environ else _free_port(family, host, server[1])
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"


@functools.cache
def _own_port(master: int) -> int:
    """Return a port that no other script of this pod has, for as long as this process runs.

    Raises:
        InvalidInput: the other scripts have all ports.
    """
    for port in script_ports(master):
        mark = socket.socket(socket.AF_UNIX)  # an abstract address belongs to the pod, and ends with the process
        try:
            mark.bind(f"\0tfk8s-port-{port}")
        except OSError:
            mark.close()
            continue
        mark.detach()
        return port
    message, remedy = "other scripts have all ports of your warm pod", "run this script by `tfk8s submit --fresh`"
    raise InvalidInput(message, help=remedy)


def _free_port(family: int, host: str, preferred: int) -> int:
    """Return a port that is free: the preferred one, if it is, or if its other users share it."""
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listener.bind((host, preferred))
        except OSError:
            listener.bind((host, 0))
        return int(listener.getsockname()[1])
