"""Detects servers that go away, for scripts that would wait for them for ever.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from tfk8s.core.addresses import host_and_port
from tfk8s.errors import NoSuchCluster, TaskUnreachable, Tfk8sError
from tfk8s.log import log
from tfk8s.sessions.task_events import TaskChange, TaskEvent, lost
from tfk8s.sessions.timing import TIMING, Timing
from tfk8s.task import probe, wire

Dial = Callable[[], socket.socket]
Explain = Callable[[str, str], str]  # a task, and the symptom of its loss → the reason; "" if the task is not lost

_MAX_HEARTBEATS_PER_SECOND = 500  # to many tasks, fewer heartbeats are sent
_REMINDED = 2  # heartbeats without an answer, after which the server gets a reminder
_GET = b"\x82"  # ":method: GET" in HPACK (RFC 7541, appendix A)
SILENCE = "does not answer: its server is stopped, or its machine or the network is gone"


def connect(task: str, address: str, timeout: float = TIMING.probe_timeout) -> socket.socket:
    """Return a connection to a task's server.

    Raises:
        TaskUnreachable: the server can't be reached; the text has the reason.
    """
    try:
        return socket.create_connection(host_and_port(address), timeout)
    except TimeoutError as error:
        raise TaskUnreachable(f"{task} does not answer at {address}: no connection in time") from error
    except OSError as error:
        raise TaskUnreachable(f"{task} does not answer at {address}: {error.strerror or error}") from error


def reminder(stream: int) -> bytes:
    """Return what makes a server send the answer to a heartbeat, if the server keeps the answer back.

    The gRPC of TensorFlow before 2.19 sends an acknowledgement of settings only with its next frame. The reminder is
    a request with a method that gRPC refuses, on threads of its transport, too.

    Args:
        stream: odd, and larger than that of any request on the connection.
    """
    return wire.frame(wire.HEADERS, wire.END_STREAM | wire.END_HEADERS, stream, _GET)


class TaskMonitor:
    """Keeps a connection to each server of a cluster, in a `with` or from `start` on.

    A server that dies closes its connection. A stopped server or a dead machine does not, so the monitor also sends a
    heartbeat every second. Servers answer it within 0.1 ms (`wire.HEARTBEAT`), even while operations keep them busy.

    Args:
        dials: functions that connect to the tasks, by the tasks' short names.
        explain: returns the reason for a loss, which the monitor itself does not know, or "" if the task is not lost.
        timing: how long to wait for heartbeats.

    Attributes:
        events: a descriptor to read from, with a line for each `TaskEvent`.
        timing: as given.
    """

    def __init__(
        self,
        dials: Mapping[str, Dial],
        explain: Explain = lambda task, symptom: symptom,  # noqa: ARG005 - the default knows no more
        timing: Timing = TIMING,
    ) -> None:
        self._dials, self._explain, self.timing = dials, explain, timing
        self.events, self._events_end = os.pipe()
        self._stop, self._stop_end = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stop, selectors.EVENT_READ)
        self._incarnations: dict[str, int] = {}  # the last one of each task
        self._lost: set[str] = set()
        self._unconnected: deque[str] = deque()
        self._missed: dict[str, int] = {}  # heartbeats without an answer, by connected task
        self._streams = itertools.count(3, 2)  # for reminders; `probe.get_status` takes stream 1
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfk8s-monitor", daemon=True)

    def start(self) -> None:
        """Begin to monitor, for as long as this process lives."""
        self._thread.start()

    def __enter__(self) -> TaskMonitor:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        os.close(self._stop_end)
        self._thread.join()
        for _, stream in self._connections():
            stream.close()
        self._selector.close()
        for descriptor in (self.events, self._events_end, self._stop):
            os.close(descriptor)

    def _connections(self) -> Iterator[tuple[str, socket.socket]]:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                yield key.data, key.fileobj

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # of any kind: a thread that dies would say nothing
            log.warning("lost tasks are not reported any more: %s", repr(error))

    def _watch(self) -> None:
        for task in self._dials:
            if not self._is_over.is_set():
                self._connect(task)
        pause = max(self.timing.heartbeat_interval, len(self._dials) / _MAX_HEARTBEATS_PER_SECOND)
        due = time.monotonic() + pause
        while not self._is_over.is_set():
            for key, _ in self._selector.select(max(0.0, due - time.monotonic())):
                if isinstance(key.fileobj, socket.socket):
                    self._receive(key.data, key.fileobj)
            if time.monotonic() >= due:  # answers first, even if this process was suspended for long
                self._send_heartbeats()
                if self._unconnected:
                    self._connect(self._unconnected.popleft())
                due = time.monotonic() + pause

    def _receive(self, task: str, stream: socket.socket) -> None:
        """Read an answer, which is a sign of life, or the connection's end."""
        if not _is_alive(stream):
            # A server may also close a connection that is idle for long.
            self._disconnect(stream)
            self._connect(task)
        elif self._missed.pop(task, 0) > self.timing.missed_heartbeats and task in self._lost:
            self._lost.discard(task)
            self._send(TaskEvent(task, TaskChange.BACK))

    def _send_heartbeats(self) -> None:
        """Send a heartbeat to each server; report tasks that have missed too many."""
        limit = self.timing.missed_heartbeats
        for task, stream in self._connections():
            missed = self._missed[task] = self._missed.get(task, 0) + 1
            if missed == 1:
                with contextlib.suppress(OSError):  # the connection has ended, as the next read shows
                    stream.send(wire.HEARTBEAT)
            elif missed == _REMINDED:
                with contextlib.suppress(OSError):
                    stream.send(reminder(next(self._streams)))
            elif missed == limit + 1:
                self._report_loss(task, SILENCE)
            elif missed > 3 * limit:
                self._disconnect(stream)
                self._unconnected.append(task)

    def _disconnect(self, stream: socket.socket) -> None:
        self._missed.pop(self._selector.unregister(stream).data, None)
        stream.close()

    def _connect(self, task: str) -> None:
        """Connect to a task, and report a change."""
        try:
            stream, incarnation = self._dial(task)
        except (TaskUnreachable, NoSuchCluster) as error:
            self._unconnected.append(task)
            if task in self._incarnations and task not in self._lost:
                self._report_loss(task, str(error).removeprefix(f"{task} "))
            return
        except Tfk8sError:  # no task can be reached now, which says nothing about this task
            self._unconnected.append(task)
            return
        except Exception as error:
            self._unconnected.append(task)
            log.warning("%s can't be watched now: %s", task, repr(error))
            return
        is_same = self._incarnations.get(task, incarnation) == incarnation
        if not is_same and task not in self._lost:
            self._report_loss(task, "its server was restarted")
        self._incarnations[task] = incarnation
        self._selector.register(stream, selectors.EVENT_READ, task)
        if task in self._lost:
            self._lost.discard(task)
            self._send(TaskEvent(task, TaskChange.BACK if is_same else TaskChange.REPLACED))

    def _dial(self, task: str) -> tuple[socket.socket, int]:
        """Return a connection to a task's server, and its incarnation.

        Raises:
            TaskUnreachable: the server does not answer.
            Tfk8sError: no task can be reached.
        """
        stream = self._dials[task]()
        try:
            devices = probe.get_status(stream, self.timing.probe_timeout)
            stream.settimeout(self.timing.probe_timeout)
        except Exception as error:
            stream.close()
            if not isinstance(error, OSError | wire.ProbeError):
                raise
            reason = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", "") or error
            raise TaskUnreachable(f"{task} does not answer: {reason}") from error
        return stream, devices[0].incarnation if devices else 0

    def _report_loss(self, task: str, symptom: str) -> None:
        """Report that a task was lost, unless the backend knows better."""
        try:
            reason = self._explain(task, symptom)
        except NoSuchCluster:
            reason = "the cluster was removed"
        except Tfk8sError:  # nothing is known about the cluster now
            return
        except Exception as error:
            reason = symptom
            log.warning("the reason for the loss of %s is unknown: %s", task, repr(error))
        if reason:
            self._lost.add(task)
            self._send(lost(task, reason))

    def _send(self, event: TaskEvent) -> None:
        os.write(self._events_end, event.to_line())


def _is_alive(stream: socket.socket) -> bool:
    try:
        return bool(stream.recv(1 << 16))
    except OSError:
        return False
