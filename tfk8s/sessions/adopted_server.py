"""Adopts the cluster's tasks in place of the servers that scripts of between-graph replication start.

Such a script starts the server of its task in its own process: `tf.distribute.Server(cluster, job_name, task_index)`.
The server of that task runs already. So the object starts no server, and its `target` leads to the task. A server at
port 0, such as `create_local_server()`, is the script's own and starts as always.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import traceback
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfk8s.core import naming
from tfk8s.errors import InvalidInput
from tfk8s.log import log
from tfk8s.sessions import error_names
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.sessions.timing import TIMING

SERVER_MODULE = "tensorflow.python.training.server_lib"

_LOOPBACK = ("localhost", "127.", "[::1]")

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_TENSORFLOW = f"{os.sep}tensorflow{os.sep}"

# The addresses of this cluster's tasks, by the names and the addresses of tasks that the script meant to start.
_led: dict[tuple[str, str], str] = {}

ServerTasks = Mapping[str, Mapping[int, str]]  # a ClusterDef: the address of each task, by job and index


def patch_servers(view: ClusterView, losses: LostTasks, end_signal: int) -> None:
    """Patch the servers of this process.

    Args:
        view: the tasks to adopt.
        losses: the lost tasks, which end `join`.
        end_signal: the signal that ends a script when its cluster is removed; `join` returns then.
    """
    from tensorflow.python.training import server_lib

    server = server_lib.Server
    make, start, join, target = server.__init__, server.start, server.join, server.target

    @functools.wraps(make)
    def patched_init(
        self: Any, server_or_cluster_def: Any, job_name: Any = None, task_index: Any = None, protocol: Any = None,
        config: Any = None, start: bool = True,
    ) -> None:  # fmt: skip
        wanted = server_lib._make_server_def(server_or_cluster_def, job_name, task_index, protocol, config)
        cluster = {job.name: dict(job.tasks) for job in wanted.cluster.job}
        self._tfk8s_task = adopted_task(cluster, wanted.job_name, wanted.task_index, view.addresses)
        if not self._tfk8s_task:
            make(self, wanted, start=start)
            return
        for job, tasks in cluster.items():
            for index, address in tasks.items():
                _led[naming.task(job, index), address] = view.addresses[naming.task(job, index)]
        wanted.cluster.CopyFrom(server_lib.ClusterSpec(view.cluster).as_cluster_def())
        self._server_def = wanted

    @functools.wraps(start)
    def patched_start(self: Any) -> None:
        if not self._tfk8s_task:
            start(self)

    @functools.wraps(join)
    def patched_join(self: Any) -> None:
        if self._tfk8s_task:
            join_task(self._tfk8s_task, view, losses, end_signal)
        else:
            join(self)

    def patched_target(self: Any) -> Any:
        return f"grpc://{view.addresses[self._tfk8s_task]}" if self._tfk8s_task else target.__get__(self)

    server.__init__, server.start, server.join = patched_init, patched_start, patched_join
    server.target = property(patched_target, doc=target.__doc__)


def adopted_task(cluster: ServerTasks, job: str, index: int, addresses: Mapping[str, str]) -> str:
    """Return the task that a server stands for; "" for a server of the script's own.

    Jobs and indices decide, not addresses: a script may have the addresses of other machines.

    Args:
        cluster: the server's cluster.
        job: the job of the server's task.
        index: the index of the server's task.
        addresses: the address of each task of this cluster, by its short name.

    Raises:
        InvalidInput: the server's cluster has tasks that this cluster does not have.
    """
    own = cluster.get(job, {}).get(index, "")
    if not own or own.endswith(":0"):  # TensorFlow refuses a task without an address
        return ""
    wanted = {naming.task(name, i): address for name, tasks in cluster.items() for i, address in tasks.items()}
    missing = [task for task in wanted if task not in addresses]
    if missing:
        raise _other_cluster(cluster, missing[0], addresses)
    task = naming.task(job, index)
    foreign = [at for at in wanted.values() if not at.startswith(_LOOPBACK) and at not in addresses.values()]
    if foreign:
        _log_once(f"the script's addresses ({foreign[0]}) are not used: here, {task} is {addresses[task]}")
    return task


def led(server: Any) -> Any:
    """Return a `ServerDef` with the addresses of adopted tasks; the same object if it names none of them."""
    found = {
        (job.name, i): _led.get((naming.task(job.name, i), at))
        for job in server.cluster.job
        for i, at in job.tasks.items()
    }
    if not any(found.values()):
        return server
    copy = type(server)()
    copy.CopyFrom(server)
    for job in copy.cluster.job:
        for index in list(job.tasks):
            job.tasks[index] = found[job.name, index] or job.tasks[index]
    return copy


def _caller() -> str:
    """Return the place in the script from which TensorFlow or tfk8s was called, "train.py:12"."""
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(_PACKAGE) and _TENSORFLOW not in frame.filename:
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return "the script"


def _other_cluster(cluster: ServerTasks, missing: str, addresses: Mapping[str, str]) -> InvalidInput:
    wanted = _jobs({job: max(tasks, default=0) + 1 for job, tasks in cluster.items()})
    found = _jobs({job: len(tasks) for job, tasks in ClusterView(addresses).cluster.items()})
    return InvalidInput(
        f"the script's server is for another cluster, with a task {missing} that this cluster does not have:\n"
        f"  the script's cluster: {wanted}\n"
        f"  this cluster:         {found}",
        help=f"write `jobs: {wanted}` in the job file, then run `tfk8s up` and this script again; or leave out the "
        f"lines that start servers ({_caller()}), since the tasks of this cluster have servers",
    )


def _jobs(counts: Mapping[str, int]) -> str:
    """Return the numbers of tasks as a job file has them."""
    return f"{{{', '.join(f'{job}: {count}' for job, count in sorted(counts.items()))}}}"


@functools.cache
def _log_once(text: str) -> None:
    log.warning("%s", text)


# ---- join ----------------------------------------------------------------------------------------------------------


class ClusterRemoved(Exception):
    """The signal that ends a script came; never leaves `join_task`."""


def join_task(task: str, view: ClusterView, losses: LostTasks, end_signal: int) -> None:
    """Block until the cluster is removed.

    Args:
        task: the task whose server the script joins.
        view: the tasks.
        losses: the lost tasks.
        end_signal: the signal that ends the script when its cluster is removed.

    Raises:
        TaskLost: the task was lost, and its server does not answer again within `call_timeout`.
    """
    with _end_of_cluster(end_signal):
        while True:
            reason = losses.wait_until_lost(task, TIMING.call_timeout)
            if not view.answers(task) or view.is_replaced(task):
                raise error_names.lost(task, reason)
            losses.back(task)


@contextlib.contextmanager
def _end_of_cluster(number: int) -> Iterator[None]:
    """End the body at a signal, after the script's own handler if it has one. Only the main thread gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(number)

    def end(number: int, frame: types.FrameType | None) -> None:
        if callable(before) and before is not signal.default_int_handler:
            before(number, frame)
        raise ClusterRemoved

    signal.signal(number, end)
    try:
        yield
    except ClusterRemoved:
        return
    finally:
        signal.signal(number, before)
