"""Runs the command line in this process, on the fake backend."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job_files import job_file

from tfk8s import __main__
from tfk8s.backends.local.supervision import supervisor_process
from tfk8s.cli import output, signals
from tfk8s.log import log
from tfk8s.testing import FakeBackend, use_backend

# Runs the command line: arguments → exit code, standard output, standard error.
Run = Callable[..., tuple[int, str, str]]

NOW = 1_700_000_312.0  # 5m12s after testing.CREATED

JOB_FILE = """\
apiVersion: tfk8s.dev/v1
name: mnist
jobs: {chief: 1, worker: 2}
"""


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    """The backend that every command uses, with the cluster `mnist`."""
    with use_backend(FakeBackend(job_file())) as backend:
        yield backend


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: mnist.yaml, new.yaml (not started) and train.py are in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist.yaml").write_text(JOB_FILE)
    (tmp_path / "new.yaml").write_text(JOB_FILE.replace("mnist", "new"))
    (tmp_path / "train.py").touch()
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs `tfk8s` with arguments."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("TFK8S_LOCAL", raising=False)
    monkeypatch.delenv("TFK8S_DEBUG", raising=False)
    monkeypatch.setattr(supervisor_process, "started_early", contextlib.nullcontext)
    monkeypatch.setattr(output.time, "time", lambda: NOW)
    monkeypatch.setattr(log, "handlers", [])
    before = {number: signal.getsignal(number) for number in signals.ENDING}

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            monkeypatch.setattr(sys, "argv", ["tfk8s", *arguments])
            code = __main__.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        out, err = capsys.readouterr()
        return code, out, err

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)
