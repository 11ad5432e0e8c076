"""Servers that die, come back, are replaced, or only close a connection."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from fakes import tensorflow_server

from tfk8s import polling
from tfk8s.errors import BackendUnreachable, NoSuchCluster, TaskUnreachable, Tfk8sError
from tfk8s.sessions import task_monitor
from tfk8s.sessions.task_events import TaskChange, TaskEvent, lost
from tfk8s.sessions.task_monitor import Explain, TaskMonitor
from tfk8s.sessions.timing import TIMING
from tfk8s.task import wire

REFUSED = TaskUnreachable("worker/0 does not answer at there: Connection refused")
LOST = lost("worker/0", "does not answer at there: Connection refused")
BACK = TaskEvent("worker/0", TaskChange.BACK)
REPLACED = TaskEvent("worker/0", TaskChange.REPLACED)


class Task:
    """Stands for a task's server.

    Attributes:
        incarnation: the answer; another server has another one.
        trouble: why the server can't be dialled.
        streams: the servers' ends of connections.
        dials: how often the server was dialled.
    """

    def __init__(self) -> None:
        self.incarnation = 1
        self.trouble: Tfk8sError | None = None
        self.streams: list[socket.socket] = []
        self.dials = 0

    def dial(self) -> socket.socket:
        self.dials += 1
        if self.trouble:
            raise self.trouble
        client, server = socket.socketpair()
        server.settimeout(20)
        server.sendall(tensorflow_server.answer([tensorflow_server.device(incarnation=self.incarnation)]))
        self.streams.append(server)
        return client

    def wait_for_heartbeat(self) -> None:
        """Wait until the monitor keeps a connection."""
        until(lambda: bool(self.streams))
        received = b""
        while wire.HEARTBEAT not in received:
            received += self.streams[-1].recv(1000)

    def disconnect(self) -> None:
        self.streams.pop().close()


def until(condition: Callable[[], bool]) -> None:
    polling.wait_until(condition, "a condition of the test", 20)


def monitor(task: Task, explain: Explain = lambda _, symptom: symptom, missed: int = 1 << 30) -> TaskMonitor:
    """Monitor a task quickly; by default, no number of missed heartbeats is a loss."""
    timing = replace(TIMING, heartbeat_interval=0.005, missed_heartbeats=missed)
    return TaskMonitor({"worker/0": task.dial}, explain, timing)


@pytest.fixture
def task() -> Iterator[Task]:
    task = Task()
    yield task
    for stream in task.streams:
        stream.close()


def next_event(monitored: TaskMonitor) -> TaskEvent:
    line = b""
    while not line.endswith(b"\n"):
        assert select.select([monitored.events], [], [], 20)[0]
        line += os.read(monitored.events, 1)
    return TaskEvent.from_line(line)


def has_event(monitored: TaskMonitor) -> bool:
    return bool(select.select([monitored.events], [], [], 0)[0])


def test_dead_server_is_lost_at_once(task: Task) -> None:
    with monitor(task) as monitored:
        task.wait_for_heartbeat()
        task.trouble = REFUSED
        task.disconnect()
        assert next_event(monitored) == LOST


def test_lost_server_is_reported_once(task: Task) -> None:
    with monitor(task) as monitored:
        task.wait_for_heartbeat()
        task.trouble = REFUSED
        task.disconnect()
        next_event(monitored)
        before = task.dials
        until(lambda: task.dials > before + 3)
        assert not has_event(monitored)


def test_restarted_server_is_lost_and_replaced(task: Task) -> None:
    with monitor(task) as monitored:
        task.wait_for_heartbeat()
        task.incarnation = 2
        task.disconnect()
        assert next_event(monitored) == lost("worker/0", "its server was restarted")
        assert next_event(monitored) == REPLACED


def test_server_that_only_closes_a_connection_is_not_lost(task: Task) -> None:
    with monitor(task) as monitored:
        task.wait_for_heartbeat()
        task.disconnect()
        task.wait_for_heartbeat()
        task.trouble = REFUSED
        task.disconnect()
        assert next_event(monitored) == LOST


def test_replaced_server_can_be_lost_again(task: Task) -> None:
    with monitor(task) as monitored:
        for incarnation in (2, 3):
            task.wait_for_heartbeat()
            task.trouble = REFUSED
            task.disconnect()
            assert next_event(monitored) == LOST
            task.incarnation, task.trouble = incarnation, None
            assert next_event(monitored) == REPLACED


def test_backend_explains_the_loss(task: Task) -> None:
    with monitor(task, lambda task, symptom: f"{task}: evicted, not {symptom!r}") as monitored:
        task.wait_for_heartbeat()
        task.trouble = REFUSED
        task.disconnect()
        assert next_event(monitored).reason == ("worker/0: evicted, not 'does not answer at there: Connection refused'")


@pytest.mark.parametrize("unseen", ["", BackendUnreachable("the API server does not answer")])
def test_loss_that_the_backend_does_not_see_is_none(task: Task, unseen: str | Tfk8sError) -> None:
    symptoms: list[str] = []

    def explain(_: str, symptom: str) -> str:
        symptoms.append(symptom)
        if isinstance(unseen, Tfk8sError):
            raise unseen
        return unseen

    with monitor(task, explain, missed=3) as monitored:
        until(lambda: task_monitor.SILENCE in symptoms)
        with contextlib.suppress(OSError):  # on a busy machine, the monitor has ended the silent connection
            task.streams[0].sendall(wire.HEARTBEAT)
        task.trouble = REFUSED
        task.disconnect()
        until(lambda: LOST.reason in symptoms)
        assert not has_event(monitored)


def test_server_is_not_lost_while_no_task_can_be_reached(task: Task) -> None:
    with monitor(task) as monitored:
        task.wait_for_heartbeat()
        task.trouble = BackendUnreachable("the API server does not answer")
        task.disconnect()
        until(lambda: task.dials > 3)
        task.trouble = REFUSED
        assert next_event(monitored) == LOST


def test_server_of_a_removed_cluster_is_lost(task: Task) -> None:
    def explain(task: str, symptom: str) -> str:
        raise NoSuchCluster('there is no cluster "mnist"')

    with monitor(task, explain) as monitored:
        task.wait_for_heartbeat()
        task.trouble = NoSuchCluster('there is no cluster "mnist"')
        task.disconnect()
        assert next_event(monitored) == lost("worker/0", "the cluster was removed")


def test_server_that_never_answered_is_not_lost(task: Task) -> None:
    task.trouble = REFUSED
    with monitor(task) as monitored:
        until(lambda: task.dials > 3)
        assert not has_event(monitored)


def test_server_without_heartbeats_is_lost_until_it_answers(task: Task) -> None:
    with monitor(task, missed=20) as monitored:
        reason = "does not answer: its server is stopped, or its machine or the network is gone"
        assert next_event(monitored) == lost("worker/0", reason)
        assert task.streams[0].recv(1000).endswith(wire.HEARTBEAT + task_monitor.reminder(3))
        with contextlib.suppress(OSError):  # closed by now: then a new connection shows it
            task.streams[0].sendall(wire.HEARTBEAT)
        assert next_event(monitored) == BACK


def test_a_reminder_gets_the_answer_that_a_server_keeps_back(task: Task) -> None:
    with monitor(task, missed=1000) as monitored:
        until(lambda: bool(task.streams))
        for number in range(3):
            received = b""
            while not received.endswith(task_monitor.reminder(3 + 2 * number)):
                received += task.streams[0].recv(1000)
            task.streams[0].sendall(wire.HEARTBEAT)
        assert not has_event(monitored)


def test_connection_without_heartbeats_is_dialled_again(task: Task) -> None:
    with monitor(task, missed=2) as monitored:
        assert next_event(monitored).change is TaskChange.LOST
        until(lambda: len(task.streams) > 1)


def test_error_of_a_connection_has_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        task_monitor.connect("ps/0", address).close()
    with pytest.raises(TaskUnreachable, match=f"^ps/0 does not answer at {address}: Connection refused$"):
        task_monitor.connect("ps/0", address)


def test_a_monitor_survives_what_nobody_expects(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    def explain(_: str, symptom: str) -> str:
        raise KeyError(symptom)

    is_first = threading.Event()

    def dial() -> socket.socket:
        if not is_first.is_set():
            is_first.set()
            raise struct.error("unpack requires a buffer of 8 bytes")
        return task.dial()

    with TaskMonitor({"worker/0": dial}, explain, replace(TIMING, heartbeat_interval=0.005)) as monitored:
        task.wait_for_heartbeat()
        task.trouble = REFUSED
        task.disconnect()
        assert next_event(monitored) == LOST
        task.trouble = None
        assert next_event(monitored) == BACK
    assert "worker/0 can't be watched now" in caplog.text
    assert "the reason for the loss of worker/0 is unknown" in caplog.text


def test_the_end_of_a_monitor_is_no_secret(task: Task, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_monitor, "reminder", None)  # nothing can go wrong there; so the test makes that happen
        with monitor(task):
            until(lambda: "lost tasks are not reported any more" in caplog.text)
