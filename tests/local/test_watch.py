"""`submit --watch`: a script runs again after a change, and its own files start nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import IO

from clusters import children, start_tfk8s, wait_until_gone

SCRIPT = """
import pathlib, sys, time
pathlib.Path("metrics.json").write_text("written by the script")
print({}, sys.argv[1:], flush=True)
time.sleep({})
"""


def lines_until(stream: IO[str] | None, line: str) -> list[str]:
    """Return the lines of a stream up to a line, which is among them."""
    assert stream is not None
    seen: list[str] = []
    for text in stream:
        seen.append(text.rstrip())
        if seen[-1] == line:
            return seen
    raise AssertionError(seen)


def test_a_change_runs_the_script_again(pair: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(1, 0))
    with start_tfk8s("submit", "--watch", "--local", pair, "train.py", "--watch", cwd=tmp_path) as command:
        waiting = f'waiting for a change in "{tmp_path}"; Ctrl-C ends this command'
        killer = threading.Timer(120, command.kill)
        killer.start()
        try:
            assert lines_until(command.stdout, "1 ['--watch']") == ["1 ['--watch']"]
            assert lines_until(command.stderr, waiting) == [waiting]
            (tmp_path / "data.txt").touch()
            os.utime(tmp_path / "data.txt", (time.time() + 1, time.time() + 1))  # surely later than the script's end
            assert lines_until(command.stderr, waiting) == ["changed: data.txt", waiting]
            script.write_text(SCRIPT.format(2, 1000))
            assert lines_until(command.stdout, "2 ['--watch']") == ["1 ['--watch']", "2 ['--watch']"]
            script.write_text(SCRIPT.format(3, 1000))  # ends the script that runs
            assert lines_until(command.stdout, "3 ['--watch']") == ["3 ['--watch']"]
            (submit,) = children(command.pid)
            command.send_signal(signal.SIGINT)
            _, errors = command.communicate(timeout=60)
            assert command.returncode == 130
            assert "metrics.json" not in errors
            wait_until_gone(submit)
        finally:
            killer.cancel()
            command.kill()
