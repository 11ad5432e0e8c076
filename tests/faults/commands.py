"""tfk8s as a user starts it, watched: what it says, and how long after the fault it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tfk8s import waiting

PATIENCE = 60.0  # for what has to come about before a fault; the limits of a verdict are the table's


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        seconds: after the fault.
        code: its exit code; 128 and more for a signal that it did not handle.
        out, err: what it wrote.
    """

    seconds: float
    code: int
    out: str
    err: str


class Command:
    """A process with its streams in files.

    Args:
        words: the arguments of tfk8s, or a whole command with `program=True`.
    """

    def __init__(self, *words: object, program: bool = False, **environment: str) -> None:
        self._files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - until `close`
        first = () if program else (sys.executable, "-m", "tfk8s")
        self.process = subprocess.Popen(
            [str(word) for word in (*first, *words)],
            stdin=subprocess.PIPE, stdout=self._files[0], stderr=self._files[1], env={**os.environ, **environment},
        )  # fmt: skip
        self.fault = time.monotonic()

    @property
    def out(self) -> str:
        return self._said(0)

    @property
    def err(self) -> str:
        return self._said(1)

    def _said(self, number: int) -> str:
        return os.pread(self._files[number].fileno(), 1 << 20, 0).decode(errors="replace")

    def until_says(self, words: str) -> None:
        """Wait until it has said something."""

        def look() -> bool:
            if words in self.out + self.err:
                return True
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.out}{self.err}"
            return False

        waiting.wait_until(look, lambda: f"“{words}”, and saw {self.out}{self.err}", PATIENCE)

    def now(self) -> None:
        """The fault is here."""
        self.fault = time.monotonic()

    def send(self, number: int) -> None:
        """Send it a signal, which is the fault."""
        self.now()
        self.process.send_signal(number)

    def go_on(self) -> None:
        """Have its script go on."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()

    def end(self, limit: float) -> Ended:
        """Return how it ended; a command that does not end within `limit` seconds of the fault is killed."""
        try:
            code = self.process.wait(max(0.1, self.fault + limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"no verdict within {limit} s: {self.out}{self.err}") from None
        seconds = time.monotonic() - self.fault
        return Ended(seconds, code if code >= 0 else 128 - code, self.out, self.err)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        for file in self._files:
            file.close()


def cpu_ticks(pid: int) -> int:
    """Return how much processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
