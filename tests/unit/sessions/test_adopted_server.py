"""Servers of scripts that adopt tasks, with stand-ins for TensorFlow's classes; real ones are in tests/local."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tfk8s.errors import InvalidInput, TaskLost
from tfk8s.sessions import adopted_server
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.lost_tasks import LostTasks

ADDRESSES = {"worker/0": "localhost:2222", "worker/1": "localhost:2223", "ps/0": "m-ps-0.m.ns.svc:2222"}
CLUSTER = {"ps": {0: "localhost:7000"}, "worker": {0: "127.0.0.1:7001", 1: "[::1]:7002"}}


SERVERS = [
    (CLUSTER, "ps", 0, "ps/0"),
    (CLUSTER, "worker", 1, "worker/1"),
    ({"ps": {0: "m-ps-0.m.ns.svc:2222"}, "worker": {1: "localhost:2223"}}, "worker", 1, "worker/1"),
    ({"worker": {0: "localhost:1"}}, "worker", 0, "worker/0"),
    ({"localhost": {0: "localhost:0"}}, "localhost", 0, ""),
    ({"worker": {0: "localhost:1"}}, "worker", 1, ""),
    ({"worker": {0: "localhost:1"}}, "chief", 0, ""),
]


def test_jobs_and_indices_decide(caplog: pytest.LogCaptureFixture) -> None:
    for cluster, job, index, task in SERVERS:
        assert adopted_server.adopted_task(cluster, job, index, ADDRESSES) == task, cluster
        assert caplog.messages == [], cluster


def test_addresses_of_other_machines_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = {"ps": {0: "ps0.example.com:2222"}, "worker": {0: "worker0.example.com:2222"}}
    with caplog.at_level(logging.WARNING, "tfk8s"):
        for _ in range(2):
            assert adopted_server.adopted_task(cluster, "worker", 0, ADDRESSES) == "worker/0"
    assert caplog.messages == [
        "the script's addresses (ps0.example.com:2222) are not used: here, worker/0 is localhost:2222"
    ]


@pytest.mark.parametrize(
    ("cluster", "missing", "jobs"),
    [
        ({"ps": {0: "a:1"}, "worker": {2: "c:1", 0: "b:1"}}, "worker/2", "{ps: 1, worker: 3}"),
        ({"worker": {0: "b:1"}, "local": {0: "a:1", 1: "a:2"}}, "local/0", "{local: 2, worker: 1}"),
    ],
)
def test_another_cluster_is_refused(cluster: adopted_server.ServerTasks, missing: str, jobs: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        adopted_server.adopted_task(cluster, "worker", 0, ADDRESSES)
    assert str(caught.value) == (
        f"the script's server is for another cluster, with a task {missing} that this cluster does not have:\n"
        f"  the script's cluster: {jobs}\n"
        "  this cluster:         {ps: 1, worker: 2}"
    )
    line = sys._getframe().f_lineno - 6
    assert caught.value.help == (
        f"write `jobs: {jobs}` in the job file, then run `tfk8s up` and this script again; or leave out the lines that "
        f"start servers (test_adopted_server.py:{line}), since the tasks of this cluster have servers"
    )


# ---- TensorFlow's class --------------------------------------------------------------------------------------------


class ServerDef(SimpleNamespace):
    """As TensorFlow's, for `patch_servers`."""

    def __init__(self, cluster: Mapping[str, Mapping[int, str]], job: str, index: int) -> None:
        jobs = [SimpleNamespace(name=name, tasks=tasks) for name, tasks in cluster.items()]
        super().__init__(cluster=SimpleNamespace(job=jobs, CopyFrom=self._copy), job_name=job, task_index=index)

    def _copy(self, cluster: object) -> None:
        self.cluster = cluster


