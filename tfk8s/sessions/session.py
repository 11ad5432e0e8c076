"""Opens sessions on a cluster whose tasks all answer, and new sessions after the loss of a task.

TensorFlow itself waits silently and for ever for a task that does not answer, and a session that has lost a task stays
lost. Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, overload

from tfk8s import polling
from tfk8s.errors import InvalidInput, TaskError, submit_advice
from tfk8s.log import log
from tfk8s.sessions import patch
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.diagnosis import ClusterProbe
from tfk8s.sessions.lost_tasks import LostTasks, of_script
from tfk8s.task.programs import strategies

if TYPE_CHECKING:
    import tensorflow as tf

    from tfk8s.sessions.guard_thread import GuardThread
    from tfk8s.sessions.tf_session import Session

MAX_RECOVERIES = 10
TIMEOUT = 120.0
_MAX_PAUSE = 30.0
_STABLE_AFTER = 60.0  # seconds: the next session after such a long one begins without a pause

Prepare = Callable[["tf.compat.v1.Session"], object]

_open_on_cluster: Callable[..., Any] | None = None


def use_cluster(open_session: Callable[..., Any]) -> None:
    """Have `session` open sessions without a target by another function.

    A process that no `tfk8s submit` has started needs that, such as a notebook's kernel.

    Args:
        open_session: takes the arguments of `session` but `target`.
    """
    global _open_on_cluster
    _open_on_cluster = open_session


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
    recoveries: int = MAX_RECOVERIES,
    timeout: float = TIMEOUT,
) -> RecoveringSessions: ...
def session(
    target: str | None = None,
    graph: tf.Graph | None = None,
    config: Any = None,
    *,
    without: Iterable[str] = (),
    recover: Prepare | None = None,
    recoveries: int = MAX_RECOVERIES,
    timeout: float = TIMEOUT,
) -> tf.compat.v1.Session | RecoveringSessions:
    """Open a session on the cluster's master.

    With `recover`, return sessions one after another, for a `for` around the `with`. The loss of a task ends the body;
    when all tasks answer again, the body begins again with the next session:

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
        recoveries: the maximum number of new sessions.
        timeout: how many seconds to wait each time until all tasks answer.

    Returns:
        A `tf.compat.v1.Session`, to be used in a `with`; its `run` raises the errors below, with TensorFlow's as the
        cause. With `recover`, such sessions one after another.

    Raises:
        InvalidInput: the target is missing, or no TensorFlow server answers there.
        TaskUnreachable: tasks do not answer; the text has a table of all tasks.
        TaskLost, TaskRestarted: a task went away. With `recover`, the last loss after `recoveries` sessions.
        VersionSkew: the tasks have different versions of TensorFlow.
        DeviceMissing: the graph names a device that does not exist.
        GraphTooLarge: the graph, a feed or a result is over 2 GB.
        OutOfMemory: a task has too little memory for a step.
        WaitTimeout: not all tasks answered again within `timeout`.
    """
    if target is None and _open_on_cluster is not None:
        return _open_on_cluster(graph, config, without=without, recover=recover, recoveries=recoveries, timeout=timeout)
    if target is not None:
        if "TFK8S_CLUSTER" not in os.environ:  # neither a script nor a program
            strategies.refuse_without_cluster()
        patch.check_target(target, ClusterView.of(os.environ).addresses)
        view = ClusterView({}, without)
    else:
        target = os.environ.get("TFK8S_TARGET")
        if target is None:
            raise InvalidInput(
                "no cluster to open a session on: TFK8S_TARGET is not set",
                help=f"{submit_advice()}; or pass target=",
            )
        view = ClusterView.of(os.environ, without)
    return open_session(lambda: (target, None), graph, config, view, of_script, recover, recoveries, timeout)


def open_session(
    connect: Callable[[], tuple[str, GuardThread | None]],
    graph: tf.Graph | None,
    config: Any,
    view: ClusterView,
    losses: LostTasks,
    recover: Prepare | None = None,
    recoveries: int = MAX_RECOVERIES,
    timeout: float = TIMEOUT,
) -> tf.compat.v1.Session | RecoveringSessions:
    """Open a session as `session` does.

    `connect` is called once the tasks of `view` answer. It returns the target, and the thread that guards calls.
    """
    cluster = ClusterProbe(view, losses)
    if recover is None:
        cluster.check()

    from tfk8s.sessions.tf_session import Session

    if recover is None:
        return Session(*connect(), graph, config, cluster)

    def make() -> Session:
        return Session(*connect(), graph, config, cluster, recovers=True)

    return RecoveringSessions(make, recover, cluster, recoveries, timeout)


class RecoveringSessions:
    """Sessions for a `for`, each after the loss of the last one.

    Args:
        make: opens a session.
        prepare: is called with each new session.
        cluster: the tasks.
        recoveries: the maximum number of new sessions.
        timeout: how many seconds to wait each time until all tasks answer.
    """

    def __init__(
        self, make: Callable[[], Session], prepare: Prepare, cluster: ClusterProbe, recoveries: int, timeout: float
    ) -> None:
        self._make, self._prepare, self._cluster = make, prepare, cluster
        self._recoveries, self._timeout = recoveries, timeout

    def __iter__(self) -> Iterator[tf.compat.v1.Session]:
        """Yield sessions until one ends without a loss.

        Raises:
            TaskError: the last loss, if there were too many.
            WaitTimeout: not all tasks answer.
        """
        count, short_lived = 0, 0
        self._cluster.wait(self._timeout)
        while True:
            began = time.monotonic()
            failure = yield from self._run_session()
            if failure is None:
                return
            if count == self._recoveries:
                raise failure
            count += 1
            short_lived = short_lived + 1 if time.monotonic() - began < _STABLE_AFTER else 0
            self._recover(failure, count, min(2.0 ** (short_lived - 2), _MAX_PAUSE) if short_lived > 1 else 0.0)

    def _run_session(self) -> Generator[Any, None, TaskError | None]:
        """Yield a prepared session; return the loss that ended it, or None."""
        session = self._make()
        try:
            with session.as_default(), session.graph.as_default():
                self._prepare(session)
        except TaskError as failure:
            session.close()
            return failure
        yield session
        return session.failure

    def _recover(self, failure: TaskError, number: int, pause: float) -> None:
        """Wait until a new session can be opened."""
        log.warning("%s", failure)
        log.warning("a new session opens when all tasks answer (recovery %d of %d)", number, self._recoveries)
        polling.rest(pause)
        began = time.monotonic()
        self._cluster.wait(self._timeout)
        waited = time.monotonic() - began + pause
        log.warning("all tasks answer after %.1f s; here is the new session", waited)
