"""The handle on a cluster, and its connection."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_files import job_file

from tfk8s.cluster import forward_guard, handle, scripts, sidecar
from tfk8s.cluster.handle import Cluster
from tfk8s.core.lifetime import Limits
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase
from tfk8s.errors import (
    BackendUnreachable,
    ClusterError,
    InvalidInput,
    TaskUnreachable,
)
from tfk8s.sessions import session
from tfk8s.sessions.task_events import lost
from tfk8s.testing import FakeBackend, change

CHIEF, FIRST, SECOND = Task("chief", 0), Task("worker", 0), Task("worker", 1)
READY, STARTING, FAILED = Phase.READY, Phase.STARTING, Phase.FAILED


def test_what_a_notebook_shows_of_logs_and_scale(cluster: Cluster) -> None:
    logs = cluster.logs(["worker"], tail=3)
    assert logs.tasks == (FIRST, SECOND)
    assert [line.text for line in logs] == ["worker/0 listens", "worker/1 listens"]
    assert str(logs) == "worker/0 | worker/0 listens\nworker/1 | worker/1 listens"
    assert repr(logs) == "<output of worker/0, worker/1>"
    assert str(cluster.logs(["worker/1"])) == "worker/1 listens"
    assert str(cluster.logs(follow=True)) == "<output of chief/0, worker/0, worker/1>"
    shown: list[str] = []
    logs._repr_pretty_(SimpleNamespace(text=shown.append), False)
    assert shown == [str(logs)]
    assert str(cluster.scale({"worker": 3}, timeout=None)) == "scaled: the other tasks continue"
    unchanged = cluster.scale({"worker": 3}, timeout=None)
    assert (str(unchanged), bool(unchanged)) == ("nothing changed", False)


def test_restart_waits_for_another_server(cluster: Cluster, backend: FakeBackend) -> None:
    backend.updates = [
        change("worker/1"),
        change("worker/1", restarts=0),  # the old server still responds
        change("worker/1", phase=FAILED, reason="restarted on request"),
        change("worker/1", phase=READY, restarts=1),
    ]
    cluster.restart("/job:worker/task:1", timeout=5)
    assert backend.updates == []
    assert backend.calls == ["restart mnist worker/1"]


def test_restart_of_all(cluster: Cluster, backend: FakeBackend) -> None:
    cluster.restart(timeout=None)
    assert backend.calls == ["restart mnist None"]


def test_restart_of_an_unknown_task(cluster: Cluster, backend: FakeBackend) -> None:
    with pytest.raises(InvalidInput) as caught:
        cluster.restart("worker/2")
    assert str(caught.value) == 'there is no task "worker/2"; there are chief/0, worker/0 to worker/1'
    assert backend.calls == []


def test_submit_returns_the_exit_code(cluster: Cluster, backend: FakeBackend, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    backend.exit_code = 7
    assert cluster.submit(script, "--steps", "5", tf1=True, isolate=True) == 7
    assert backend.calls == [f"run mnist {script} --steps 5 tf1 isolate"]


class Relay:
    """In the place of a process that carries connections."""

    def __init__(self, command: list[str]) -> None:
        self.target, self.command, self.closed = "grpc://127.0.0.1:4711", command, False
        self.events, self._events_end = os.pipe()

    def abort_calls(self, reason: str) -> None:
        raise AssertionError(reason)

    def close(self) -> None:
        self.closed = True
        for one in (self.events, self._events_end):
            os.close(one)


def test_the_target_is_carried_by_another_process_until_close(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Relay] = []
    before = threading.active_count()
    monkeypatch.setattr(sidecar, "Sidecar", lambda *arguments: made.append(Relay(*arguments)) or made[-1])
    assert [cluster.target for _ in range(2)] == ["grpc://127.0.0.1:4711"] * 2
    assert threading.active_count() == before + 1  # who watches its calls
    wakeup = signal.set_wakeup_fd(-1)
    assert wakeup != -1, "Ctrl-C wakes the thread"
    signal.set_wakeup_fd(wakeup)
    cluster.close()
    assert threading.active_count() == before
    assert [one.closed for one in made] == [True]
    assert made[0].command[-1] == "mnist"
    assert cluster.target
    cluster.down()
    assert [one.closed for one in made] == [True, True]


def test_threads_share_one_sidecar(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Relay] = []
    begun, go_on = threading.Event(), threading.Event()

    def make(*arguments: Any) -> Relay:
        begun.set()
        assert go_on.wait(20)
        made.append(Relay(*arguments))
        return made[-1]

    monkeypatch.setattr(sidecar, "Sidecar", make)
    threads = [threading.Thread(target=lambda: cluster.target) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert begun.wait(20)
    go_on.set()
    for thread in threads:
        thread.join(20)
    cluster.close()
    assert [one.closed for one in made] == [True]


def test_a_target_that_can_not_be_had_leaves_no_relay(
    cluster: Cluster, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Relay] = []
    monkeypatch.setattr(sidecar, "Sidecar", lambda *arguments: made.append(Relay(*arguments)) or made[-1])

    def gone(status: ClusterStatus) -> ClusterStatus:
        raise BackendUnreachable("it does not answer")

    backend.updates = [gone]
    with pytest.raises(BackendUnreachable):
        cluster.target  # noqa: B018
    assert made == []
    assert cluster.target == "grpc://127.0.0.1:4711"
    cluster.close()
    assert [one.closed for one in made] == [True]


def test_a_given_address_is_the_target(cluster: Cluster, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "locator", lambda name: None)
    assert cluster.target == "grpc://localhost:2222"


def test_session_needs_all_tasks_to_answer(cluster: Cluster, backend: FakeBackend) -> None:
    backend.unresponsive = {SECOND}
    with pytest.raises(TaskUnreachable) as caught:
        cluster.session()
    assert str(caught.value) == (
        "of 3 tasks, chief/0, worker/1 do not answer:\n"
        "  chief/0   localhost:2222  Connection refused\n"
        "  worker/0  localhost:2223  answers\n"
        "  worker/1  localhost:2224  Connection refused"
    )


def test_sessions_after_a_loss_are_those_of_scripts(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "open_session", lambda *arguments: arguments)
    reach, graph, config, view, news, *rest = cluster.session(
        "graph", "config", without=["worker/1"], recover=print, recoveries=3, timeout=9
    )
    assert (graph, config, rest) == ("graph", "config", [print, 3, 9])
    assert (view.master, view.without) == ("chief/0", {"worker/1"})
    monkeypatch.setattr(sidecar, "Sidecar", Relay)
    target, guard = reach()
    assert target == "grpc://127.0.0.1:4711"
    guard.guard.on_event(lost("worker/0", "evicted"))
    assert news.lost_now == {"worker/0"}
    with pytest.raises(InvalidInput, match="the master, to which they connect"):
        cluster.session(without=["chief/0"])
    cluster.close()


def test_sessions_ask_neither_a_proxy_nor_an_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setattr(session, "open_session", lambda *arguments: arguments)
    _, _, _, view, *_ = Cluster(FakeBackend(job_file("mnist", chief=1, evaluator=1)), "mnist").session()
    assert os.environ["no_proxy"] == dict(os.environ)["no_grpc_proxy"] == "mine,localhost,127.0.0.1,::1"
    assert list(view.addresses) == ["chief/0"]


def test_a_lent_address_is_guarded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        forward_guard, "ForwardGuard", lambda *given, **options: contextlib.nullcontext(made.append((*given, options)))
    )
    with cluster.forward(without=["worker/1"]) as forward:
        ((_, name, guarded, on_event, view, _),) = made
    assert (name, guarded, view.without) == ("mnist", forward, {"worker/1"})
    assert view.unreachable() == []
    on_event(lost("worker/0", "evicted"))
    assert caplog.messages == ["worker/0 was lost: evicted"]


def test_the_limits_are_those_of_scripts_too() -> None:
    assert (handle.MAX_RECOVERIES, handle.TIMEOUT) == (session.MAX_RECOVERIES, session.TIMEOUT)


def test_cluster_in_a_notebook(cluster: Cluster, backend: FakeBackend) -> None:
    backend.updates = [change("worker/1", phase=FAILED, reason="<b>")]
    assert repr(cluster) == "<tfk8s.Cluster 'mnist' (local)>"
    table = cluster._repr_html_()
    assert re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", table) == [
        "task", "phase", "restarts", "address", "reason",
        "chief/0", "Ready", "0", "localhost:2222", "",
        "worker/0", "Ready", "0", "localhost:2223", "",
        "worker/1", "Failed", "0", "localhost:2224", "&lt;b&gt;",
    ]  # fmt: skip
    assert "<caption>mnist (local): Failed, 2/3 tasks ready</caption>" in table
    assert Cluster(backend, "<nope>")._repr_html_() == "<p>there is no cluster &quot;&lt;nope&gt;&quot;</p>"


# ---- leases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("running", "lease", "given"),
    [
        (None, 900, 900),
        (None, None, None),  # as `up` and `run --keep` have it
        (Limits(None, None), 900, None),
        (Limits(None, None, 60.0), 900, 60),
        (Limits(None, None, 60.0), None, None),
        (Limits(None, None, 0.0), 900, 0),
    ],
)
def test_a_lease_is_for_new_clusters(running: Limits | None, lease: int | None, given: int | None) -> None:
    backend = FakeBackend(*([job_file()] if running else []))
    if running:
        backend.updates = [lambda status: replace(status, limits=running)]
    applied: list[object] = []
    backend.apply = lambda spec: bool(applied.append(repr(spec.lease)))
    Cluster(backend, "mnist").apply(job_file(), lease=lease)
    assert applied == [repr(given)]


def test_a_cluster_that_is_left_to_other_scripts_loses_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, applied = FakeBackend(), []
    monkeypatch.setattr(scripts, "any_runs", lambda *_, **__: True)
    apply = backend.apply
    monkeypatch.setattr(backend, "apply", lambda spec: applied.append((spec.lease, spec.jobs[0].tasks)) or apply(spec))
    with Cluster(backend, "mnist", keep=False) as cluster:
        cluster.apply(job_file(), lease=900)
        backend.scale("mnist", {"chief": 2})  # by another command
    assert applied == [(900, 1), (None, 2)]


@pytest.mark.parametrize("error", [None, ClusterError("lost")])
def test_a_lease_that_others_hold_leaves_the_cluster_to_them(error: ClusterError | None) -> None:
    backend = FakeBackend()
    with contextlib.suppress(ClusterError), Cluster(backend, "mnist", keep=False) as cluster:
        cluster.apply(job_file(), lease=900)
        backend.leases.are_shared = True
        if error:
            raise error
    assert backend.calls == ["apply mnist"]


def leased(lease: float | None) -> list[Callable[[ClusterStatus], ClusterStatus]]:
    return [lambda status: replace(status, limits=Limits(None, None, lease))]


@pytest.mark.parametrize(("at_the_end", "is_removed"), [(900.0, True), (None, False)])
def test_the_last_run_removes_a_cluster_that_another_made(at_the_end: float | None, is_removed: bool) -> None:
    backend = FakeBackend(job_file())
    backend.updates = leased(900.0)
    with Cluster(backend, "mnist", keep=False) as cluster:
        cluster.apply(job_file(), lease=900)
        backend.updates = leased(at_the_end)  # an `up` takes the lease away
    assert backend.calls == ["apply mnist", *(["delete mnist"] if is_removed else [])]


def test_a_run_that_is_refused_leaves_a_leased_cluster_alone() -> None:
    backend = FakeBackend(job_file())
    backend.updates = leased(900.0)
    with pytest.raises(InvalidInput), Cluster(backend, "mnist", keep=False) as cluster:
        cluster.apply(job_file(worker=5), lease=900)
    assert backend.calls == ["apply mnist"]
