"""`tfk8s.progress()`: the steps of a program or a script, for its user.

The line goes to standard error: in place on a terminal, else every ten seconds. So `tfk8s submit`, `tfk8s run`,
`tfk8s logs` and `kubectl logs` show the line without help. On this machine, the line also goes to the file that
`TFK8S_PROGRESS` names, which `tfk8s status` reads. On Kubernetes, `tfk8s status` reads the pod's log: pods have no
right to write to their objects.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from tfk8s.core.progress import PREFIX, StepProgress, metric_text

WRITE_INTERVAL = 0.5  # between two writes of the file, or to a terminal
LINE_INTERVAL = 10.0  # between two lines of a log
FIRST_LINE_DELAY = 1.0  # after which a rate is known
_MAX_POINTS = 60  # of which the rate is the mean


def progress(step: int, total: int | None = None, **metrics: object) -> None:
    """Show the progress of this program or script.

    Call this function in each step. Nearly all calls only look at the clock, and read no metric. `tfk8s status` and
    `tfk8s ls` show the last call, standard error shows a line. Without tfk8s, only standard error does.

    Args:
        step: the number of steps that are done. The call with `step` equal to `total` is always shown.
        total: the number of all steps.
        **metrics: what else to show, such as `loss=loss`: numbers, texts, or anything that `float` accepts.

    Raises:
        ValueError: `step` or `total` is no whole number.
    """
    global _meter
    if _meter is None:
        _meter = Meter(sys.stderr, os.environ)
        atexit.register(_meter.close)
    _meter.report(step, total, metrics)


class Meter:
    """Measures the rate of steps, and writes lines.

    Args:
        stream: standard error.
        environment: the variables of this process.
        clock: returns a time in seconds.
    """

    def __init__(
        self, stream: TextIO, environment: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._clock = stream, clock
        self._path = environment.get("TFK8S_PROGRESS", "")
        self._is_terminal = stream.isatty() and environment.get("TERM", "dumb") not in ("dumb", "unknown")
        self._points: deque[tuple[float, int]] = deque(maxlen=_MAX_POINTS)
        self._next_write = self._next_line = clock()
        if not self._is_terminal:
            self._next_line += FIRST_LINE_DELAY
        self._last: tuple[int, int | None] | None = None
        self._is_open = False  # whether the terminal's line has no end yet

    def report(self, step: int, total: int | None, metrics: Mapping[str, object]) -> None:
        """Write the progress if it is time, or if the last step is done."""
        now = self._clock()
        step, total = _whole("step", step), None if total is None else _whole("total", total)
        is_last = step == total
        if now < self._next_write and not is_last:
            return
        if is_last and self._last == (step, total):
            return
        self._last, self._next_write = (step, total), now + WRITE_INTERVAL
        texts = {name: metric_text(value) for name, value in metrics.items()}
        line = PREFIX + str(StepProgress(step=step, total=total, rate=self._rate(now, step), metrics=texts))
        self._write_file(line)
        if now >= self._next_line or is_last:
            self._next_line = now + (WRITE_INTERVAL if self._is_terminal else LINE_INTERVAL)
            self._show(line, is_last)

    def _rate(self, now: float, step: int) -> float | None:
        """Return the steps in a second since the oldest point. Steps that begin again have other points."""
        if self._points and step < self._points[-1][1]:
            self._points.clear()
        self._points.append((now, step))
        then, first = self._points[0]
        return (step - first) / (now - then) if now > then else None

    def _write_file(self, line: str) -> None:
        if self._path:
            with contextlib.suppress(OSError):  # the disk is full, or the cluster is removed
                unfinished = Path(f"{self._path}.{os.getpid()}")
                unfinished.write_text(line, encoding="utf-8")
                unfinished.replace(self._path)

    def _show(self, line: str, is_last: bool) -> None:
        with contextlib.suppress(OSError, ValueError):  # standard error is closed
            if not self._is_terminal:
                self._stream.write(f"{line}\n")
            else:
                columns = os.get_terminal_size(self._stream.fileno()).columns
                self._stream.write(f"\r{line[: columns - 1] if columns else line}\x1b[K" + "\n" * is_last)
                self._is_open = not is_last
            self._stream.flush()

    def close(self) -> None:
        """End the line on a terminal."""
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(OSError, ValueError):
                self._stream.write("\n")
                self._stream.flush()


def _whole(name: str, value: object) -> int:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"tfk8s.progress(): {name} must be a whole number, not {value!r}") from None


_meter: Meter | None = None
