"""How this process reaches a cluster's master: an address, and sessions on it."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, overload

from tfk8s import proxies, relay
from tfk8s.backends import Backend
from tfk8s.forward import Forward, Tell
from tfk8s.spec import EVALUATOR
from tfk8s.tasks import left_out

if TYPE_CHECKING:
    import tensorflow as tf

    from tfk8s.sessions import Prepare, Sessions

RECOVERIES, PATIENCE = 10, 120.0  # as tfk8s.session has them, whose module is not imported for that

_LOG = logging.getLogger("tfk8s")  # on standard error, where nobody has other wishes


class Reach:
    """What a cluster's handle opens in this process; `close` ends it.

    Attributes:
        name: the cluster's.
        backend: where it lives.
    """

    def __init__(self, backend: Backend, name: str) -> None:
        self.backend, self.name = backend, name
        self._relay: relay.Relay | None = None

    def forward(self, port: int = 0, tell: Tell | None = None) -> Forward:
        """Open a loopback address that leads to the master, for other processes; the caller closes it.

        Args:
            port: where; 0 is any free port.
            tell: hears of connections that break, as `Forward` takes it.
        """
        master = self.backend.observe(self.name).master
        return Forward(lambda: self.backend.dial(self.name, master), port, tell)

    @property
    def target(self) -> str:
        """Where sessions of this process connect to, until `close`: "grpc://127.0.0.1:PORT", or a given address."""
        if self._relay is None:
            where = self.backend.where(self.name)
            if where is None:
                return self.backend.observe(self.name).target
            command = relay.command(where, self.name)
            self._relay = relay.Relay(command, functools.partial(_LOG.warning, "tfk8s: %s"))
        return self._relay.target

    @overload
    def session(
        self, graph: tf.Graph | None = None, config: Any = None, *, without: Iterable[str] = ()
    ) -> tf.compat.v1.Session: ...
    @overload
    def session(
        self,
        graph: tf.Graph | None = None,
        config: Any = None,
        *,
        without: Iterable[str] = (),
        recover: Prepare,
        recoveries: int = RECOVERIES,
        patience: float = PATIENCE,
    ) -> Sessions: ...
    def session(
        self,
        graph: tf.Graph | None = None,
        config: Any = None,
        *,
        without: Iterable[str] = (),
        recover: Prepare | None = None,
        recoveries: int = RECOVERIES,
        patience: float = PATIENCE,
    ) -> tf.compat.v1.Session | Sessions:
        """Open a session on the master, in this process, or sessions one after another, as `tfk8s.session` does.

        Args:
            graph: what the session runs; default: TensorFlow's default graph.
            config: a `tf.compat.v1.ConfigProto`.
            without: tasks to leave out ("worker/3"): nothing may be pinned to them.
            recover: is called with each new session, to initialize its variables or restore them from a checkpoint.
            recoveries: how often at most.
            patience: how many seconds to wait each time until all tasks answer.

        Raises:
            InvalidInput: a task to leave out is not there, or is the master.
            TaskUnreachable: a task does not answer.
            VersionSkew: the tasks have different versions of TensorFlow.
        """
        from tfk8s.preflight import View
        from tfk8s.sessions import open_session

        status = self.backend.observe(self.name)
        tasks = {str(task.task): task for task in status.tasks if task.task.job != EVALUATOR}
        first = str(status.master)
        addresses = {first: tasks[first].address, **{name: task.address for name, task in tasks.items()}}
        absent = map(str, left_out(without, [task.task for task in tasks.values()], status.master))
        view = View(addresses, absent, dial=lambda name: self.backend.dial(self.name, tasks[name].task))
        host = status.target.removeprefix("grpc://").rpartition(":")[0].strip("[]")
        os.environ.update(proxies.without_proxy(os.environ, (*proxies.LOOPBACK, host)))
        return open_session(lambda: self.target, graph, config, view, recover, recoveries, patience)

    def close(self) -> None:
        """Close the loopback address behind `target`; the cluster goes on."""
        if self._relay is not None:
            self._relay.close()
            self._relay = None