@pytest.fixture
def server_class(monkeypatch: pytest.MonkeyPatch) -> type:
    """A patched class with the methods of TensorFlow's `Server`."""

    class Server:
        def __init__(self, definition: object, start: bool = True) -> None:
            self.calls = ["new"]
            if start:
                self.start()

        def start(self) -> None:
            self.calls.append("start")

        def join(self) -> None:
            self.calls.append("join")

        @property
        def target(self) -> str:
            return "grpc://localhost:41000"

    names = ["tensorflow", "tensorflow.python", "tensorflow.python.training"]
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules[names[-1]].server_lib = SimpleNamespace(
        Server=Server,
        _make_server_def=lambda cluster, job, index, *_: ServerDef(cluster, job, index),
        ClusterSpec=lambda cluster: SimpleNamespace(as_cluster_def=lambda: cluster),
    )
    losses = LostTasks()
    losses.lost("ps/0", "evicted")
    view = ClusterView(ADDRESSES)
    monkeypatch.setattr(view, "answers", lambda _: False)
    monkeypatch.setattr(losses, "wait_until_lost", lambda task, _: losses.reasons()[task])
    adopted_server.patch_servers(view, losses, signal.SIGTERM)
    return Server


def test_server_of_a_task_starts_nothing(server_class: Any) -> None:
    server = server_class(CLUSTER, "ps", 0)
    assert server.target == "grpc://m-ps-0.m.ns.svc:2222"
    assert server._server_def.cluster == {
        "worker": ["localhost:2222", "localhost:2223"],
        "ps": ["m-ps-0.m.ns.svc:2222"],
    }
    server.start()
    with pytest.raises(TaskLost, match=r"(?m)^ps/0 was lost: evicted$"):
        server.join()
    assert not hasattr(server, "calls")


@pytest.mark.parametrize("start", [True, False])
def test_server_of_the_scripts_own_starts(server_class: Any, start: bool) -> None:
    server = server_class({"localhost": {0: "localhost:0"}}, "localhost", 0, start=start)
    assert server.target == "grpc://localhost:41000"
    if not start:
        server.start()
    server.join()
    assert server.calls == ["new", "start", "join"]


# ---- join ----------------------------------------------------------------------------------------------------------


class Losses:
    """Calls a function when `join_task` waits."""

    def __init__(self, *events: Any) -> None:
        self._events, self.back_again = list(events), []

    def wait_until_lost(self, task: str, seconds: float) -> str:
        assert (task, seconds) == ("ps/0", 3.0)
        self._events.pop(0)()
        return "evicted"

    def back(self, task: str) -> None:
        self.back_again.append(task)


def view(answers: bool = True, replaced: bool = False) -> Any:
    return SimpleNamespace(answers=lambda _: answers, is_replaced=lambda _: replaced)


def end() -> None:
    signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.default_int_handler])
def test_join_returns_when_the_cluster_is_removed(handler: Any) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        adopted_server.join_task("ps/0", view(), Losses(end), signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is handler
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_handler_of_the_script_runs_too() -> None:
    called: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: called.append(number))
    try:
        adopted_server.join_task("ps/0", view(), Losses(end), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert called == [signal.SIGUSR1]


def test_ctrl_c_ends_join() -> None:
    with pytest.raises(KeyboardInterrupt):
        adopted_server.join_task("ps/0", view(), Losses(lambda: signal.raise_signal(signal.SIGINT)), signal.SIGUSR1)


@pytest.mark.parametrize("view", [view(answers=False), view(replaced=True)])
def test_join_names_a_lost_task(view: Any) -> None:
    with pytest.raises(TaskLost, match=r"(?m)^ps/0 was lost: evicted$"):
        adopted_server.join_task("ps/0", view, Losses(lambda: None), signal.SIGUSR1)


def test_join_continues_if_the_same_server_answers_again() -> None:
    losses = Losses(lambda: None, end)
    before = signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    try:
        adopted_server.join_task("ps/0", view(), losses, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert losses.back_again == ["ps/0"]


def test_join_on_another_thread_gets_no_signals() -> None:
    raised: list[BaseException] = []

    def join() -> None:
        try:
            adopted_server.join_task("ps/0", view(answers=False), Losses(lambda: None), signal.SIGUSR1)
        except TaskLost as error:
            raised.append(error)

    thread = threading.Thread(target=join)
    thread.start()
    thread.join(60)
    assert [str(error) for error in raised] == ["ps/0 was lost: evicted"]


def test_loss_counts_after_a_time() -> None:
    losses = LostTasks()
    for task, reason in (("ps/0", "evicted"), ("worker/0", "killed"), ("ps/0", "killed by SIGKILL")):
        losses.lost(task, reason)
    assert losses.wait_until_lost("ps/0", 0.01) == "killed by SIGKILL"
