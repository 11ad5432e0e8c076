"""Records steps of a script's sessions in a file, for `tfk8s submit --trace`.

TensorFlow itself measures a recorded step (`RunOptions.FULL_TRACE`). The runner installs the recorder only for a script
with `--trace`. Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfk8s.errors import listed
from tfk8s.features.timeline import steps
from tfk8s.features.timeline.step_stats import read_step
from tfk8s.features.timeline.steps import CallCount, TracedStep
from tfk8s.log import log

MAX_STEPS = 500
MAX_BYTES = 32 << 20
FIRST_CALLS = 2  # are recorded, whatever the interval: the first one prepares the graph on the tasks
_MAX_NAMES = 3


def start(setting: str) -> Recorder:
    """Return the recorder for the value of `TFK8S_TRACE`, "100:/tmp/recording": the interval, and the file."""
    interval, _, path = setting.partition(":")
    return Recorder(Path(path), int(interval))


class Recorder:
    """Records the first two calls of `session.run` with the same fetches, and every N-th call.

    Args:
        path: the file, which is emptied now.
        interval: N.
        max_steps: the maximum number of recorded steps.
    """

    def __init__(self, path: Path, interval: int, max_steps: int = MAX_STEPS) -> None:
        self._path, self._interval, self._max_steps = path, interval, max_steps
        self._process = os.getpid()
        self._calls: dict[str, CallCount] = {}
        self._lock = threading.Lock()
        self._steps = self._bytes = 0
        self._has_failed = self._has_left_out = False
        self._first: float | None = None  # the time of the first recorded call
        path.write_bytes(b"")
        atexit.register(self.write_counts)

    @property
    def _is_full(self) -> bool:
        return self._steps >= self._max_steps or self._bytes >= MAX_BYTES

    def patch_sessions(self) -> None:
        """Patch the sessions of this process."""
        from tensorflow.core.protobuf.config_pb2 import RunMetadata, RunOptions
        from tensorflow.python.client.session import BaseSession

        run = BaseSession.run

        @functools.wraps(run)
        def recorded_run(
            session: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
        ) -> Any:
            call = describe(fetches)
            number = self._count(call)
            if number is None:
                began = time.perf_counter()
                result = run(session, fetches, feed_dict, options, run_metadata)
                self._add_plain(call, time.perf_counter() - began)
                return result
            traced = RunOptions()
            if options is not None:
                traced.CopyFrom(options)
            traced.trace_level = RunOptions.FULL_TRACE
            metadata = RunMetadata() if run_metadata is None else run_metadata
            epoch, began = time.time(), time.perf_counter()
            result = run(session, fetches, feed_dict, traced, metadata)
            duration = time.perf_counter() - began
            try:
                self._write(call, number, (epoch, began, duration), feed_dict, metadata.step_stats)
            except Exception as error:  # the script goes on without a recording
                self._give_up(error)
            return result

        BaseSession.run = recorded_run

    def _count(self, call: str) -> int | None:
        """Count a call; return its number if it is to be recorded, else None."""
        with self._lock:
            calls = self._calls.get(call, CallCount(call))
            number = calls.count + 1
            self._calls[call] = dataclasses.replace(calls, count=number)
            is_due = number <= FIRST_CALLS or number % self._interval == 0
            is_here = os.getpid() == self._process  # not in a fork of the script
            if not (is_due and is_here) or self._has_failed:
                return None
            self._has_left_out = self._has_left_out or self._is_full
            return None if self._is_full else number

    def _add_plain(self, call: str, seconds: float) -> None:
        with self._lock:
            calls = self._calls[call]
            self._calls[call] = dataclasses.replace(calls, plain=calls.plain + 1, seconds=calls.seconds + seconds)

    def _write(
        self, call: str, number: int, times: tuple[float, float, float], feed_dict: Any, step_stats: Any
    ) -> None:
        epoch, began, duration = times
        if self._first is None:
            self._first = began
        step = TracedStep(
            call=call, number=number, began=_micros(began - self._first), duration=_micros(duration),
            fed=dict(_sizes(feed_dict or {})), operations=(),
        )  # fmt: skip
        line = steps.step_line(read_step(step_stats, step, _micros(epoch)))
        with self._lock:
            self._append(line)
            self._steps += 1
        self.write_counts()

    def write_counts(self) -> None:
        """Write the counts of calls."""
        if os.getpid() != self._process:
            return
        with self._lock, contextlib.suppress(OSError):
            self._append(steps.calls_line(self._calls.values(), is_full=self._has_left_out))

    def _give_up(self, error: Exception) -> None:
        log.warning("no more steps are recorded: %s", error)
        self._has_failed = True

    def _append(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)
        self._bytes += len(line)


def describe(fetches: Any) -> str:
    """Return the names of what a call fetches, without `:0`: "loss, train and 2 more"."""
    return listed(list(_names(fetches)), _MAX_NAMES)


def _names(fetches: Any) -> Iterator[str]:
    if isinstance(fetches, str):
        yield fetches.removesuffix(":0")
    elif isinstance(fetches, dict):
        yield from _names(list(fetches.values()))
    elif isinstance(fetches, (list, tuple)):
        for one in fetches:
            yield from _names(one)
    else:
        yield str(getattr(fetches, "name", type(fetches).__name__)).removesuffix(":0")


def _sizes(feed_dict: Any) -> Iterator[tuple[str, int]]:
    import numpy as np

    for key, value in feed_dict.items():
        parts = value if isinstance(value, tuple) else (value,)  # a SparseTensorValue has three, of different shapes
        yield describe(key), sum(int(np.asarray(part).nbytes) for part in parts)


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
