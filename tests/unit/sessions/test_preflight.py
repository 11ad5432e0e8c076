"""Probes of all tasks before a session, and reports of the answers."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from tfk8s.errors import TaskUnreachable, VersionSkew
from tfk8s.sessions import preflight
from tfk8s.sessions.cluster import cluster_view
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.cluster.questions import Questions
from tfk8s.sessions.error_names import ProbeResult
from tfk8s.task import probe


def answer(task: str, version: str = "2.21.0", error: str = "") -> ProbeResult:
    return ProbeResult(task, f"{task.replace('/', '-')}:2222", incarnation=1, version=version, error=error)


def test_matching_answers() -> None:
    preflight.require([answer("master/0"), answer("worker/0", "2.21.1"), answer("worker/1", "")])
    preflight.require([])


def test_error_has_a_table_of_all_tasks() -> None:
    answers = [answer("master/0"), answer("worker/0", error="Connection refused"), answer("worker/1")]
    with pytest.raises(TaskUnreachable) as caught:
        preflight.require(answers)
    assert str(caught.value) == (
        "of 3 tasks, worker/0 does not answer:\n"
        "  master/0  master-0:2222  answers\n"
        "  worker/0  worker-0:2222  Connection refused\n"
        "  worker/1  worker-1:2222  answers"
    )
    assert caught.value.help == (
        "`tfk8s status` shows the tasks, `tfk8s logs` their output; "
        "if the script does not use worker/0, add --without worker/0"
    )


def test_error_about_a_single_task() -> None:
    with pytest.raises(TaskUnreachable, match=r"^of 1 task, master/0 does not answer"):
        preflight.require([answer("master/0", error="Connection refused")])


def test_master_can_not_be_excluded() -> None:
    with pytest.raises(TaskUnreachable) as caught:
        preflight.require([answer("master/0", error="Connection refused"), answer("worker/0", error="no answer")])
    assert caught.value.help == "`tfk8s status` shows the tasks, `tfk8s logs` their output"


def test_help_for_failed_lookups() -> None:
    with pytest.raises(TaskUnreachable) as caught:
        preflight.require([answer("master/0"), answer("worker/0", error="Temporary failure in name resolution")])
    assert caught.value.help == (
        "names can't be looked up; check the cluster's DNS: kubectl get pods -n kube-system -l k8s-app=kube-dns"
    )


def test_table_of_many_tasks_is_short() -> None:
    answers = [answer(f"worker/{i}", error="Connection refused" if i > 50 else "") for i in range(100)]
    with pytest.raises(TaskUnreachable) as caught:
        preflight.require(answers)
    lines = str(caught.value).splitlines()
    assert lines[0] == "of 100 tasks, worker/51, worker/52, worker/53 and 46 more do not answer:"
    assert len(lines) == 22
    assert lines[-1] == "  and 29 more"


def test_different_versions_are_refused() -> None:
    with pytest.raises(VersionSkew) as caught:
        preflight.require([answer("master/0"), answer("worker/0", "2.19.1"), answer("worker/1", "2.19.1")])
    assert str(caught.value).startswith(
        "the tasks have different versions of TensorFlow (2.21.0: master/0; 2.19.1: worker/0, worker/1), which"
    )


@pytest.mark.parametrize(
    ("own", "warns"), [("2.21.3", False), ("", False), ("2.20.0", True), ("2.22.0-rc1", True), ("3.21.0", True)]
)
def test_warning_about_another_version(own: str, warns: bool) -> None:
    said = preflight.warning([answer("master/0"), answer("worker/0", "")], own)
    assert (said is not None) == warns
    if said:
        assert said.startswith(f"TensorFlow here is {own}, the tasks have 2.21.0: ")


def test_warning_is_printed_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "own_version", lambda: "2.15.0")
    preflight.warn([answer("master/0")])
    preflight.warn([answer("master/0")])
    assert capsys.readouterr().err.count("warning: TensorFlow here is 2.15.0") == 1


def test_device_filters_leave_tasks_out() -> None:
    environment = {"TFK8S_CLUSTER": '{"master": ["m:1"], "worker": ["a:1", "b:1", "c:1"]}'}
    assert ClusterView.of(environment).filters == []
    assert ClusterView.of(environment).master == "master/0"
    without = ClusterView.of({**environment, "TFK8S_WITHOUT": "worker/1"}, ["worker/2"])
    assert without.filters == ["/job:master/task:0", "/job:worker/task:0"]
    assert ClusterView.of({}).probe_all() == []


TARGETS = [
    ("grpc://m-ps-0.m.ns.svc:2222", "ps/0"),
    ("grpc://127.0.0.1:2223", "ps/0"),
    ("grpc://localhost:2222", "worker/0"),
    ("grpc://localhost:2224", ""),
    ("grpc://localhost", ""),
    ("", ""),
]


def test_task_of_a_target() -> None:
    for target, task in TARGETS:
        addresses = {"worker/0": "m-worker-0.m.ns.svc:2222", "ps/0": "m-ps-0.m.ns.svc:2222"}
        assert ClusterView(addresses, in_pod=True).task_at(target) == task, target
        assert ClusterView(addresses).task_at(target) == (task if "svc" in target else ""), target


def test_failed_dial_is_an_error() -> None:
    def dial(task: str) -> object:
        if task == "ps/0":
            raise TaskUnreachable("ps/0 does not answer: Connection refused")
        raise TimeoutError

    view = ClusterView({"ps/0": "p:1", "worker/0": "w:1"}, dial=dial)
    assert [answer.error for answer in view.probe_all()] == [
        "Connection refused",
        "no answer in 4 s (is it stopped, or overloaded?)",
    ]
    assert not view.answers("ps/0")
    assert not view.answers("nosuch/0")


class BusyMachine:
    """Stands for servers that share one core: the more are asked, the later all answer."""

    SHARE = 1 / 8  # of a second, for each server that is asked at the same time

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *silent: str) -> None:
        self.silent, self.timeouts = silent, list[float]()
        self._asked, self._most, self._lock = 0, 0, threading.Lock()
        monkeypatch.setattr(os, "cpu_count", lambda: 1)
        monkeypatch.setattr(probe, "get_status", self._answer)
        monkeypatch.setattr(probe, "get_version", lambda *_: "2.21.0")

    @contextlib.contextmanager
    def dial(self, task: str) -> Iterator[str]:
        yield task

    def _answer(self, task: str, timeout: float) -> list[SimpleNamespace]:
        with self._lock:
            self._asked += 1
            self._most = max(self._most, self._asked)
            self.timeouts.append(timeout)
        before = 0
        while before < self._asked:  # the others come meanwhile
            before = self._asked
            time.sleep(0.003)
        with self._lock:
            self._asked -= 1
        if task in self.silent or self._most * self.SHARE > timeout:
            raise TimeoutError
        return [SimpleNamespace(name="", incarnation=1)]


def test_sixty_tasks_of_a_busy_machine_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = BusyMachine(monkeypatch)
    tasks = {f"worker/{index}": f"w:{index}" for index in range(60)}
    preflight.require(ClusterView(tasks, dial=machine.dial).probe_all())


def test_many_silent_tasks_take_little_longer_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = {f"worker/{index}": f"w:{index}" for index in range(60)}
    machine = BusyMachine(monkeypatch, *tasks)
    assert all(answer.error for answer in ClusterView(tasks, dial=machine.dial).probe_all())
    assert sum(machine.timeouts) / 8 < 20  # 8 are asked at once


@pytest.mark.parametrize(("latency", "least"), [(0.1, 2.0), (0.75, 2.25), (3.0, 4.0)])
def test_a_far_task_has_its_time_after_many_silent_ones(
    monkeypatch: pytest.MonkeyPatch, latency: float, least: float
) -> None:
    timeouts, now = dict[str, float](), 0.0

    def answer(task: str, timeout: float) -> list[SimpleNamespace]:
        nonlocal now
        timeouts[task] = timeout
        if task.startswith("lost"):
            raise TimeoutError
        now += latency
        return []

    monkeypatch.setattr(probe, "get_status", answer)
    monkeypatch.setattr(probe, "get_version", lambda *_: "2.21.0")
    monkeypatch.setattr(cluster_view, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(cluster_view.concurrency, "servers_at_once", lambda _: 1)
    tasks = dict.fromkeys(("first/0", "lost/0", "last/0"), "h:1")
    view = ClusterView(tasks, dial=lambda task: contextlib.nullcontext(task))  # type: ignore[arg-type,return-value]
    view.probe_all()
    assert (timeouts["lost/0"], timeouts["last/0"]) == (4.0, pytest.approx(least))


class Master:
    """Stands for the master of three tasks, which can't reach some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
        self.missing, self.asked = set(missing), []
        monkeypatch.setattr(Questions, "ask", lambda _, *arguments: self._ask(*arguments))
        monkeypatch.setattr(probe, "get_status", lambda stream, timeout: [])
        dial = lambda task: contextlib.nullcontext(task)  # noqa: E731
        self.view = ClusterView({"chief/0": "c:1", "ps/0": "p:1", "worker/0": "w:1"}, ["worker/0"], dial=dial)

    def _ask(self, key: tuple[str, ...], dial: object, method: str, timeout: float, request: bytes) -> None:
        assert key[0] == "chief/0"
        assert request == probe.reach_request([f"/job:{task.replace('/', '/task:')}" for task in dict.fromkeys(key)])
        self.asked.append([*dict.fromkeys(key)])
        if self.missing.intersection(key):
            raise TimeoutError


