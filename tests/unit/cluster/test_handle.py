"""What a cluster's handle does with its backend, and what `up` and `connect` promise."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import backend as fake_backend
from fakes.backend import FakeBackend, change, job_file

from tfk8s import api, polling
from tfk8s.backends import devices
from tfk8s.backends.devices import TaskDevices
from tfk8s.cluster import forward_guard, handle, sidecar
from tfk8s.cluster.handle import Cluster
from tfk8s.core.script import Script
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase, ScriptPhase, ScriptStatus
from tfk8s.errors import (
    BackendUnreachable,
    ClusterError,
    InvalidInput,
    NoSuchCluster,
    TaskError,
    TaskUnreachable,
    WaitTimeout,
)
from tfk8s.sessions import session

CHIEF, FIRST, SECOND = Task("chief", 0), Task("worker", 0), Task("worker", 1)
READY, STARTING, FAILED = Phase.READY, Phase.STARTING, Phase.FAILED


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(job_file())


@pytest.fixture
def cluster(backend: FakeBackend) -> Cluster:
    return Cluster(backend, "mnist")


@pytest.fixture
def new(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """The backend that `up` and `connect` choose; nothing is there yet."""
    backend = FakeBackend()
    monkeypatch.setattr(api, "choose", lambda where, spec=None: backend)
    return backend


# ---- waiting -------------------------------------------------------------------------------------------------------


def test_wait_returns_when_every_task_is_ready_and_tells_each_change(cluster: Cluster, backend: FakeBackend) -> None:
    backend.looks = [
        change("worker/1", phase=Phase.PENDING),
        change("worker/1", phase=STARTING),
        change("worker/1", phase=STARTING),
        change("worker/1", phase=READY),
    ]
    told: list[ClusterStatus] = []
    assert cluster.wait(5, told.append).ready == 3
    assert [status.tasks[2].phase for status in told] == [Phase.PENDING, STARTING, READY]


def test_wait_names_what_is_missing(cluster: Cluster, backend: FakeBackend) -> None:
    backend.looks = [change("worker/1", phase=Phase.PENDING, reason="no node has 4 GPUs free")]
    backend.looks += [change("chief/0", phase=STARTING)]
    with pytest.raises(WaitTimeout) as caught:
        cluster.wait(0.01)
    assert str(caught.value) == (
        'waited 0.01 s for cluster "mnist" to be ready: chief/0 is starting; '
        "worker/1 is pending (no node has 4 GPUs free)"
    )


def test_wait_names_few_of_many() -> None:
    backend = FakeBackend(job_file("big", worker=9), phase=Phase.PENDING)

    def look(status: ClusterStatus) -> ClusterStatus:
        tasks = [dataclasses.replace(task, reason=f"reason {task.task.index}") for task in status.tasks]
        return dataclasses.replace(status, tasks=tuple(tasks))

    backend.looks = [look]
    with pytest.raises(WaitTimeout) as caught:
        Cluster(backend, "big").wait(0)
    assert str(caught.value) == (
        'waited 0 s for cluster "big" to be ready: worker/0 is pending (reason 0); worker/1 is pending (reason 1); '
        "worker/2 is pending (reason 2); worker/3 is pending (reason 3); worker/4 is pending (reason 4); and 4 more"
    )


def test_wait_tells_what_is_the_same_of_many_tasks_once() -> None:
    backend = FakeBackend(job_file("big", worker=9), phase=Phase.PENDING)
    with pytest.raises(WaitTimeout, match=r'"big" to be ready: worker/0 to worker/8 are pending$'):
        Cluster(backend, "big").wait(0)


def test_ready_means_that_the_servers_answer(cluster: Cluster, backend: FakeBackend) -> None:
    backend.silent = {SECOND}
    with pytest.raises(WaitTimeout) as caught:
        cluster.wait(0)
    assert str(caught.value) == (
        'waited 0 s for cluster "mnist" to be ready: chief/0 does not answer: Connection refused; '
        "worker/1 does not answer: Connection refused"
    )


def test_that_the_master_does_not_answer_for_ready_tasks_is_told_once(
    cluster: Cluster, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    backend.silent = {SECOND}
    seen: list[ClusterStatus] = []
    with pytest.raises(WaitTimeout):
        cluster.wait(0.02, seen.append)
    reasons = [[task.reason for task in status.tasks] for status in seen]
    assert reasons == [["", "", ""], ["does not answer: Connection refused", "", ""]]


def test_a_task_that_is_left_out_is_not_waited_for(cluster: Cluster, backend: FakeBackend) -> None:
    backend.looks = [change("worker/1", phase=FAILED, reason="its node is gone")]
    assert [task.task for task in cluster.wait(5, without=["worker/1"]).tasks] == [CHIEF, FIRST]
    backend.silent = {FIRST}
    with pytest.raises(WaitTimeout, match=r"worker/0 does not answer: Connection refused$"):
        cluster.wait(0, without=["worker/1"])
    with pytest.raises(InvalidInput, match=r"^sessions can't do without chief/0"):
        cluster.wait(0, without=["chief/0"])


def test_a_task_that_fails_once_is_waited_for(cluster: Cluster, backend: FakeBackend) -> None:
    backend.looks = [
        change("worker/1", phase=FAILED, reason="killed by SIGKILL"),
        change("worker/1", phase=STARTING, restarts=1),
        change("worker/1", phase=READY),
    ]
    assert cluster.wait(5).tasks[2].restarts == 1


def test_a_task_that_fails_again_ends_the_wait(cluster: Cluster, backend: FakeBackend) -> None:
    backend.looks = [
        change("worker/1", phase=STARTING, restarts=7),  # of earlier days
        change("worker/1", phase=FAILED, reason="exited with 1: port in use"),
        change("worker/1", phase=FAILED, restarts=8),
    ]
    with pytest.raises(ClusterError) as caught:
        cluster.wait(5)
    assert str(caught.value) == (
        'cluster "mnist" can\'t come up: worker/1 was started again and ended again: exited with 1: port in use'
    )
    assert caught.value.help == "tfk8s logs --local mnist worker/1 shows what it wrote"
    assert caught.value.exit_code == 1


def test_a_cluster_that_is_removed_meanwhile_ends_the_wait(cluster: Cluster, backend: FakeBackend) -> None:
    def removed(_: ClusterStatus) -> ClusterStatus:
        raise NoSuchCluster("there is none")

    backend.looks = [change("worker/1", phase=STARTING), removed]
    with pytest.raises(ClusterError, match=r'^cluster "mnist" was removed by somebody while it came up$'):
        cluster.wait(5)


def test_a_cluster_that_is_lost_ends_the_wait(cluster: Cluster, backend: FakeBackend) -> None:
    backend.looks = [lambda status: dataclasses.replace(status, reason="its supervisor was killed")]
    with pytest.raises(ClusterError, match=r"^its supervisor was killed$"):
        cluster.wait(5)


# ---- devices -------------------------------------------------------------------------------------------------------


def names(answers: list[TaskDevices]) -> dict[str, list[str] | str]:
    return {str(answer.task): answer.error or [device.name for device in answer.devices] for answer in answers}


def cpu(job: str, index: int) -> list[str]:
    return [f"/job:{job}/replica:0/task:{index}/device:CPU:0"]


def test_the_master_is_asked_for_all_devices_at_once(cluster: Cluster, backend: FakeBackend) -> None:
    expected = {"chief/0": cpu("chief", 0), "worker/0": cpu("worker", 0), "worker/1": cpu("worker", 1)}
    assert names(cluster.devices()) == expected
    assert len(backend.streams) == 1


def test_where_the_master_is_silent_each_task_is_asked(cluster: Cluster, backend: FakeBackend) -> None:
    backend.silent = {FIRST}
    assert names(cluster.devices()) == {
        "chief/0": "chief/0 does not answer: Connection refused",
        "worker/0": "worker/0 does not answer: Connection refused",
        "worker/1": cpu("worker", 1),
    }


def test_the_silence_of_a_task_that_is_not_ready_is_explained(cluster: Cluster, backend: FakeBackend) -> None:
    backend.silent = {FIRST}
    backend.looks = [change("worker/0", phase=Phase.PENDING, reason="no node has 4 GPUs free")]
    assert names(cluster.devices())["worker/0"] == ("worker/0 does not answer: it is pending (no node has 4 GPUs free)")


def test_an_evaluator_is_asked_by_itself() -> None:
    backend = FakeBackend(job_file("mnist", chief=1, evaluator=1))
    assert names(Cluster(backend, "mnist").devices())["evaluator/0"] == cpu("evaluator", 0)
    assert len(backend.streams) == 2


def test_a_silent_evaluator_counts(backend: FakeBackend) -> None:
    backend = FakeBackend(job_file("mnist", chief=1, evaluator=1))
    backend.looks = [lambda status: dataclasses.replace(status, master=CHIEF)]
    status = backend.observe("mnist")
    original = backend.dial

    def dial(name: str, task: Task) -> object:
        if task.job == "evaluator":
            raise ConnectionResetError(104, "Connection reset by peer")
        return original(name, task)

    backend.dial = dial  # type: ignore[method-assign, assignment]
    with pytest.raises(TaskUnreachable, match=r"^chief/0 knows no devices of evaluator/0$"):
        devices.ask_master(backend, status)
    assert names(devices.list_devices(backend, status))["evaluator/0"] == (
        "evaluator/0 does not answer: Connection reset by peer"
    )


def test_a_server_that_says_nothing_is_given_up(cluster: Cluster, backend: FakeBackend) -> None:
    def silent(name: str, task: Task) -> object:
        here, there = fake_backend.socket.socketpair()
        backend.streams.append(there)
        return here

    backend.dial = silent  # type: ignore[method-assign, assignment]
    (answer,) = devices.ask_each(backend, "mnist", [FIRST], timeout=0.01)
    assert answer.error == "worker/0 does not answer within 0.01 s"


# ---- restart, submit, forward --------------------------------------------------------------------------------------


def test_restart_waits_for_another_server(cluster: Cluster, backend: FakeBackend) -> None:
    as_it_is: Callable[[ClusterStatus], ClusterStatus] = lambda status: status  # noqa: E731
    backend.looks = [
        as_it_is,  # before
        as_it_is,  # the old server still answers
        change("worker/1", phase=FAILED, reason="restarted on request"),
        change("worker/1", phase=READY, restarts=1),
    ]
    cluster.restart("/job:worker/task:1", timeout=5)
    assert backend.looks == []
    assert backend.calls == ["restart mnist worker/1"]


def test_restart_of_all(cluster: Cluster, backend: FakeBackend) -> None:
    cluster.restart(timeout=None)
    assert backend.calls == ["restart mnist None"]


def test_restart_of_no_task_there_is(cluster: Cluster, backend: FakeBackend) -> None:
    with pytest.raises(InvalidInput) as caught:
        cluster.restart("worker/2")
    assert str(caught.value) == 'there is no task "worker/2"; there are chief/0, worker/0 to worker/1'
    assert backend.calls == []


def test_submit_passes_on_the_exit_code(cluster: Cluster, backend: FakeBackend, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    backend.code = 7
    assert cluster.submit(script, "--steps", "5", tf1=True, isolate=True) == 7
    assert backend.calls == [f"run mnist {script} --steps 5 tf1 isolate"]


def test_submit_of_no_script(cluster: Cluster, backend: FakeBackend, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r'^there is no script "nope.py"$'):
        cluster.submit("nope.py")
    with pytest.raises(InvalidInput, match=r'^"/.*" is a folder, not a script$'):
        cluster.submit(tmp_path)
    with pytest.raises(InvalidInput, match=r'^"/dev/null" is a pipe or a device, not a script$'):
        cluster.submit("/dev/null")
    assert backend.calls == []


def test_submit_of_a_script_that_can_not_be_read(
    cluster: Cluster, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (script, os.R_OK))
    with pytest.raises(InvalidInput, match=rf'^script "{script}" can\'t be read: permission denied$'):
        cluster.submit(script)
    assert backend.calls == []


class Relay:
    """In the place of a process that carries connections."""

    def __init__(self, command: list[str]) -> None:
        self.target, self.command, self.closed = "grpc://127.0.0.1:4711", command, False
        self.news, self._told = os.pipe()
        self.ended: list[str] = []

    def end_calls(self, why: str) -> None:
        self.ended.append(why)

    def close(self) -> None:
        self.closed = True
        for one in (self.news, self._told):
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


def test_threads_that_open_sessions_at_once_share_one_relay(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
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

    backend.looks = [gone]
    with pytest.raises(BackendUnreachable):
        cluster.target  # noqa: B018
    assert made == []
    assert cluster.target == "grpc://127.0.0.1:4711"
    cluster.close()
    assert [one.closed for one in made] == [True]


def test_a_given_address_is_the_target(cluster: Cluster, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "locator", lambda name: None)
    assert cluster.target == "grpc://localhost:2222"


def test_a_session_is_opened_only_where_every_task_answers(cluster: Cluster, backend: FakeBackend) -> None:
    backend.silent = {SECOND}
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
    target, watch = reach()
    assert target == "grpc://127.0.0.1:4711"
    assert watch._news is news
    with pytest.raises(InvalidInput, match="the master, which they connect to"):
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
        ((_, name, guarded, heard, options),) = made
    assert (name, guarded, options["without"]) == ("mnist", forward, ["worker/1"])
    assert options["unreached"]() == []
    for what in (("worker/0", "evicted", False), ("worker/0", "", False), ("worker/0", "", True)):
        heard(*what)
    assert caplog.messages == [
        "worker/0 was lost: evicted", "worker/0 answers again",
        "worker/0 was started anew: sessions opened before are lost",
    ]  # fmt: skip


def test_the_limits_are_those_of_scripts_too() -> None:
    assert (handle.MAX_RECOVERIES, handle.TIMEOUT) == (session.RECOVERIES, session.PATIENCE)


def test_what_a_notebook_shows(cluster: Cluster, backend: FakeBackend) -> None:
    backend.looks = [change("worker/1", phase=FAILED, reason="<b>")]
    assert repr(cluster) == "<tfk8s.Cluster 'mnist' (local)>"
    assert cluster._repr_html_() == (
        "<table><caption>mnist (local)</caption>"
        "<tr><th>task</th><th>phase</th><th>address</th><th>reason</th></tr>"
        "<tr><td>chief/0</td><td>Ready</td><td>localhost:2222</td><td></td></tr>"
        "<tr><td>worker/0</td><td>Ready</td><td>localhost:2223</td><td></td></tr>"
        "<tr><td>worker/1</td><td>Failed</td><td>localhost:2224</td><td>&lt;b&gt;</td></tr></table>"
    )


# ---- up and connect ------------------------------------------------------------------------------------------------


def test_a_cluster_that_up_made_goes_with_the_with(new: FakeBackend) -> None:
    with api.up(job_file(), local=True) as cluster:
        assert (cluster.name, cluster.made, cluster.changed) == ("mnist", True, True)
    assert new.calls == ["apply mnist", "delete mnist"]


def test_one_that_is_kept_stays(new: FakeBackend) -> None:
    with api.up(job_file(), local=True, keep=True):
        pass
    assert new.calls == ["apply mnist"]


def test_one_that_was_there_stays(new: FakeBackend) -> None:
    api.up(job_file(), local=True)
    with api.up(job_file(), local=True) as cluster:
        assert (cluster.made, cluster.changed) == (False, False)
    assert new.calls == ["apply mnist", "apply mnist"]


def test_one_that_somebody_was_quicker_to_make_stays(new: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    new.apply(job_file())

    def refuse(name: str) -> None:
        raise NoSuchCluster(name)

    monkeypatch.setattr(new, "observe", refuse)
    with api.up(job_file(), local=True, timeout=None) as cluster:
        assert not cluster.made
    with pytest.raises(InvalidInput, match="runs already"):
        api.up(job_file("mnist", ps=1), local=True)
    assert "delete mnist" not in new.calls


def script(phase: ScriptPhase) -> Callable[[ClusterStatus], ClusterStatus]:
    """Return what gives a cluster one script."""
    status = ScriptStatus(name="script-1", phase=phase, command="s.py")
    return lambda cluster: dataclasses.replace(cluster, scripts=(status,))


def test_a_script_that_seems_to_run_a_moment_longer_keeps_no_cluster(new: FakeBackend) -> None:
    def end(_: Script) -> None:
        new.looks = [script(ScriptPhase.RUNNING), script(ScriptPhase.FAILED)]

    new.code, new.script = 3, end
    with api.up(job_file(), local=True) as cluster:
        assert cluster.run(Script(path=Path("s.py"))) == 3
    assert new.calls[-1] == "delete mnist"


def test_a_cluster_in_which_other_scripts_run_stays(new: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    with api.up(job_file(), local=True):
        new.looks = [script(ScriptPhase.RUNNING)]
    assert list(new.clusters_by_name) == ["mnist"]
    assert caplog.messages == ['cluster "mnist" is kept, since other scripts run in it: tfk8s down --local mnist']


def test_one_that_went_by_itself_is_no_error(new: FakeBackend) -> None:
    with api.up(job_file(), local=True) as cluster:
        cluster.down()
    assert list(new.clusters_by_name) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TaskError("lost")])
def test_whatever_goes_wrong_meanwhile_nothing_is_left(new: FakeBackend, error: BaseException) -> None:
    def fail(_: ClusterStatus) -> None:
        raise error

    with pytest.raises(type(error)):
        api.up(job_file(), local=True, on_change=fail)
    assert new.calls == ["apply mnist", "delete mnist"]


def test_what_can_t_come_up_goes_unless_it_is_kept(new: FakeBackend) -> None:
    new.first_phase = Phase.PENDING
    with pytest.raises(WaitTimeout):
        api.up(job_file(), local=True, timeout=0)
    assert new.calls == ["apply mnist", "delete mnist"]
    with pytest.raises(WaitTimeout):
        api.up(job_file(), local=True, timeout=0, keep=True)
    assert list(new.clusters_by_name) == ["mnist"]


def test_a_refused_job_file_harms_no_cluster_of_that_name(new: FakeBackend) -> None:
    api.up(job_file(), local=True)
    with pytest.raises(InvalidInput):
        api.up(job_file("mnist", chief=9), local=True)
    assert list(new.clusters_by_name) == ["mnist"]


def test_without_a_timeout_up_waits_for_nothing(new: FakeBackend) -> None:
    new.first_phase = Phase.PENDING
    assert api.up(job_file(), local=True, timeout=None).status().phase is Phase.PENDING


def test_connect_finds_a_cluster_and_leaves_it(new: FakeBackend) -> None:
    api.up(job_file(), local=True)
    with api.connect("mnist", local=True) as cluster:
        assert cluster.status().ready == 3
    assert list(new.clusters_by_name) == ["mnist"]
    with pytest.raises(NoSuchCluster):
        api.connect("nope", local=True)


@pytest.mark.parametrize(
    ("word", "is_file"),
    [("mnist", False), ("a/mnist", True), ("mnist.yaml", True), ("mnist.yml", True), ("x.json", True), ("here", True)],
)
def test_what_counts_as_a_file(word: str, is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").touch()
    Path("folder").mkdir()
    assert api.names_file(word) is is_file
    assert not api.names_file("folder")
    assert api.names_file(Path("mnist"))
