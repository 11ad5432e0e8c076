"""Silent workers of a ClusterCoordinator: connections are real, TensorFlow's objects are fake."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from tfk8s.sessions.eager import remote_context, silent_workers
from tfk8s.sessions.eager.silent_workers import SilentWorkers
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.sessions.task_events import TaskChange, TaskEvent, lost
from tfk8s.sessions.timing import TIMING
from tfk8s.task.peers import silent_peers

LOST = lost("worker/1", "does not answer")
BACK, REPLACED = (TaskEvent("worker/1", change) for change in (TaskChange.BACK, TaskChange.REPLACED))


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection of this process to a server, and the server's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        stream, _ = server.accept()
        with stream:
            stream.settimeout(0.05)
            yield client, stream


class Scene:
    """Workers at the time 100, one of which is at the address of a connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, address: str, *, answers: bool = False, workers: int = 2):
        self.messages: list[str] = []
        self.ends: list[TaskEvent] = []
        self.is_done = False
        cluster = SimpleNamespace(done=lambda: self.is_done)
        self.workers = [SimpleNamespace(_is_dead_with_error=None, _cluster=cluster) for _ in range(workers)]
        monkeypatch.setattr(remote_context, "connected_tasks", lambda: {"worker/1": address, "ps/0": address})
        monkeypatch.setattr(silent_workers, "coordinated_workers", lambda: self.workers)
        self.losses = LostTasks()
        self._made = SilentWorkers(self.losses, lambda _: answers, self.messages.append, self.ends.append, TIMING)
        self.check = self._made.check

    def on_event(self, event: TaskEvent) -> None:
        self._made.on_event(event, 100.0)
        if event.change is TaskChange.LOST:
            self.losses.lost(event.task, event.reason)


def has_ended(stream: socket.socket) -> bool:
    try:
        return stream.recv(1) == b""
    except TimeoutError:
        return False


Pair = tuple[socket.socket, socket.socket]


def address(pair: Pair) -> str:
    host, port = pair[0].getpeername()
    return f"{host}:{port}"


def test_the_connections_to_a_silent_worker_end(monkeypatch: pytest.MonkeyPatch, connection: Pair) -> None:
    scene = Scene(monkeypatch, address(connection))
    scene.on_event(LOST)
    scene.check(109.9)
    assert not has_ended(connection[1])
    scene.check(110.0)
    assert has_ended(connection[1])
    assert scene.messages == ["worker/1 is silent for 10 s: the other workers run its functions"]


@pytest.mark.parametrize("event", [BACK, REPLACED])
def test_a_worker_that_is_back_keeps_its_connections(
    monkeypatch: pytest.MonkeyPatch, connection: Pair, event: TaskEvent
) -> None:
    scene = Scene(monkeypatch, address(connection))
    scene.on_event(LOST)
    scene.on_event(event)
    scene.check(200.0)
    assert (has_ended(connection[1]), scene.messages) == (False, [])


@pytest.mark.parametrize(
    ("event", "settings"),
    [(LOST, {"answers": True}), (LOST, {"workers": 0}), (lost("ps/0", "does not answer"), {})],
    ids=["answers", "without a coordinator", "of a ps"],
)
def test_other_connections_stay(
    monkeypatch: pytest.MonkeyPatch, connection: Pair, event: TaskEvent, settings: dict[str, int]
) -> None:
    scene = Scene(monkeypatch, address(connection), **settings)  # type: ignore[arg-type]
    scene.on_event(event)
    scene.check(200.0)
    assert not has_ended(connection[1])


def test_connections_to_other_ports_stay(connection: Pair) -> None:
    host, port = connection[0].getpeername()
    assert silent_peers.end_connections({(host, port + 1), ("127.0.0.2", port)}) == 0
    assert silent_peers.end_connections({(host, port)}) == 1


def test_a_coordinator_without_workers_ends_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, "127.0.0.1:1")
    scene.on_event(LOST)
    scene.workers[0]._is_dead_with_error = scene.workers[1]._is_dead_with_error = OSError()
    scene.check(120.0)
    scene.check(419.9)
    assert scene.messages[1:] == ["no worker is left to run functions; the script ends in 5m unless one is back"]
    assert not scene.ends
    scene.check(420.0)
    assert scene.ends == [LOST]


@pytest.mark.parametrize("change", ["a worker is back", "all functions are done"])
def test_a_coordinator_with_hope_goes_on(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    scene = Scene(monkeypatch, "127.0.0.1:1")
    scene.on_event(LOST)
    for worker in scene.workers:
        worker._is_dead_with_error = OSError()
    scene.check(105.0)
    scene.is_done = change == "all functions are done"
    if not scene.is_done:
        scene.workers[0]._is_dead_with_error = False
    scene.check(106.0)
    scene.check(1000.0)
    assert not scene.ends


# ---- TensorFlow's thread that connects again -----------------------------------------------------------------------


def waits(losses: LostTasks, *tasks: str, answers: bool = False) -> threading.Thread:
    arguments = losses, lambda _: answers, tasks
    thread = threading.Thread(target=silent_workers.wait_for_workers, args=arguments, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("change", [LostTasks.back, LostTasks.replaced])
def test_connecting_waits_for_a_lost_worker(change: Callable[[LostTasks, str], None]) -> None:
    losses = LostTasks()
    losses.lost("worker/1", "does not answer")
    thread = waits(losses, "worker/0", "worker/1", "ps/0")
    thread.join(0.02)
    assert thread.is_alive()
    change(losses, "worker/1")
    thread.join(5)
    assert not thread.is_alive()


def test_a_worker_that_answers_is_not_waited_for() -> None:
    losses = LostTasks()
    losses.lost("worker/1", "does not answer")
    thread = waits(losses, "worker/1", answers=True)
    thread.join(5)
    assert (thread.is_alive(), losses.absent(["worker/1"])) == (False, set())


def test_connecting_waits_for_workers_only() -> None:
    losses = LostTasks()
    losses.lost("ps/0", "does not answer")
    thread = waits(losses, "worker/0", "ps/0")
    thread.join(5)
    assert not thread.is_alive()
