"""A session that raises named errors. Imports TensorFlow.

The session is TensorFlow's own with a `try` around `run`, which costs no time per step (bench/session.py).
"""

from __future__ import annotations

import atexit
import math
import time
import weakref
from typing import Any

import tensorflow.compat.v1 as tf1
from tensorflow.python.client.session import _DeviceAttributes as DeviceAttributes

from tfk8s.errors import TaskError
from tfk8s.sessions.cluster import elastic_sessions, placement
from tfk8s.sessions.diagnosis import ClusterProbe
from tfk8s.sessions.guard_thread import GuardThread
from tfk8s.sessions.patch import close_with_timeout, run_checked
from tfk8s.sessions.timing import TIMING

_SIGNALS_INTERVAL = 1.0  # seconds: event loops take signals over between calls, but less often than that


class Session(tf1.Session):  # type: ignore[misc]  # TensorFlow has no types
    """A session whose `run` raises named errors; TensorFlow's own is the cause.

    Attributes:
        loss_timeout: how many seconds the runner gives calls after a loss, to raise that error.
        failure: the loss that `with` has caught, if a new session will follow; else None.
    """

    loss_timeout = TIMING.opening_timeout

    def __init__(
        self,
        target: str,
        guard: GuardThread | None,
        graph: Any,
        config: Any,
        cluster: ClusterProbe,
        *,
        recovers: bool = False,
    ) -> None:
        placement.patch_sessions()
        view = cluster.view
        opened = elastic_sessions.open_in(view, target, config, "" if view.task_at(target) else view.master)
        super().__init__(opened.target, graph=graph, config=elastic_sessions.patch_config(config, view.filters, opened))
        if opened.place_on:
            self._tfk8s_master = opened.place_on
        self._cluster, self._guard, self._recovers = cluster, guard, recovers
        self._is_broken = False
        atexit.register(_close_at_exit, weakref.ref(self))
        self._signals_taken = -math.inf
        self.failure: TaskError | None = None
        if recovers:
            self.loss_timeout = TIMING.recovering_timeout

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run operations and return tensors, as `tf.compat.v1.Session.run` does.

        Raises:
            TaskLost, TaskRestarted, TaskUnreachable: a task is gone, was replaced, or can't be reached.
            DeviceMissing: the graph names a device that does not exist.
            GraphTooLarge: the graph, the feed or the result is over 2 GB.
            OutOfMemory: a task has too little memory for a step.
            tf.errors.OpError: all other errors of TensorFlow.
        """
        if self._guard is not None and time.monotonic() - self._signals_taken > _SIGNALS_INTERVAL:
            self._guard.take_signals()
            self._signals_taken = time.monotonic()
        run = super().run
        try:
            return run_checked(self, feed_dict, lambda: run(fetches, feed_dict, options, run_metadata))
        except tf1.errors.OpError as error:
            meaning = self._cluster.explain(error)
            if meaning is None:
                raise
            self._is_broken = isinstance(meaning, TaskError)
            raise meaning from error

    def list_devices(self) -> list[Any]:
        """Return the devices of all tasks, as `tf.compat.v1.Session.list_devices` does.

        Each task is asked itself. TensorFlow's own call stops all threads of the process, so that nothing could end the
        call if a task does not answer.

        Raises:
            TaskUnreachable: a task does not answer.
        """
        return [
            DeviceAttributes(device.name, device.kind, device.memory, device.incarnation)
            for device in self._cluster.view.devices()
        ]

    def close(self) -> None:
        """Close the session; if its task is gone, for a moment only."""
        if self._is_broken:
            self.close_with_timeout()
        else:
            super().close()

    def close_with_timeout(self) -> None:
        """Close the session unless it is closed, and give up after a moment."""
        if not self._closed and not close_with_timeout(super().close):
            self._session = None  # else TensorFlow would wait for the session's deletion

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        super().__exit__(kind, error, trace)
        if self._recovers and isinstance(error, TaskError):
            self.failure = error
        return self.failure is not None


def _close_at_exit(session: weakref.ref[Session]) -> None:
    """Close a session while threads can still be started; later, a lost session would wait for ever."""
    if (live := session()) is not None:
        live.close_with_timeout()
