"""Watches the tasks of a cluster beside a loopback address that leads to its master.

Sessions on that address are TensorFlow's own, in a process that may know nothing of tfk8s, such as a notebook's. A call
of theirs would wait for ever for a master that is gone, or for a task that is stopped.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from tfk8s import polling
from tfk8s.backends.protocol import Backend
from tfk8s.core.spec import EVALUATOR
from tfk8s.core.task_names import parse_excluded
from tfk8s.errors import Tfk8sError
from tfk8s.sessions import active_calls
from tfk8s.sessions.forward import Forward
from tfk8s.sessions.task_monitor import SILENT, SILENT_FAR, TaskMonitor

MOST_TASKS = 256  # each is a connection, and a request a second, through the API server; of more, the master alone
_LOOK_SECONDS = 1.0

Heard = Callable[[str, str, bool], None]


class ForwardGuard:
    """In a `with`, tells of tasks that are lost and back, and has the forward stand in for a lost master.

    Args:
        backend, name: the cluster.
        forward: leads to its master.
        heard: is called, on another thread, with a task, why it was lost ("" where it answers again), and then whether
            it is another one than before.
        unreached: returns the tasks that the master does not reach, as it may be for a minute with a pod that was made
            anew. With it, the calls are ended that wait while a task is lost: which of them need it, nobody knows here.
        without: tasks that sessions leave out.
    """

    def __init__(
        self,
        backend: Backend,
        name: str,
        forward: Forward,
        heard: Heard,
        *,
        unreached: Callable[[], Sequence[str]] | None = None,
        without: Iterable[str] = (),
    ) -> None:
        status = backend.observe(name)
        self._forward, self._heard, self._unreached = forward, heard, unreached
        self._master = str(status.master)
        tasks = {str(one.task): one.task for one in status.tasks if one.task.job != EVALUATOR}
        absent = set(map(str, parse_excluded(without, tasks.values(), status.master)))
        watched = tasks.keys() - absent if len(tasks) <= MOST_TASKS else {self._master}
        dials = {label: functools.partial(backend.dial, name, tasks[label]) for label in sorted(watched)}
        self._stack = contextlib.ExitStack()
        observer = self._stack.enter_context(backend.observer(name))
        silent = SILENT_FAR if backend.name == "kubernetes" else SILENT
        self._losses = TaskMonitor(dials, silent, lambda task, seen: observer.why_lost(tasks[task], seen))
        self._lost: dict[str, tuple[str, float]] = {}  # why, and since when
        self._new: set[str] = set()  # those of them that answer again, and that the master may not reach yet
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="tfk8s-guard", daemon=True)

    def __enter__(self) -> ForwardGuard:
        self._losses.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._stopped)
        self._thread.join()
        os.close(self._stop)
        self._losses.__exit__(kind, error, trace)
        self._stack.close()

    def _watch(self) -> None:
        for task in self._ask_master() or ():
            self._take(task, f"{self._master} does not reach it", anew=False)
            self._new.add(task)
        while True:
            timeout = _LOOK_SECONDS if self._unreached and self._lost else None
            readable = polling.ready([self._stop, self._losses.news], timeout)
            if self._stop in readable:
                return
            if self._losses.news in readable:
                for line in os.read(self._losses.news, 1 << 16).splitlines():
                    change = json.loads(line)
                    self._take(change["task"], change["reason"], anew=change.get("anew", False))
            if self._unreached:
                self._look_for_new()
                self._end_calls(time.monotonic())

    def _take(self, task: str, why: str, *, anew: bool) -> None:
        self._new.discard(task)
        if why:
            self._lost[task] = why, time.monotonic()
        elif anew and self._unreached and task != self._master:
            before, since = self._lost[task]
            self._lost[task] = f"{before}; {self._master} does not reach the new one yet", since
            self._new.add(task)
            return
        else:
            self._lost.pop(task, None)
        if task == self._master:
            self._forward.lose() if why else self._forward.find()
        self._heard(task, why, anew)

    def _ask_master(self) -> Sequence[str] | None:
        """Return the tasks that the master does not reach; None where nobody is to ask, or the way to it is broken."""
        with contextlib.suppress(Tfk8sError):
            return self._unreached() if self._unreached else None
        return None

    def _look_for_new(self) -> None:
        if not self._new or (unreached := self._ask_master()) is None:
            return
        for task in self._new.difference(unreached):
            self._new.discard(task)
            self._lost.pop(task)
            self._heard(task, "", True)

    def _end_calls(self, now: float) -> None:
        """End the calls that wait for a task which has been lost for a while: TensorFlow may tell by itself."""
        for task, (why, since) in self._lost.items():
            if now - since >= active_calls.LEAST_PATIENCE:
                self._forward.end_calls(f"{task} was lost: {why}", active_calls.PATIENCE)
