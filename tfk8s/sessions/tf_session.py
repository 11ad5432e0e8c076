"""A session whose failures have names. Imports TensorFlow.

It is TensorFlow's own with a `try` around `run`, which costs no time a step (bench/session.py).
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
from tfk8s.sessions import active_calls
from tfk8s.sessions.call_guard import SessionWatch
from tfk8s.sessions.diagnosis import ClusterProbe
from tfk8s.sessions.patch import checked, close_aside, patched_constructor

_LISTEN_SECONDS = 1.0  # event loops take signals away between calls, but not within a second


class Session(tf1.Session):  # type: ignore[misc]  # TensorFlow has no types
    """A session whose `run` raises named errors; TensorFlow's own is the cause.

    Attributes:
        patience: how many seconds the runner gives its calls after a loss, to raise that error.
        without: the tasks that it leaves out.
        failure: the loss that `with` has caught, where a new session is to follow; else None.
    """

    patience = active_calls.OPENING_PATIENCE

    def __init__(
        self,
        target: str,
        watch: SessionWatch | None,
        graph: Any,
        config: Any,
        witness: ClusterProbe,
        *,
        recovers: bool = False,
    ) -> None:
        super().__init__(target, graph=graph, config=patched_constructor(config, witness.view.filters))
        self._witness, self._watch, self._recovers = witness, watch, recovers
        self.without = witness.view.without
        self._broken = False
        atexit.register(_close_at_exit, weakref.ref(self))
        self._listened = -math.inf
        self.failure: TaskError | None = None
        if recovers:
            self.patience = active_calls.RECOVERING_PATIENCE

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Run what is asked for, as `tf.compat.v1.Session.run` does.

        Raises:
            TaskLost, TaskRestarted, TaskUnreachable: a task is gone, or another one, or can't be reached.
            DeviceMissing: the graph names a device that is not there.
            GraphTooLarge: the graph, the feed or the result is over 2 GB.
            OutOfMemory: a task has too little memory for it.
            tf.errors.OpError: whatever else TensorFlow reports.
        """
        if self._watch is not None and time.monotonic() - self._listened > _LISTEN_SECONDS:
            self._watch.listen()
            self._listened = time.monotonic()
        run = super().run
        try:
            return checked(self, feed_dict, lambda: run(fetches, feed_dict, options, run_metadata))
        except tf1.errors.OpError as error:
            meaning = self._witness.explain(error)
            if meaning is None:
                raise
            self._broken = isinstance(meaning, TaskError)
            raise meaning from error

    def list_devices(self) -> list[Any]:
        """Return the devices of all tasks, as `tf.compat.v1.Session.list_devices` does.

        They are asked themselves: TensorFlow's own call keeps all threads of the process from running, so that nothing
        could end it where a task does not answer.

        Raises:
            TaskUnreachable: a task does not answer.
        """
        found = self._witness.view.devices()
        return [DeviceAttributes(one.name, one.kind, one.memory, one.incarnation) for one in found]

    def close(self) -> None:
        """Close the session; one whose task is gone is left to itself after a moment."""
        if self._broken:
            self.close_aside()
        else:
            super().close()

    def close_aside(self) -> None:
        """Close the session, or leave it to itself after a moment; once it has been closed, do nothing."""
        if not self._closed and not close_aside(super().close):
            self._session = None  # TensorFlow would wait for it as it deletes it

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        super().__exit__(kind, error, trace)
        if self._recovers and isinstance(error, TaskError):
            self.failure = error
        return self.failure is not None


def _close_at_exit(session: weakref.ref[Session]) -> None:
    """Close a session while threads can still be started: later, one that is lost would wait for ever."""
    if (found := session()) is not None:
        found.close_aside()
