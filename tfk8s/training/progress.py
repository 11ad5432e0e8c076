"""`tfk8s.progress()`: the steps of a program or a script, for its user.

The line goes to standard error: in place and with a bar on a terminal, else every ten seconds. So `tfk8s submit`,
`tfk8s run`, `tfk8s logs` and `kubectl logs` show the line without help. The line also goes to the file that
`TFK8S_PROGRESS` names: `tfk8s status` reads the file on this machine, and in a pod the process of the metrics. On
Kubernetes, `tfk8s status` reads the pod's log: pods have no right to write to their objects.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

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
        _meter.take_streams()
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
        self._line = StatusLine(stream) if can_change(stream, environment) else None
        self._points: deque[tuple[float, int]] = deque(maxlen=_MAX_POINTS)
        self._next_write = self._next_line = clock()
        if self._line is None:
            self._next_line += FIRST_LINE_DELAY
        self._last: tuple[int, int | None] | None = None

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
        progress = StepProgress(step=step, total=total, rate=self._rate(now, step), metrics=texts)
        self._write_file(f"{PREFIX}{progress}")
        if now >= self._next_line or is_last:
            self._next_line = now + (WRITE_INTERVAL if self._line else LINE_INTERVAL)
            self._show(progress, is_last)

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

    def _show(self, progress: StepProgress, is_last: bool) -> None:
        with contextlib.suppress(OSError, ValueError):  # standard error is closed
            if self._line is None:
                self._stream.write(f"{PREFIX}{progress}\n")
                self._stream.flush()
            else:
                self._line.show(progress.terminal_line)
                if is_last:
                    self._line.close()

    def take_streams(self) -> None:
        """Keep what this process prints on the terminal apart from the line."""
        if self._line is not None:
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                if stream.isatty():
                    above = StreamAbove(stream, self._line)
                    setattr(sys, name, above)
                    _move_handlers(stream, above)

    def close(self) -> None:
        """End the line on a terminal."""
        if self._line is not None:
            with contextlib.suppress(OSError, ValueError):
                self._line.close()


def can_change(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether a stream is a terminal whose lines can be written again, by the rule of rich.

    A terminal without a name, as under `env -i`, is taken for one that can.
    """
    return stream.isatty() and environment.get("TERM", "").lower() not in ("dumb", "unknown")


class StatusLine:
    """The last line of a terminal, which is written again and again, below what else is printed.

    The cursor waits at the begin of the line. So the text of code that knows nothing of the line, such as TensorFlow's
    log, stands over the line.

    Args:
        stream: the terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._process = stream, os.getpid()
        self._text = ""
        self._is_shown = False
        self._unfinished: TextIO | None = None  # the stream of the last print, which has no end of line yet

    def show(self, text: str) -> None:
        """Write another text, unless the last print has no end of line yet."""
        self._text = text
        self._draw()

    def print(self, stream: TextIO, text: str) -> int:
        """Print a text above the line; return the number of its characters. A fork prints as if there were no line."""
        if os.getpid() != self._process or not text:
            return stream.write(text)
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_shown = False
        count = stream.write(text)
        self._unfinished = None if text.endswith("\n") else stream
        if self._text and self._unfinished is None:
            stream.flush()
            self._draw()
        return count

    def close(self) -> None:
        """End the line, which is written if the last print hid it; the next `show` writes another one."""
        if self._text and self._unfinished is not None:
            self._unfinished.write("\n")
            self._unfinished.flush()
            self._unfinished = None
            self._draw()
        if self._is_shown:
            self._stream.write("\n")
            self._stream.flush()
        self._text, self._is_shown = "", False

    def _draw(self) -> None:
        if self._unfinished is None:
            columns = os.get_terminal_size(self._stream.fileno()).columns
            self._stream.write(f"\r{self._text[: columns - 1] if columns else self._text}\x1b[K\r")
            self._stream.flush()
            self._is_shown = True


class StreamAbove:
    """A standard stream of this process on a terminal, whose text is printed above a line.

    Args:
        stream: the stream.
        line: the line.
    """

    def __init__(self, stream: TextIO, line: StatusLine) -> None:
        self._stream, self._line = stream, line

    def write(self, text: str) -> int:
        """Print a text."""
        return self._line.print(self._stream, text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Print texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _move_handlers(stream: TextIO, above: StreamAbove) -> None:
    """Let the log handlers of a stream print above the line."""
    loggers = (logging.root, *logging.root.manager.loggerDict.values())
    for handler in (handler for logger in loggers for handler in getattr(logger, "handlers", ())):
        inner = getattr(handler, "python_handler", handler)  # absl's handler has another one in it
        if isinstance(inner, logging.StreamHandler) and inner.stream is stream:
            inner.setStream(above)


def _whole(name: str, value: object) -> int:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"tfk8s.progress(): {name} must be a whole number, not {value!r}") from None


_meter: Meter | None = None
