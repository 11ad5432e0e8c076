"""The GPUs of a program's task, which a child process compares; the child is real, and its devices are fake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tfk8s.task import gpus, server
from tfk8s.task.programs import runner, seen_gpus

pytestmark = [pytest.mark.programs, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]

TASK = {"TFK8S_JOB": "worker", "TFK8S_INDEX": "1", "TFK8S_GPUS": "2"}
REASON = "there is no NVIDIA driver"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "find_tensorflow", lambda: "/site-packages/tensorflow")
    monkeypatch.setattr(gpus, "why_unseen", lambda required, tensorflow, environment: REASON)


def refuse(_: str) -> int:
    raise RuntimeError("CUDA_ERROR_NO_DEVICE\nat 0x0")


def crash(_: str) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 2


def hang(_: str) -> int:
    signal.pause()
    return 2


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (lambda _: 2, ""),
        (lambda _: 3, ""),
        (lambda _: 1, f"1 of 2 GPUs: {REASON}"),
        (refuse, "0 of 2 GPUs: RuntimeError: CUDA_ERROR_NO_DEVICE at 0x0"),
        (crash, "0 of 2 GPUs: SIGKILL ended TensorFlow at its devices"),
        (hang, "0 of 2 GPUs: TensorFlow did not list its devices within 0.2 s"),
    ],
    ids=["all", "more", "fewer", "error", "crash", "silence"],
)
def test_the_line_of_the_log(count: Callable[[str], int], line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert seen_gpus.are_missing(TASK, count, 30.0 if count is not hang else 0.2) == bool(line)
    assert capfd.readouterr().err == f"tfk8s: worker/1 sees {line or '2 of 2 GPUs'}\n"


def test_devices_are_opened_in_another_process() -> None:
    opened: list[str] = []
    assert not seen_gpus.are_missing(TASK, lambda _: opened.append("here") or 2)  # type: ignore[func-returns-value]
    assert not opened


@pytest.mark.parametrize(("seen", "shown"), [(2, False), (0, True)])
def test_tensorflows_messages_are_shown_with_the_reason(
    seen: int, shown: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    def count(_: str) -> int:
        os.write(2, b"Could not find cuda drivers\n")
        return seen

    seen_gpus.are_missing(TASK, count)
    assert ("Could not find cuda drivers\n" in capfd.readouterr().err) == shown


def test_without_gpus_nothing_is_compared() -> None:
    assert not seen_gpus.are_missing({"TFK8S_JOB": "worker", "TFK8S_INDEX": "1"}, refuse)


def test_an_interpreter_without_tensorflow_compares_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "find_tensorflow", lambda: None)
    assert not seen_gpus.are_missing(TASK, refuse)
    line = f"tfk8s: {sys.executable} has no TensorFlow, so nothing compares the 2 GPUs of worker/1"
    assert capfd.readouterr().err == f"{line}\n"
    assert gpus.parse_line(line) == (2, 2, "")


def test_a_script_begins_only_with_its_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TASK.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(seen_gpus, "count_gpus", refuse)
    monkeypatch.setattr(runner, "run", lambda words: 0)
    assert runner.main([str(tmp_path / "train.py")]) == 2


@pytest.mark.parametrize(("required", "code"), [("0", 3), ("1", 2)])
def test_a_command_begins_only_with_its_gpus(tmp_path: Path, required: str, code: int) -> None:
    (tmp_path / "tensorflow").mkdir()  # a TensorFlow without GPUs, and without its C library
    text = "from types import SimpleNamespace as N\nconfig = N(list_physical_devices=lambda kind: [])\n"
    (tmp_path / "tensorflow/__init__.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", seen_gpus.__name__, "sh", "-c", "exit 3"],
        env={**os.environ, **TASK, "TFK8S_GPUS": required, "PYTHONPATH": path}, check=False, capture_output=True,
    )  # fmt: skip
    assert done.returncode == code
    assert (b"tfk8s: worker/1 sees 0 of 1 GPUs: " in done.stderr) == (code == 2)
