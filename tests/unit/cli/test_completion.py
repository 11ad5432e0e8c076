"""What the shell may complete a command line with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.backend import Run, job_file

from tfk8s import __main__
from tfk8s.backends.local import record, state
from tfk8s.cli import completion, words

pytest_plugins = ("fakes.command_line",)


@pytest.fixture(autouse=True)
def _clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters, as the local backend leaves them on disk."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("mnist", "toy"):
        state.folder(name).create(record.make_record(job_file(name), exposed=False))


def found(line: str) -> list[str]:
    """Return the candidates for the end of a line."""
    table = json.loads(words.FILE.read_text())
    return [word for word, _ in completion.complete(line.split(" ")[1:], table)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tfk8s s", ["schema", "submit", "stop", "status", "scale", "server"]),
        ("tfk8s nope ", []),
        ("tfk8s status ", ["mnist", "toy"]),
        ("tfk8s status m", ["mnist"]),
        ("tfk8s status --l", ["--local"]),
        ("tfk8s status -o ", ["json"]),
        ("tfk8s status --context ", []),
        ("tfk8s status --context mnist t", ["toy"]),
        ("tfk8s restart mnist ", ["chief/0", "worker/0", "worker/1"]),
        ("tfk8s logs --tail 5 mnist w", ["worker/0", "worker/1"]),
        ("tfk8s logs mnist worker/0 worker/", ["worker/0", "worker/1"]),
        ("tfk8s logs nope ", []),
        ("tfk8s render x.yaml --format ", ["cluster-spec", "tf-config", "flags", "env"]),
        ("tfk8s up ", []),
        ("tfk8s submit mnist ", []),
        ("tfk8s submit mnist --t", ["--tf1", "--timeout"]),
        ("tfk8s submit mnist train.py --t", []),
        ("tfk8s submit mnist -- --t", []),
        ("tfk8s completion ", ["bash", "zsh", "fish"]),
        ("tfk8s schema ", []),
        ("tfk8s image ", ["build", "load", "push"]),
        ("tfk8s image --", ["--help"]),
        ("tfk8s image build s", ["server"]),
        ("tfk8s image build --b", ["--base"]),
        ("tfk8s kind up --g", ["--gpus"]),
    ],
)
def test_candidates(line: str, expected: list[str]) -> None:
    assert found(line) == expected


def test_they_come_with_their_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tfk8s", "__complete", "res"])
    assert __main__.main() == 0
    assert capsys.readouterr().out == "restart\tStart a task's server anew, or all of them.\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(run: Run, shell: str) -> None:
    code, out, _ = run("completion", shell)
    assert code == 0
    assert out == completion.SCRIPTS[shell] + "\n"


@pytest.mark.programs
def test_bash_takes_them(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "tfk8s"
    fake.write_text(
        "#!/bin/sh\n[ \"$1 $2 $3\" = '__complete status m' ] && printf 'mnist\\t\\nmore\\thelp of more\\n'\n"
    )
    fake.chmod(0o755)
    line = 'COMP_WORDS=(tfk8s status m); COMP_CWORD=2; _tfk8s; printf "%s," "${COMPREPLY[@]}"'
    shown = subprocess.run(
        ["bash", "-c", f"{completion.SCRIPTS['bash']}\n{line}"],
        env={"PATH": f"{fake.parent}:/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout == "mnist,more,"
