"""`tfk8s.strategy()`: synchronous training over a cluster's tasks, from one script.

Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import functools
import json
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfk8s.core import naming
from tfk8s.core.addresses import SCHEME, host_and_port
from tfk8s.errors import InvalidInput, TaskUnreachable, quoted, there_are

if TYPE_CHECKING:
    import tensorflow as tf

_DEFAULT_JOB = "worker"
_DEFAULT_VARIABLES = "ps"
_CONNECT_TIMEOUT = 4.0

Tasks = Mapping[str, Mapping[int, str]]  # the address of each task, by job and index


def strategy(job: str | None = None, *, variables: str | None = None) -> tf.distribute.Strategy:
    """Return a strategy that trains on the cluster's tasks synchronously, for Keras' `fit` and for custom loops.

    Each step divides the global batch among the replicas: one for each GPU of a task, or one for a task without GPUs.
    The gradients are summed before the variables change. So the losses equal those of one process with the same
    global batch. The script reads its data itself, and sends each replica its part.

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
        InvalidInput: `tfk8s submit` did not start the script, the cluster does not have a job, TensorFlow 1's
            behaviour is on, or TensorFlow is connected to another cluster.
        ClusterError: the tasks can't connect to the script.
        TaskUnreachable: the master does not answer.
    """
    if "TFK8S_CLUSTER" not in os.environ:
        raise InvalidInput(
            "no cluster to train on: TFK8S_CLUSTER is not set",
            help="run the script with `tfk8s submit NAME SCRIPT`, which runs it beside the tasks",
        )
    tasks = used_tasks(json.loads(os.environ["TFK8S_CLUSTER"]), os.environ.get("TFK8S_WITHOUT", "").split(","))
    roles = assign_roles(tasks, job, variables)

    from tfk8s.training import cluster_strategy

    cluster_strategy.connect(tasks, functools.partial(own_address, os.environ.get("TFK8S_TARGET", "")))
    return cluster_strategy.ClusterStrategy(roles)


@dataclass(frozen=True, slots=True)
class TaskRoles:
    """The tasks of a strategy, as TensorFlow writes them ("/job:worker/replica:0/task:1").

    Attributes:
        compute: the tasks that compute.
        variables: the tasks that hold the variables.
    """

    compute: Sequence[str]
    variables: Sequence[str]


def used_tasks(cluster: Mapping[str, Sequence[str]], without: Collection[str]) -> Tasks:
    """Return the cluster without the tasks that are left out ("worker/3"), and without jobs that have no other task."""
    kept = {
        job: {i: address for i, address in enumerate(addresses) if naming.task(job, i) not in without}
        for job, addresses in cluster.items()
    }
    return {job: tasks for job, tasks in kept.items() if tasks}


def assign_roles(tasks: Tasks, job: str | None, variables: str | None) -> TaskRoles:
    """Return the tasks that compute and the tasks that hold the variables; arguments as of `strategy`.

    Raises:
        InvalidInput: the cluster does not have a job.
    """
    master = next(iter(tasks), "")  # TFK8S_CLUSTER has the master's job first
    job = job or (_DEFAULT_JOB if _DEFAULT_JOB in tasks else master)
    variables = variables or (_DEFAULT_VARIABLES if _DEFAULT_VARIABLES in tasks else job)
    for name in (job, variables):
        if name not in tasks:
            raise InvalidInput(
                f"tfk8s.strategy(): this cluster has no job {quoted(name)}", help=there_are(list(tasks), "job")
            )
    return TaskRoles(_devices(tasks, job), _devices(tasks, variables))


def _devices(tasks: Tasks, job: str) -> list[str]:
    return [f"/job:{job}/replica:0/task:{index}" for index in tasks[job]]


def own_address(target: str) -> str:
    """Return a free address of this process at which the tasks can connect to it.

    The NetworkPolicy of a cluster allows connections between its pods at the ports of its tasks only. So the port is
    the master's, unless a program has it on this machine.

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
    port = _free_port(family, host, server[1])
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"


def _free_port(family: int, host: str, preferred: int) -> int:
    """Return a port that is free: the preferred one, if it is, or if its other users share it."""
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            listener.bind((host, preferred))
        except OSError:
            listener.bind((host, 0))
        return int(listener.getsockname()[1])
