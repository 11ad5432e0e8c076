"""Clusters that `up` creates and `connect` finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job_files import job_file

from tfk8s import api
from tfk8s.core.script import Script
from tfk8s.core.status import ClusterStatus, Phase, ScriptPhase, ScriptStatus
from tfk8s.errors import InvalidInput, NoSuchCluster, TaskError, WaitTimeout
from tfk8s.testing import FakeBackend, use_backend


@pytest.fixture
def new() -> Iterator[FakeBackend]:
    """The backend that `up` and `connect` choose, without clusters."""
    with use_backend(FakeBackend()) as backend:
        yield backend


def test_leaving_the_with_removes_the_cluster(new: FakeBackend) -> None:
    with api.up(job_file(), local=True) as cluster:
        assert (cluster.name, cluster.created, cluster.changed) == ("mnist", True, True)
    assert new.calls == ["apply mnist", "delete mnist"]


def test_keep_keeps_the_cluster(new: FakeBackend) -> None:
    with api.up(job_file(), local=True, keep=True):
        pass
    assert new.calls == ["apply mnist"]


def test_an_existing_cluster_stays(new: FakeBackend) -> None:
    api.up(job_file(), local=True)
    with api.up(job_file(), local=True) as cluster:
        assert (cluster.created, cluster.changed) == (False, False)
    assert new.calls == ["apply mnist", "apply mnist"]


def test_a_cluster_that_another_process_created_stays(new: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    new.apply(job_file())

    def refuse(name: str) -> None:
        raise NoSuchCluster(name)

    monkeypatch.setattr(new, "observe", refuse)
    with api.up(job_file(), local=True, timeout=None) as cluster:
        assert not cluster.created
    with pytest.raises(InvalidInput, match="runs already"):
        api.up(job_file("mnist", ps=1), local=True)
    assert "delete mnist" not in new.calls


def script(phase: ScriptPhase) -> Callable[[ClusterStatus], ClusterStatus]:
    """Return what gives a cluster one script."""
    status = ScriptStatus(name="script-1", phase=phase, command="s.py")
    return lambda cluster: dataclasses.replace(cluster, scripts=(status,))


def test_a_failed_script_may_seem_to_run_for_a_moment(new: FakeBackend) -> None:
    def end(_: Script) -> None:
        new.updates = [script(ScriptPhase.RUNNING), script(ScriptPhase.FAILED)]

    new.exit_code, new.on_run = 3, end
    with api.up(job_file(), local=True) as cluster:
        assert cluster.run(Script(path=Path("s.py"))) == 3
    assert new.calls[-1] == "delete mnist"


def test_a_cluster_with_other_scripts_stays(new: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    with api.up(job_file(), local=True):
        new.updates = [script(ScriptPhase.RUNNING)]
    assert list(new.statuses) == ["mnist"]
    assert caplog.messages == [
        'cluster "mnist" is kept because other scripts run in it; remove it: tfk8s down --local mnist'
    ]


def test_down_in_the_with_is_allowed(new: FakeBackend) -> None:
    with api.up(job_file(), local=True) as cluster:
        cluster.down()
    assert list(new.statuses) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TaskError("lost")])
def test_an_error_removes_the_cluster(new: FakeBackend, error: BaseException) -> None:
    def fail(_: ClusterStatus) -> None:
        raise error

    with pytest.raises(type(error)):
        api.up(job_file(), local=True, on_change=fail)
    assert new.calls == ["apply mnist", "delete mnist"]


def test_a_timeout_removes_the_cluster_unless_it_is_kept(new: FakeBackend) -> None:
    new.first_phase = Phase.PENDING
    with pytest.raises(WaitTimeout):
        api.up(job_file(), local=True, timeout=0)
    assert new.calls == ["apply mnist", "delete mnist"]
    with pytest.raises(WaitTimeout):
        api.up(job_file(), local=True, timeout=0, keep=True)
    assert list(new.statuses) == ["mnist"]


def test_a_rejected_job_file_changes_nothing(new: FakeBackend) -> None:
    api.up(job_file(), local=True)
    with pytest.raises(InvalidInput):
        api.up(job_file("mnist", chief=9), local=True)
    assert list(new.statuses) == ["mnist"]


def test_up_without_a_timeout_does_not_wait(new: FakeBackend) -> None:
    new.first_phase = Phase.PENDING
    assert api.up(job_file(), local=True, timeout=None).status().phase is Phase.PENDING


def test_connect_keeps_the_cluster(new: FakeBackend) -> None:
    api.up(job_file(), local=True)
    with api.connect("mnist", local=True) as cluster:
        assert cluster.status().ready == 3
    assert list(new.statuses) == ["mnist"]
    with pytest.raises(NoSuchCluster):
        api.connect("nope", local=True)


@pytest.mark.parametrize(
    ("word", "is_file"),
    [("mnist", False), ("a/mnist", True), ("mnist.yaml", True), ("mnist.yml", True), ("x.json", True), ("here", True)],
)
def test_names_and_files(word: str, is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").touch()
    Path("folder").mkdir()
    assert api.names_file(word) is is_file
    assert not api.names_file("folder")
    assert api.names_file(Path("mnist"))
