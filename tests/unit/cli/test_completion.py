"""The words that a shell offers to complete a command line."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.command_line import Run
from job_files import job_file

from tfk8s.backends.local import record, state
from tfk8s.cli import completion
from tfk8s.core.status import ScriptPhase, ScriptStatus
from tfk8s.errors import BackendUnreachable
from tfk8s.testing import FakeBackend, use_backend

pytest_plugins = ("fakes.command_line",)

# Presses TAB at the end of a line → the words that the shell gets, then what the command printed on standard error.
Tab = Callable[[str], tuple[list[str], str]]


@pytest.fixture(scope="module")
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of two clusters, as the local backend leaves them on disk."""
    path = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(path))
        for cluster in (job_file("mnist"), job_file("toy", ps=1)):
            state.folder(cluster.name).create(record.make_record(cluster, "1d", exposed=False))
        yield path


@pytest.fixture
def remote() -> Iterator[FakeBackend]:
    """The backend of the Kubernetes context; `remote` and its script are there."""
    backend = FakeBackend(job_file("remote"))
    script = ScriptStatus(name="script-4e9c21", phase=ScriptPhase.RUNNING, command="train.py")
    status = dataclasses.replace(backend.statuses["remote"], scripts=(script,))
    backend.statuses["remote"] = status
    with use_backend(backend):
        yield backend


