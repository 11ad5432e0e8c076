"""A process of tfk8s with its output, and the time from a fault to its end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from tfk8s import polling

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
        terminal: its standard input is a terminal that it controls.
    """

    def __init__(self, *words: object, program: bool = False, terminal: bool = False, **variables: str) -> None:
        self._files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115 - until `close`
        first = () if program else (sys.executable, "-m", "tfk8s")
        theirs, self._input = reversed(pty.openpty()) if terminal else os.pipe()
        self.process = subprocess.Popen(
            [str(word) for word in (*first, *words)],
            stdin=theirs, stdout=self._files[0], stderr=self._files[1], env={**os.environ, **variables},
            start_new_session=terminal, preexec_fn=_take_terminal if terminal else None,
        )  # fmt: skip
        os.close(theirs)
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
        """Wait until the command has printed `words`."""

        def look() -> bool:
            ended = self.process.poll()  # before what it has said, which it may say as it ends
            if words in self.out + self.err:
                return True
            assert ended is None, f"ended with {ended}: {self.out}{self.err}"
            return False

        polling.wait_until(look, lambda: f"“{words}”, and saw {self.out}{self.err}", 2 * PATIENCE)

    def now(self) -> None:
        """Note that the fault begins now."""
        self.fault = time.monotonic()

    def send(self, number: int) -> None:
        """Send the command a signal, which is the fault."""
        self.now()
        self.process.send_signal(number)

    def go_on(self) -> None:
        """Let the script of the command continue."""
        with contextlib.suppress(OSError):  # it has ended
            os.write(self._input, b"\n")

    def hang_up(self) -> None:
        """Close the command's terminal or standard input, which is the fault."""
        self.now()
        os.close(self._input)
        self._input = -1

    def end(self, limit: float) -> Ended:
        """Return how the command ended; kill a command that takes more than `limit` seconds after the fault."""
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
        if self._input >= 0:
            os.close(self._input)
        for file in self._files:
            file.close()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def cpu_ticks(pid: int) -> int:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