CHIEF, PS = "chief/0", "ps/0"


def test_master_that_reaches_all_tasks_is_probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    master = Master(monkeypatch)
    assert master.view.unreachable() == []
    assert master.asked == [[CHIEF, PS]]


def test_task_that_the_master_can_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Master(monkeypatch, PS).view.unreachable() == ["ps/0"]


def test_source_is_among_the_tasks_that_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    master = Master(monkeypatch, PS)
    master.view.unreachable()
    assert all(devices[0] == CHIEF for devices in master.asked)


def test_unreachable_pairs_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    view = ClusterView({"chief/0": "c:1", "ps/0": "p:1", "worker/0": "w:1"}, dial=contextlib.nullcontext)

    def ask(_: object, key: tuple[str, ...], *__: object) -> None:
        if key[0] != PS and PS in key:
            raise TimeoutError

    monkeypatch.setattr(Questions, "ask", ask)
    monkeypatch.setattr(probe, "get_status", lambda stream, timeout: [])
    pairs = view.unreachable_pairs()
    assert pairs == {"chief/0": ["ps/0"], "worker/0": ["ps/0"]}
    assert preflight.unreachable(pairs) == (
        "chief/0, worker/0 can't reach ps/0: asked from this machine, ps/0 answers, but chief/0, worker/0 wait for ps/0"
    )
    monkeypatch.setattr(cluster_view, "MAX_SOURCES", 2)
    assert list(view.unreachable_pairs()) == ["chief/0"]


def test_busy_master_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Master(monkeypatch, CHIEF, PS).view.unreachable() == []


def test_master_that_can_not_be_dialled_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    def dial(task: str) -> object:
        raise TaskUnreachable("chief/0 does not answer: Connection refused")

    assert ClusterView({"chief/0": "c:1"}, dial=dial).unreachable() == []
    assert ClusterView({}).unreachable() == []


def test_restarted_task_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([1, 1, 1, 2, None])  # incarnations

    def dial(task: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def get_status(stream: object, timeout: float) -> list[SimpleNamespace]:
        if (incarnation := next(answers)) is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return [SimpleNamespace(name="", incarnation=incarnation)]

    monkeypatch.setattr(probe, "get_status", get_status)
    monkeypatch.setattr(probe, "get_version", lambda *_: "2.21.0")
    view = ClusterView({"ps/0": "p:1"}, dial=dial)
    assert not view.is_replaced("ps/0")
    view.probe_all()
    assert [view.is_replaced("ps/0") for _ in range(3)] == [False, True, False]