@pytest.fixture
def tab(run: Run, state_home: Path, monkeypatch: pytest.MonkeyPatch) -> Tab:
    monkeypatch.setitem(sys.modules, "rich", None)

    def tab(line: str, shell: str = "bash") -> tuple[list[str], str]:
        monkeypatch.setenv("_TFK8S_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        _, out, err = run()
        return out.rstrip("\n").split("\n") if out.strip() else [], err

    return tab


WORDS = [
    ("tfk8s s", ["schema", "submit", "stop", "status", "stacks", "scale", "suspend", "server"]),
    ("tfk8s --", ["--version", "--help"]),
    ("tfk8s status --local ", ["mnist", "toy"]),
    ("tfk8s status --local m", ["mnist"]),
    ("tfk8s status --l", ["--local"]),
    ("tfk8s status -o ", ["json"]),
    ("tfk8s status --local --context mnist ", []),
    ("tfk8s restart --local mnist ", ["chief/0", "worker/0", "worker/1"]),
    ("tfk8s logs --local --tail 5 mnist w", ["worker/0", "worker/1"]),
    ("tfk8s logs --local mnist worker/0 worker/", ["worker/0", "worker/1"]),
    ("tfk8s logs --local nope ", []),
    ("tfk8s stop --local mnist ", []),
    ("tfk8s submit --local --without ", ["chief/0", "ps/0", "worker/0", "worker/1"]),
    ("tfk8s submit --local mnist --without ", ["chief/0", "worker/0", "worker/1"]),
    ("tfk8s scale --local mnist ", ["chief=", "worker="]),
    ("tfk8s render nope.yaml --task ", []),
    ("tfk8s render x.yaml --format ", ["cluster-spec", "tf-config", "flags", "env", "podmonitor"]),
    ("tfk8s up ", []),
    ("tfk8s submit --local mnist ", []),
    ("tfk8s submit mnist --t", ["--tf1", "--trace", "--trace-every", "--timeout"]),
    ("tfk8s submit mnist train.py --t", []),
    ("tfk8s submit mnist -- --t", []),
    ("tfk8s completion ", ["bash", "zsh", "fish"]),
    ("tfk8s schema ", []),
    ("tfk8s image ", ["build", "load", "push"]),
    ("tfk8s image --", ["--help"]),
    ("tfk8s image build s", ["server"]),
    ("tfk8s image build --b", ["--base"]),
    ("tfk8s kind up --g", ["--gpus"]),
    ("tfk8s explain worker.gpus", ["worker.gpus", "worker.gpus_optional"]),
    ("tfk8s explain dr", ["drain"]),
    ("tfk8s exec -it --local mnist c", ["chief/0"]),
    ("tfk8s status --local -f m", ["mnist"]),
    ("tfk8s down --y", ["--yes"]),
    ("tfk8s delete m", []),
]


def test_words(tab: Tab) -> None:
    for line, words in WORDS:
        assert tab(line) == (words, ""), line


@pytest.mark.parametrize("given", ["elsewhere", ""])
def test_a_relative_folder_of_state_is_ignored(
    tab: Tab, state_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for home in (tmp_path / "home" / ".local" / "state", tmp_path / "elsewhere"):
        home.mkdir(parents=True)
    (tmp_path / "home" / ".local" / "state" / "tfk8s").symlink_to(state_home / "tfk8s")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", given)
    assert tab("tfk8s status --local m")[0] == ["mnist"]
    assert tab("tfk8s logs --local toy p")[0] == ["ps/0"]
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # this user has no home folder
    assert tab("tfk8s status --local m")[0] == []


REMOTE_WORDS = [
    ("tfk8s status ", ["mnist", "remote", "toy"]),
    ("tfk8s status -n team ", ["remote"]),
    ("tfk8s restart remote w", ["worker/0", "worker/1"]),
    ("tfk8s logs -n team mnist ", []),
    ("tfk8s logs remote ", ["chief/0", "worker/0", "worker/1", "script-4e9c21"]),
    ("tfk8s stop remote ", ["script-4e9c21"]),
]


def test_words_of_the_kubernetes_context(tab: Tab, remote: FakeBackend) -> None:
    for line, words in REMOTE_WORDS:
        assert tab(line) == (words, ""), line


def test_a_failing_api_server_adds_nothing(tab: Tab, remote: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def clusters() -> None:
        sys.stderr.write("a plugin's words")
        raise BackendUnreachable("no")

    monkeypatch.setattr(remote, "clusters", clusters)
    assert tab("tfk8s status ") == (["mnist", "toy"], "")


def test_a_silent_api_server_adds_nothing(tab: Tab, remote: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(remote, "clusters", answer.wait)
    monkeypatch.setattr(completion, "API_TIMEOUT", 0.01)
    assert tab("tfk8s status ") == (["mnist", "toy"], "")
    answer.set()


def test_tasks_of_a_job_file(tab: Tab, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("apiVersion: tfk8s.dev/v1\nname: toy\njobs: {worker: 2}\n")
    assert tab(f"tfk8s render {path} --task ") == (["worker/0", "worker/1"], "")


def test_contexts_of_the_kubeconfig(tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").write_text("contexts: [{name: kind-a}, {name: gke-b}]")
    (tmp_path / "other").write_text("contexts: []")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'one'}:{tmp_path / 'other'}:{tmp_path / 'none'}")
    assert tab("tfk8s status --context ") == (["kind-a", "gke-b"], "")
    (tmp_path / "one").write_text("contexts: [")
    assert tab("tfk8s status --context ") == ([], "")


def test_fish_shows_the_help(tab: Tab) -> None:
    assert tab("tfk8s rest", "fish")[0] == ["restart\tRestart a task, or all tasks."]


@pytest.mark.parametrize(("shell", "line"), [("zsh", "compdef _tfk8s_completion tfk8s"), ("fish", "complete_fish")])
def test_a_script_for_each_shell(run: Run, shell: str, line: str) -> None:
    code, out, _ = run("completion", shell)
    assert code == 0
    assert line in out


@pytest.mark.programs
def test_bash_takes_the_words(run: Run, state_home: Path, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tfk8s "$@"\n')
    program.chmod(0o755)
    _, script, _ = run("completion", "bash")
    line = f'COMP_WORDS=(tfk8s status m); COMP_CWORD=2; _tfk8s_completion {program}; printf "%s," "${{COMPREPLY[@]}}"'
    shown = subprocess.run(
        ["bash", "-c", f"{script}\n{line}"], cwd=Path(__file__).parents[3],
        env={"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(state_home), "TFK8S_LOCAL": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (shown.stdout, shown.stderr) == ("mnist,", "")
