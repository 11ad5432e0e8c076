"""Lets a ClusterCoordinator go on without a worker that is silent, as it goes on without one that is dead.

TensorFlow schedules a worker's functions again when the connection to the worker ends. The connection to a worker that
is frozen, or whose machine or network is gone, never ends by itself. So this process ends it, some time after the
worker has missed its heartbeats; functions may take as long as they need. TensorFlow then connects to all tasks again,
which would hold up all other operations while a worker is silent. So that call waits for the worker in Python.

A coordinator none of whose workers is left waits for ever, so the script is ended. Standard library and TensorFlow
only: this file also runs in pods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Any

from tfk8s.core.addresses import host_and_port
from tfk8s.core.lifetime import format_duration
from tfk8s.sessions.eager import remote_context
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.sessions.task_events import TaskChange, TaskEvent, lost
from tfk8s.sessions.timing import Timing
from tfk8s.task.peers.silent_peers import Peers, end_connections, peers

WORKER = "worker/"
_THREAD = "WorkerClosureProcessingLoop-"  # of each worker, in cluster_coordinator.py
_CHECK_INTERVAL = 0.5


def coordinated_workers() -> list[Any]:
    """Return TensorFlow's `Worker` objects of the coordinators of this process; each has a thread."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(_THREAD)]
    return [target.__self__ for thread in threads if (target := getattr(thread, "_target", None)) is not None]


class SilentWorkers:
    """Watches the workers of a coordinator, for the thread of a guard.

    Args:
        losses: the lost tasks.
        answers: returns whether a task answers now.
        notify: takes messages for the user.
        end: ends the script because of the loss of a task.
        timing: how long a worker may be silent.
    """

    def __init__(
        self,
        losses: LostTasks,
        answers: Callable[[str], bool],
        notify: Callable[[str], object],
        end: Callable[[TaskEvent], None],
        timing: Timing,
    ) -> None:
        self._losses, self._answers, self._notify, self._end, self._timing = losses, answers, notify, end, timing
        self._silent: dict[str, tuple[float, Peers]] = {}  # the ends of patience, and the addresses
        self._abandoned: dict[str, Peers] = {}
        self._last = lost("", "")
        self._hopeless_since: float | None = None

    def on_event(self, event: TaskEvent, now: float) -> None:
        """Take note of a change of a task."""
        if not event.task.startswith(WORKER):
            return
        if event.change is TaskChange.LOST:
            self._last = event
            if address := remote_context.connected_tasks().get(event.task):
                self._silent[event.task] = now + self._timing.silent_timeout, peers(*host_and_port(address))
        else:
            self._silent.pop(event.task, None)

    def check(self, now: float) -> None:
        """End the connections to workers that are silent for long; end the script if no worker is left."""
        for task, (due, addresses) in list(self._silent.items()):
            if now < due or not coordinated_workers():
                continue
            del self._silent[task]
            if not self._answers(task):
                self._abandoned[task] = addresses
                seconds = f"{self._timing.silent_timeout:g} s"
                self._notify(f"{task} is silent for {seconds}: the other workers run its functions")
        # gRPC connects again at once. A connection to a frozen server would take its requests for 20 seconds.
        absent = self._losses.absent(self._abandoned)
        self._abandoned = {task: self._abandoned[task] for task in absent}
        for addresses in self._abandoned.values():
            end_connections(addresses)
        self._check_hope(now)

    def _check_hope(self, now: float) -> None:
        workers = coordinated_workers()
        if not workers or not all(map(_is_out_of_work, workers)):
            self._hopeless_since = None
        elif self._hopeless_since is None:
            self._hopeless_since = now
            limit = format_duration(int(self._timing.hopeless_timeout))
            self._notify(f"no worker is left to run functions; the script ends in {limit} unless one is back")
        elif now - self._hopeless_since >= self._timing.hopeless_timeout:
            self._end(self._last)


def _is_out_of_work(worker: Any) -> bool:
    """Return whether a worker of a coordinator has failed, while functions wait (cluster_coordinator.py)."""
    return bool(worker._is_dead_with_error) and not worker._cluster.done()


def wait_for_workers(losses: LostTasks, answers: Callable[[str], bool], tasks: Collection[str]) -> None:
    """Block while one of the workers is lost; called by the thread of TensorFlow that connects to workers again.

    Args:
        losses: the lost tasks.
        answers: returns whether a task answers now.
        tasks: the tasks to connect to.

    Raises:
        UnavailableError: the coordinator ends. The thread takes the error for a worker's, and ends too.
    """
    workers = [task for task in tasks if task.startswith(WORKER)]
    handler = getattr(getattr(threading.current_thread(), "_target", None), "__self__", None)
    while absent := losses.absent(workers, _CHECK_INTERVAL):
        for task in filter(answers, absent):
            losses.replaced(task)
        if not getattr(handler, "_should_preemption_thread_run", True):
            from tensorflow.errors import UnavailableError

            raise UnavailableError(None, None, "/job:worker: a worker is lost, and the coordinator ends")
