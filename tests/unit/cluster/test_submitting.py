"""Scripts that Python code submits: the options of the command line, and scripts that run without the caller."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job_files import job_file

import tfk8s
from tfk8s.core.script import Script
from tfk8s.core.status import ClusterStatus, ScriptPhase, ScriptStatus
from tfk8s.errors import ClusterError, InvalidInput, WaitTimeout
from tfk8s.testing import FakeBackend, use_backend

NAME = "script-4e9c21"


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    """The backend that every call uses, with the cluster `mnist`."""
    with use_backend(FakeBackend(job_file())) as backend:
        yield backend


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """A script."""
    path = tmp_path / "train.py"
    path.touch()
    return path


def in_phase(status: ClusterStatus, phase: ScriptPhase, code: int | None = None, reason: str = "") -> ClusterStatus:
    script = ScriptStatus(name=NAME, phase=phase, command="train.py", exit_code=code, reason=reason)
    return dataclasses.replace(status, scripts=(script,))


def test_options_reach_the_script(backend: FakeBackend, train: Path) -> None:
    seen: list[Script] = []
    backend.on_run = seen.append
    backend.exit_code = 3
    cluster = tfk8s.connect("mnist", local=True)
    assert cluster.submit(train, "--steps", "5", tf1=True, without=["worker/1"], retries=2) == 3
    (script,) = seen
    assert (script.arguments, script.tf1) == (("--steps", "5"), True)
    assert script.environment["TFK8S_WITHOUT"] == "worker/1"


def test_a_detached_script_is_a_run(backend: FakeBackend, train: Path) -> None:
    run = tfk8s.connect("mnist", local=True).submit(train, detach=True)
    assert isinstance(run, tfk8s.Run)
    assert repr(run) == f"<tfk8s.Run '{NAME}' of cluster 'mnist'>"
    backend.updates = [
        lambda status: in_phase(status, ScriptPhase.RUNNING), lambda status: in_phase(status, ScriptPhase.FAILED, 3),
    ]  # fmt: skip
    assert run.wait(5.0) == 3
    assert list(run.logs()) == [f"{NAME} runs"]
    run.stop()
    assert backend.calls[-1] == f"stop mnist {NAME}"


def test_the_result_of_a_run(backend: FakeBackend, train: Path) -> None:
    run = tfk8s.connect("mnist", local=True).submit(train, detach=True)
    backend.updates = [lambda status: in_phase(status, ScriptPhase.SUCCEEDED, 0)]
    assert run.result().exit_code == 0
    backend.updates = [lambda status: in_phase(status, ScriptPhase.FAILED, 137, "killed by SIGKILL")]
    with pytest.raises(ClusterError, match=f"^script {NAME} failed with exit code 137: killed by SIGKILL$"):
        run.result()


def test_a_run_that_goes_on_and_one_that_is_gone(backend: FakeBackend, train: Path) -> None:
    run = tfk8s.connect("mnist", local=True).submit(train, detach=True)
    with pytest.raises(InvalidInput, match=f'^cluster "mnist" has no script "{NAME}"$'):
        run.wait()
    backend.updates = [lambda status: in_phase(status, ScriptPhase.RUNNING)]
    with pytest.raises(WaitTimeout, match=f"script {NAME} to end"):
        run.wait(0.01)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"detach": True, "get": ["model"]}, "--get can't be combined with --detach"),
        ({"detach": True, "trace": "steps.html"}, "--trace can't be combined with --detach"),
        ({"detach": True, "here": True}, "--here can't be combined with --detach"),
        ({"detach": True, "retries": 1}, "--retries can't be combined with --here or --detach"),
        ({"here": True, "retries": 1}, "--retries can't be combined with --here or --detach"),
        ({"trace_every": 5}, "--trace-every needs --trace"),
        ({"trace": "steps.txt"}, "the page needs a name that ends in .html"),
    ],
)
def test_options_that_do_not_belong_together(
    backend: FakeBackend, train: Path, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(InvalidInput, match=error):
        tfk8s.connect("mnist", local=True).submit(train, **options)
    assert backend.calls == []


def test_commands_beside_tasks(backend: FakeBackend, tmp_path: Path) -> None:
    cluster = tfk8s.connect("mnist", local=True)
    assert cluster.exec("worker/1", "nproc", "--all") == 0
    cluster.cp("worker/0:/ckpt/model", tmp_path / "model")
    assert [stacks.name for stacks in cluster.stacks(["worker"])] == ["worker/0", "worker/1"]
    assert backend.calls[0] == "execute mnist worker/1 nproc --all"
    with pytest.raises(InvalidInput, match='there is no task "ps/7"'):
        cluster.exec("ps/7", "nproc")


def test_clusters_and_their_history(backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert [status.name for status in tfk8s.ls(local=True)] == ["mnist"]
    assert tfk8s.history("mnist") == []
    changed = job_file("mnist", ps=1)
    assert [change.action for change in tfk8s.diff(changed, local=True).changes] == ["change"]
    assert not tfk8s.diff(job_file(), local=True)
