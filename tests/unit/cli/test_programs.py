"""Programs of a job file: run without a script, wait, and commands that need servers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes.command_line import Run

from tfk8s.backends.kubernetes import parts
from tfk8s.backends.kubernetes.scripts import sent_folder
from tfk8s.cluster import readiness
from tfk8s.core.script import LogLine
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase
from tfk8s.jobfile.loader import load
from tfk8s.testing import FakeBackend, change, use_backend

pytest_plugins = ("fakes.command_line",)

TEXT = """
apiVersion: tfk8s.dev/v1
name: train
jobs:
  worker: {tasks: 2, program: [train.py]}
"""
SERVERS = "{apiVersion: tfk8s.dev/v1, name: served, jobs: {worker: 1}}"
NO_SERVERS = (
    'error: cluster "train" has no server to connect to: its tasks run programs\n'
    "  = help: tfk8s logs --local train shows the output of the programs\n"
)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "train.yaml"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
def served(tmp_path: Path) -> str:
    path = tmp_path / "served.yaml"
    path.write_text(SERVERS)
    return str(path)


def test_run_prints_the_output_and_removes_the_cluster(run: Run, backend: FakeBackend, file: str) -> None:
    code, out, errors = run("run", file)
    assert (code, out) == (0, "worker/0 | worker/0 listens\nworker/1 | worker/1 listens\n")
    assert errors.endswith('the run of cluster "train" has succeeded\n')
    assert backend.calls == ["apply train", "logs train worker/0 worker/1 follow=True tail=None", "delete train"]


def test_run_copies_what_programs_leave(
    run: Run, backend: FakeBackend, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, errors = run("run", "--get", "model", "--get", "worker/1:/tmp/log:log1", file)
    assert (code, backend.calls) == (0, [
        "copy files of train worker/0 worker/1", "apply train",
        "logs train worker/0 worker/1 follow=True tail=None", "delete train", "end copies of train",
    ]), errors  # fmt: skip
    code, _, errors = run("run", "--get", "none:here", file)
    assert code == 1
    assert errors.endswith('error: the run succeeded, but worker/0: "none" was not copied\n')
    backend.exit_code = 3
    code, _, errors = run("run", "--get", "none:here", file)
    assert code == 3
    assert 'tfk8s: worker/0: "none" was not copied\n' in errors


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--get", "worker/2:model"], 'there is no task "worker/2"; there are worker/0 to worker/1'),
        (["--get", "worker/0:"], '--get "worker/0:" names no file'),
        (["--get", "worker/0"], '--get "worker/0" names no file'),
        (["--get", "worker/-1:a"], '"worker/-1" is not a task'),
        (["--get", "ps/0:model"], '--get "ps/0:model": the job file has no job "ps"\n  = help: write ./ps/0:model if'),
        (["--get", "worker/0:a:b", "--get", "worker/1:c:b"], "another --get copies to"),
        (["--get", "model", "--keep"], "--keep can't be combined with --get of programs"),
    ],
)
def test_files_that_can_not_be_copied_are_refused_before_the_start(
    run: Run, backend: FakeBackend, file: str, words: list[str], error: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    code, _, errors = run("run", *words, file)
    assert code == 2
    assert error in errors
    assert backend.calls == []


def test_run_copies_files_of_its_own_clusters_alone(
    run: Run, backend: FakeBackend, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("up", file)[0] == 0
    monkeypatch.setattr(backend.files, "environment", {"worker": {"TFK8S_DOWNLOADS": "{}"}})
    code, _, errors = run("run", "--get", "model", file)
    assert (code, errors) == (2, (
        'error: cluster "train" exists, and its programs end without waiting for a copy of their files\n'
        "  = help: tfk8s down --local train removes the cluster; or copy files of running tasks with tfk8s cp\n"
    ))  # fmt: skip


def test_a_task_without_a_program_leaves_no_files(
    run: Run, backend: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mixed.yaml"
    path.write_text(TEXT.replace("jobs:", "jobs:\n  master: 1"))
    code, _, errors = run("run", "--get", "a:b", str(path))
    assert (code, backend.calls) == (2, [])
    assert errors.splitlines()[:2] == [
        'error: --get "a:b": master/0 has no program',
        "  = help: name a task that has one, for example --get worker/0:a",
    ]


@pytest.mark.parametrize("option", ["", "--all"])
def test_run_leaves_out_what_tensorflow_writes_for_itself(
    run: Run, backend: FakeBackend, file: str, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    own = "W0000 00:00:1795579734.3  12037 dataset.cc:997] not optimized"
    lines = [LogLine(task=Task("worker", 0), text=text) for text in (own, "loss 0.5")]
    monkeypatch.setattr(backend, "logs", lambda *_: iter(lines))
    code, out, errors = run("run", *filter(None, [option]), file)
    assert (code, own in out, "loss 0.5" in out) == (0, bool(option), True)
    assert ("1 line of TensorFlow's own log left out: --all prints them\n" in errors) is not bool(option)


def test_run_returns_the_exit_code_of_the_program_that_failed(run: Run, backend: FakeBackend, file: str) -> None:
    backend.exit_code = 7
    code, _, errors = run("run", file)
    assert code == 7
    assert errors.endswith("error: worker/0 exited with 7\n")
    assert backend.calls[-1] == "delete train"


def test_run_waits_longer_than_the_default_for_a_pull(
    run: Run, backend: FakeBackend, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "TIMEOUT", 0.01)
    pulling = change("worker/0", phase=Phase.PENDING, is_pulling=True, exit_code=None)
    ended = change("worker/0", phase=Phase.SUCCEEDED, is_pulling=False, exit_code=0)
    backend.updates = [*[pulling] * 20, ended]
    code, _, errors = run("run", "--timeout", "0.01s", file)
    assert code == 0, errors
    assert backend.updates == []


def test_run_keeps_the_cluster(run: Run, backend: FakeBackend, file: str) -> None:
    assert run("run", "--keep", file)[0] == 0
    assert backend.statuses["train"].phase is Phase.SUCCEEDED


def test_run_does_not_take_an_old_end_for_its_own(run: Run, backend: FakeBackend, file: str) -> None:
    backend.apply(load(file))
    assert run("run", file) == (2, "", (
        "worker/0  Succeeded  pid 101\n"
        "worker/1  Succeeded  pid 102\n"
        'cluster "train" already runs: run uses it and keeps it\n'
        'error: the run of cluster "train" has ended before, with exit code 0\n'
        "  = help: tfk8s restart --local train runs the programs again\n"
    ))  # fmt: skip


def test_run_needs_a_program_or_a_script(run: Run, backend: FakeBackend, served: str) -> None:
    assert run("run", served) == (2, "", (
        'error: the job file "served" has no programs\n'
        "  = help: name a session script: tfk8s run FILE SCRIPT; or add a program to a job\n"
    ))  # fmt: skip
    assert backend.calls == []


def test_run_of_a_script_needs_servers(run: Run, backend: FakeBackend, file: str) -> None:
    assert run("run", file, __file__) == (2, "", (
        'error: the job file "train" has no servers for a session script: its jobs run programs\n'
        "  = help: leave out SCRIPT: tfk8s run FILE\n"
    ))  # fmt: skip
    assert backend.calls == []


def test_options_of_a_script_need_the_script(run: Run, file: str) -> None:
    flags = "--tf1, --fresh, --isolate, --on-master, --requirements, --gpus, --cpu, --memory and --trace"
    assert run("run", "--tf1", file) == (2, "", f"error: {flags} need a SCRIPT\n")


def test_the_size_of_the_folder_is_checked_before_anything_starts(
    run: Run, backend: FakeBackend, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_folder, "MAX_BYTES", 10)
    monkeypatch.setattr(backend, "check", parts.PodScripts(None, None, "").check)
    script = tmp_path / "folder" / "train.py"
    script.parent.mkdir()
    script.write_text("print('large')")
    code, _, err = run("run", served, str(script))
    assert (code, backend.calls) == (2, [])
    assert f'the folder "{script.parent}" has more than 0 MB, and is copied with its script' in err


def test_up_advises_to_wait(run: Run, backend: FakeBackend, file: str) -> None:
    code, out, errors = run("up", file)
    assert (code, out) == (0, 'cluster "train" is up\n')
    assert errors.endswith("wait for its programs: tfk8s wait --local train\n")


def test_up_reports_a_program_that_has_failed(run: Run, backend: FakeBackend, file: str) -> None:
    backend.exit_code = 3
    code, _, errors = run("up", file)
    assert code == 1
    assert errors.endswith(
        'error: the run of cluster "train" has failed: worker/0 exited with 3\n'
        "  = help: tfk8s logs --local train shows the output of the programs\n"
    )


def test_wait_shows_changes_until_the_end(run: Run, backend: FakeBackend, file: str) -> None:
    with use_backend(FakeBackend(load(file), phase=Phase.RUNNING)) as backend:
        backend.updates = [
            lambda status: status,
            change("worker/0", phase=Phase.SUCCEEDED, exit_code=0),
            change("worker/1", phase=Phase.FAILED, exit_code=137, reason="killed by SIGKILL", runs_on=""),
        ]
        assert run("wait", "train") == (137, "", (
            "worker/0  Succeeded  pid 101\n"
            "worker/1  Failed    killed by SIGKILL\n"
            "error: worker/1 killed by SIGKILL\n"
            "  = help: tfk8s logs --local train shows the output of the programs\n"
        ))  # fmt: skip
        assert backend.calls == []


def test_wait_has_a_limit(run: Run, file: str) -> None:
    with use_backend(FakeBackend(load(file), phase=Phase.RUNNING)):
        assert run("wait", "--timeout", "0s", "train") == (124, "", (
            'error: waited 0 s for the programs of cluster "train" to end: worker/0 to worker/1 are running\n'
        ))  # fmt: skip


def test_wait_needs_programs(run: Run, served: str) -> None:
    with use_backend(FakeBackend(load(served))):
        assert run("wait", "served") == (2, "", (
            'error: cluster "served" has no programs to wait for: its tasks are servers\n'
            "  = help: tfk8s submit runs a script in it\n"
        ))  # fmt: skip


def test_wait_ends_with_the_cluster(run: Run, file: str) -> None:
    with use_backend(FakeBackend(load(file), phase=Phase.RUNNING)) as backend:
        backend.updates = [lambda status: replace(status, reason="its supervisor is gone")]
        assert run("wait", "train") == (1, "", "error: its supervisor is gone\n")


@pytest.mark.parametrize("words", [["submit", "train", __file__], ["connect", "train"], ["devices", "train"]])
def test_commands_that_need_a_server(run: Run, file: str, words: list[str]) -> None:
    with use_backend(FakeBackend(load(file), phase=Phase.RUNNING)):
        assert run(*words) == (2, "", NO_SERVERS)


def test_status_of_programs(run: Run, file: str) -> None:
    with use_backend(FakeBackend(load(file), phase=Phase.RUNNING)):
        lines = [line.split() for line in run("status", "train")[1].splitlines()]
    assert lines[1][:4] == ["train", "Running", "2/2", "worker/0"]
    assert [line[:2] for line in lines[-2:]] == [["worker/0", "Running"], ["worker/1", "Running"]]
