"""Commands that run at the same time, one for each task: their output, their failures, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tfk8s import polling
from tfk8s.cluster import each
from tfk8s.core.spec import Task

CHIEF, WORKER = Task("worker", 0), Task("worker", 1)
HANGS = "import time; print('up', flush=True); time.sleep(60)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {HANGS}"
LEAVES_CHILD = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"


def python(text: str) -> list[str]:
    ready = "import signal; signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))"
    return [sys.executable, "-c", f"{ready}\n{text}"]


def run(chief: str, worker: str, limit: float = 15.0) -> tuple[int, set[tuple[str, str, bool]]]:
    """Return the exit code, and the lines with their tasks and whether they are error lines."""
    lines = set()

    def collect(task: Task, text: str, is_error: bool) -> None:
        lines.add((str(task), text, is_error))

    return each.run_together({CHIEF: python(chief), WORKER: python(worker)}, collect, limit), lines


def test_the_lines_of_all_and_their_success() -> None:
    text = "import sys; print('a\\nb', end=''); print('c', file=sys.stderr)"
    code, lines = run(text, LEAVES_CHILD)
    child = next(text for task, text, _ in lines if task == "worker/1")
    os.kill(int(child), signal.SIGKILL)
    assert (code, lines) == (
        0, {("worker/0", "a", False), ("worker/0", "b", False), ("worker/0", "c", True), ("worker/1", child, False)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fails", "code"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 6)", 134)], ids=["code", "signal"]
)
def test_the_first_failure_ends_the_others(fails: str, code: int, caplog: pytest.LogCaptureFixture) -> None:
    assert run(HANGS, fails)[0] == code
    assert caplog.messages == [f"the script of worker/1 has ended with exit code {code}, which ends the others"]


def test_a_command_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    started = "import sys, time; time.sleep(0.5); sys.exit(3)"
    assert run(DEAF, started, limit=0.1)[0] == 3
    assert caplog.messages[-1] == "waiting for the scripts of worker/0 to end, at most 0.1 s"


def test_ctrl_c_ends_all() -> None:
    lines = []

    def interrupt(task: Task, text: str, is_error: bool) -> None:
        lines.append((text, is_error))
        if lines == [("up", False)] * 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        each.run_together({CHIEF: python(HANGS), WORKER: python(HANGS)}, interrupt, 15.0)
    assert lines[-1] == ("KeyboardInterrupt", True)
