"""Opens sessions on a cluster, after asking whether its tasks answer, and opens new ones after a loss.

TensorFlow itself waits without a word, and without end, for a task that does not answer; and a session that has lost a
task stays lost. Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, overload

from tfk8s import polling
from tfk8s.errors import InvalidInput, TaskError
from tfk8s.sessions.diagnosis import ClusterProbe
from tfk8s.sessions.lost_tasks import LostTasks, known
from tfk8s.sessions.preflight import ClusterView

if TYPE_CHECKING:
    import tensorflow as tf

    from tfk8s.sessions.call_guard import SessionWatch
    from tfk8s.sessions.tf_session import Session

RECOVERIES = 10
PATIENCE = 120.0
_LONGEST_PAUSE = 30.0
_STEADY = 60.0  # seconds after which a session counts as one that worked

Prepare = Callable[["tf.compat.v1.Session"], object]


@overload
def session(
    target: str | None = None, graph: tf.Graph | None = None, config: Any = None, *, without: Iterable[str] = ()
) -> tf.compat.v1.Session: ...
@overload
def session(
    target: str | None = None,
    graph: tf.Graph | None = None,
    config: Any = None,
    *,
    without: Iterable[str] = (),
    recover: Prepare,
    recoveries: int = RECOVERIES,
    patience: float = PATIENCE,
) -> RecoveringSessions: ...
def session(
    target: str | None = None,
    graph: tf.Graph | None = None,
    config: Any = None,
    *,
    without: Iterable[str] = (),
    recover: Prepare | None = None,
    recoveries: int = RECOVERIES,
    patience: float = PATIENCE,
) -> tf.compat.v1.Session | RecoveringSessions:
    """Open a session on the cluster's master.

    With `recover`, return sessions one after another, for a `for` around the `with`. When a task is lost, the body ends
    there; when all tasks answer again, it begins anew with the next session:

        for session in tfk8s.session(recover=restore):
            with session:
                while session.run(step) < 1000:
                    session.run(train)

    Args:
        target: the master, "grpc://host:port"; default: `TFK8S_TARGET`, which `tfk8s submit` and `run` set.
        graph: what the session runs; default: TensorFlow's default graph.
        config: a `tf.compat.v1.ConfigProto`.
        without: tasks to leave out ("worker/3"), by `ConfigProto.device_filters`: nothing may be pinned to them.
        recover: is called with each new session, to initialize its variables or restore them from a checkpoint.
        recoveries: how often at most.
        patience: how many seconds to wait each time until all tasks answer.

    Returns:
        A `tf.compat.v1.Session`, to be used in a `with`; its `run` raises the errors below, with TensorFlow's as the
        cause. With `recover`, such sessions one after another.

    Raises:
        InvalidInput: there is no target.
        TaskUnreachable: tasks do not answer; says which, and why.
        TaskLost, TaskRestarted: a task went away. With `recover`, the last one, when `recoveries` are used up.
        VersionSkew: the tasks have different versions of TensorFlow.
        DeviceMissing: the graph names a device that is not there.
        GraphTooLarge: the graph, a feed or a result is over 2 GB.
        OutOfMemory: a task has too little memory for a step.
        WaitTimeout: not all tasks answered again within `patience`.
    """
    view = ClusterView({}, without)
    if target is None:
        target = os.environ.get("TFK8S_TARGET")
        if target is None:
            raise InvalidInput(
                "no cluster to open a session on: TFK8S_TARGET is not set",
                help="run the script with `tfk8s submit NAME SCRIPT`, or pass target=",
            )
        view = ClusterView.of(os.environ, without)
    return open_session(lambda: (target, None), graph, config, view, known, recover, recoveries, patience)


def open_session(
    reach: Callable[[], tuple[str, SessionWatch | None]],
    graph: tf.Graph | None,
    config: Any,
    view: ClusterView,
    news: LostTasks,
    recover: Prepare | None = None,
    recoveries: int = RECOVERIES,
    patience: float = PATIENCE,
) -> tf.compat.v1.Session | RecoveringSessions:
    """Open a session as `session` does, on tasks that `view` can ask, and of which `news` tells.

    Once they answer, `reach` is called: it returns the target, and who ends calls that would wait for ever.
    """
    witness = ClusterProbe(view, news)
    if recover is None:
        witness.check()

    from tfk8s.sessions.tf_session import Session

    if recover is None:
        return Session(*reach(), graph, config, witness)

    def make() -> Session:
        return Session(*reach(), graph, config, witness, recovers=True)

    return RecoveringSessions(make, recover, witness, recoveries, patience)


class RecoveringSessions:
    """Sessions for a `for`, each after the loss of the one before."""

    def __init__(
        self, make: Callable[[], Session], prepare: Prepare, witness: ClusterProbe, recoveries: int, patience: float
    ) -> None:
        self._make, self._prepare, self._witness = make, prepare, witness
        self._recoveries, self._patience = recoveries, patience

    def __iter__(self) -> Iterator[tf.compat.v1.Session]:
        """Yield sessions until one comes to its end without a loss.

        Raises:
            TaskError: the last loss, when there were too many.
            WaitTimeout: not all tasks answer.
        """
        done, quick = 0, 0
        self._witness.wait(self._patience)
        while True:
            began = time.monotonic()
            failure = yield from self._one()
            if failure is None:
                return
            if done == self._recoveries:
                raise failure
            done += 1
            quick = quick + 1 if time.monotonic() - began < _STEADY else 0
            self._again(failure, done, min(2.0 ** (quick - 2), _LONGEST_PAUSE) if quick > 1 else 0.0)

    def _one(self) -> Generator[Any, None, TaskError | None]:
        """Yield a session that is prepared; return what it failed of, or None."""
        session = self._make()
        try:
            with session.as_default(), session.graph.as_default():
                self._prepare(session)
        except TaskError as failure:
            session.close()
            return failure
        yield session
        return session.failure

    def _again(self, failure: TaskError, number: int, pause: float) -> None:
        """Wait until a new session can be opened, and say so."""
        _say(f"tfk8s: {failure}")
        _say(f"tfk8s: a new session when all tasks answer: number {number} of at most {self._recoveries}")
        polling.rest(pause)
        began = time.monotonic()
        self._witness.wait(self._patience)
        _say(f"tfk8s: all tasks answer after {time.monotonic() - began + pause:.1f} s; here is the new session")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - for the script's user
