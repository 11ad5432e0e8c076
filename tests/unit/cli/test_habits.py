"""What users of kubectl write by habit, and commands without a job file."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest
from fakes.command_line import Run

from tfk8s.cli import lifecycle
from tfk8s.jobfile.schema import JOB, JOB_FILE
from tfk8s.testing import FakeBackend
from tfk8s.version import __version__

pytest_plugins = ("fakes.command_line",)

pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize(
    ("habit", "same"),
    [
        ("up -f new.yaml", "up new.yaml"),
        ("up --filename new.yaml --local", "up new.yaml --local"),
        ("status -f mnist.yaml", "status mnist.yaml"),
        ("down -f mnist.yaml", "down mnist.yaml"),
        ("run -f mnist.yaml train.py -f", "run mnist.yaml train.py -f"),
        ("exec -it mnist ps/0 -- ls -it", "exec mnist ps/0 -- ls -it"),
        ("exec mnist worker/0 -i -t -- bash -i", "exec mnist worker/0 -- bash -i"),
        ("exec --stdin mnist worker/0 bash -i", "exec mnist worker/0 -- bash -i"),
        ("ls -A", "ls"),
    ],
)
def test_options_of_kubectl_change_nothing(run: Run, backend: FakeBackend, habit: str, same: str) -> None:
    results = []
    for line in (habit, same):
        results.append((run(*line.split()), list(backend.calls)))
        backend.calls.clear()
        if "new" in backend.statuses:
            backend.delete("new")
            backend.calls.clear()
    assert results[0][1] == results[1][1]
    assert "No such option" not in results[0][0][2]


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("delete mnist -n team", "tfk8s down mnist -n team"),
        ("describe mnist", "tfk8s status mnist"),
        ("apply -f mnist.yaml", "tfk8s up -f mnist.yaml"),
    ],
)
def test_commands_of_kubectl_lead_to_those_of_tfk8s(run: Run, backend: FakeBackend, line: str, advice: str) -> None:
    code, out, err = run(*line.split())
    assert (code, out) == (2, "")
    assert err == f'error: tfk8s has no command "{line.split()[0]}"\n  = help: {advice}\n'
    assert backend.calls == []


def test_the_version_is_a_command(run: Run) -> None:
    assert run("version") == run("--version") == (0, f"tfk8s {__version__}\n", "")


def test_commands_without_a_file_take_the_one_of_this_folder(run: Run, backend: FakeBackend, folder: Path) -> None:
    for command in ("up", "validate", "diff", "status", "down"):
        code, _, err = run(command)
        assert (code, err.splitlines()[0]) == (2, 'error: no job file is named, and this folder has no "cluster.yaml"')
    shutil.copy(folder / "new.yaml", folder / "cluster.yaml")
    assert run("validate")[1].startswith('cluster.yaml is valid: cluster "new"')
    assert run("diff")[1] == "+ cluster new\n"
    assert run("up")[1] == 'cluster "new" is up\n'
    assert run("status")[1].splitlines()[1].startswith("new ")


@pytest.mark.parametrize(
    ("text", "is_removed"), [("y\n", True), ("YES\n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_down_without_a_name_asks(
    run: Run, backend: FakeBackend, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_removed: bool
) -> None:
    shutil.copy(folder / "mnist.yaml", folder / "cluster.yaml")
    monkeypatch.setattr(lifecycle, "can_ask", lambda: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    code, _, err = run("down")
    assert err.startswith('remove cluster "mnist" of cluster.yaml (this machine)? [y/N] ')
    assert (code, "mnist" in backend.statuses) == ((0, False) if is_removed else (2, True))


def test_down_without_a_name_and_without_a_terminal_needs_yes(run: Run, backend: FakeBackend, folder: Path) -> None:
    shutil.copy(folder / "mnist.yaml", folder / "cluster.yaml")
    code, _, err = run("down")
    assert (code, "mnist" in backend.statuses) == (2, True)
    assert err == (
        'error: this would remove cluster "mnist" of cluster.yaml (this machine), and there is no terminal to ask at\n'
        "  = help: tfk8s down --yes, or name the cluster: tfk8s down --local mnist\n"
    )
    assert run("down", "--yes") == (0, 'cluster "mnist" is down\n', "")


# ---- explain -------------------------------------------------------------------------------------------------------


def test_explain_describes_a_field_of_a_job(run: Run) -> None:
    text = (
        "FIELD: jobs.worker.gpus <whole number>\n\n"
        "DESCRIPTION:\n    The number of GPUs of a task.\n    Default: 0\n    Example: gpus: 1\n"
    )
    assert run("explain", "worker.gpus") == run("explain", "jobs.worker.gpus") == (0, text, "")


def test_explain_lists_the_fields_below(run: Run) -> None:
    for path, fields in (("", JOB_FILE.keys), ("jobs", JOB.keys), ("worker", JOB.keys), ("worker.topology", ("pack",))):
        lines = run("explain", *filter(None, [path]))[1].splitlines()
        assert {f"  {name} <" for name in fields} <= {line.partition("<")[0] + "<" for line in lines}


def test_explain_finds_every_field(run: Run) -> None:
    for path in [*JOB_FILE.keys, *(f"jobs.worker.{name}" for name in JOB.keys), "network.allow_to.cidr"]:
        code, out, _ = run("explain", path)
        assert (code, out.split()[1]) == (0, path), path
        assert "DESCRIPTION:\n    " in out, path


def test_explain_of_an_unknown_field(run: Run) -> None:
    code, out, err = run("explain", "worker.gpu")
    assert (code, out) == (2, "")
    assert err == (
        'error: "jobs.worker" has no field "gpu"\n'
        "  = help: did you mean gpus? `tfk8s explain jobs.worker` lists the fields\n"
    )
    assert 'has no field "x"' in run("explain", "worker.gpus.x")[2]
