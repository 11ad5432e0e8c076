"""The process in a task's pod that serves the metrics of the task, in Prometheus' text format (version 0.0.4).

The pod's first process starts it, and never waits for it: a client that is stuck, and an error here, cost the task
nothing. One client is served after the other, each within seconds. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tfk8s.backends import meter
from tfk8s.core import naming, progress
from tfk8s.core.backoff import Backoff
from tfk8s.task import activity

FOLDER = Path("/tmp/tfk8s-metrics")  # noqa: S108 - of the pod, whose container may restart
TIMEOUT = 3.0  # for one client
MAX_HEAD = 8 << 10  # bytes of a request
_REQUESTS = (b"GET /metrics ", b"GET /metrics?")
_MAX_PROGRESS = 64 << 10
_GPU_INTERVAL = 10.0  # each look starts nvidia-smi
_NICENESS = 5

PREFIX = "tfk8s_task_"
STATES = ("Starting", "Ready", "Running", "Failed")  # the phases of `tfk8s status` that a pod sees itself
MAX_METRICS = 64  # of a program; each is a time series
MAX_NAME = 128  # characters of a metric's name

NUMBERS = (  # the metrics with one number: name, type, help
    ("restarts_total", "counter", "Restarts in this pod."),
    ("connections", "gauge", "Connections to the server: sessions, scripts, forwards and other tasks."),
    ("cpu_seconds_total", "counter", "CPU time of the container."),
    ("cpu_limit_cores", "gauge", "CPU limit of the container."),
    ("memory_bytes", "gauge", "Memory of the container that can't be given back."),
    ("memory_limit_bytes", "gauge", "Memory limit of the container."),
    ("network_receive_bytes_total", "counter", "Bytes that the pod has received."),
    ("network_transmit_bytes_total", "counter", "Bytes that the pod has sent."),
    ("gpu_memory_bytes", "gauge", "Memory in use on the GPUs."),
    ("gpu_memory_limit_bytes", "gauge", "Memory of the GPUs."),
    ("gpu_busy_ratio", "gauge", "Busy share of the GPUs, from 0 to 1."),
    ("step", "gauge", "Last step that the program has reported."),
    ("steps", "gauge", "Number of all steps."),
    ("steps_per_second", "gauge", "Last rate of steps."),
)


class Notes:
    """The notes of a pod's first process for the process that serves the metrics: files in a folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._starts, self.progress = folder / "starts", folder / "progress"

    def write(self, runs: bool) -> None:
        """Note that the server or the program starts, or that the program has ended."""
        with contextlib.suppress(OSError):  # the disk is full
            starts = self.read()[0] + runs
            self._starts.parent.mkdir(mode=0o700, exist_ok=True)
            unfinished = self._starts.with_name("unfinished")
            unfinished.write_text(f"{starts} {runs:d}")
            unfinished.replace(self._starts)
            if runs:
                self.progress.unlink(missing_ok=True)  # of the earlier run

    def read(self) -> tuple[int, bool]:
        """Return the number of starts, and whether the server or the program runs."""
        with contextlib.suppress(ValueError):
            starts, runs = _text(self._starts).split()
            return int(starts), runs == "1"
        return 0, False

    def read_progress(self) -> progress.StepProgress | None:
        """Return the last report of `tfk8s.progress`; None without one."""
        return progress.parse(_text(self.progress))


def _text(path: Path) -> str:
    """Return the text of a file; "" without one. A program may have put anything in its place, such as a pipe."""
    with (
        contextlib.suppress(OSError),
        open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file,
    ):
        return (file.read(_MAX_PROGRESS) or b"").decode(errors="replace")
    return ""


def start(port: int, kind: str = "server") -> Notes:
    """Start the process that serves the metrics of this pod's task; return where to note starts and ends.

    Args:
        port: the port of the task's server.
        kind: "program" if the task runs a program.
    """
    words = (sys.executable, "-P", "-m", __name__, str(port), kind, str(os.getpid()))
    try:
        os.posix_spawn(sys.executable, words, os.environ)
    except OSError as error:
        _say(error)
    return Notes()


class MeasuredTask:
    """A task, as the process beside it sees the task.

    Args:
        labels: the labels of its samples.
        port: the port of its server.
        kind: "server" or "program".
        notes: those of the pod's first process.
    """

    def __init__(self, labels: Mapping[str, str], port: int, kind: str, notes: Notes) -> None:
        self._labels, self._port, self._kind, self._notes = labels, port, kind, notes
        self._gpus, self._looked = meter.Usage(), -_GPU_INTERVAL

    def scrape(self, tables: str, now: float) -> str:
        """Return the text of a scrape; `tables` are those of `activity.read_tables`."""
        if now - self._looked >= _GPU_INTERVAL:
            self._gpus, self._looked = meter.gpus(), now
        starts, runs = self._notes.read()
        said = self._notes.read_progress()
        received, sent = meter.network()
        numbers: dict[str, float | None] = {
            "restarts_total": max(0, starts - 1), "connections": self._count(tables, activity.ESTABLISHED),
            "cpu_seconds_total": meter.cpu_seconds(), "cpu_limit_cores": meter.cpu_limit(),
            "memory_bytes": meter.memory(), "memory_limit_bytes": meter.memory_limit(),
            "network_receive_bytes_total": received, "network_transmit_bytes_total": sent,
            "gpu_memory_bytes": self._gpus.get("gpu_memory"), "gpu_busy_ratio": self._gpus.get("gpu"),
            "gpu_memory_limit_bytes": self._gpus.get("gpu_memory_limit"),
        }  # fmt: skip
        if said:
            numbers |= {"step": said.step, "steps": said.total, "steps_per_second": said.rate}
        if self._kind == "program":
            state = "Running" if runs else "Failed"
        else:
            state = "Ready" if self._count(tables, activity.LISTENING) else "Starting"
        return text(self._labels, state, numbers, said.metrics if said else {})

    def _count(self, tables: str, state: str) -> int:
        return sum(one.port == self._port for one in activity.connections(tables, state))


def answer(stream: socket.socket, text: Callable[[], str]) -> None:
    """Answer one request, within `TIMEOUT` and the time of `text`.

    Raises:
        OSError: the client is gone, or too slow.
    """
    head, deadline = b"", time.monotonic() + TIMEOUT
    while b"\r\n\r\n" not in head:
        stream.settimeout(max(0.001, deadline - time.monotonic()))
        part = stream.recv(MAX_HEAD)
        head += part
        if not part or len(head) > MAX_HEAD:
            return
    status, body = ("200 OK", text()) if head.startswith(_REQUESTS) else ("404 Not Found", "")
    encoded = body.encode(errors="replace")
    lines = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    lines += f"Content-Length: {len(encoded)}\r\nConnection: close\r\n\r\n"
    stream.sendall(lines.encode() + encoded)


def serve(listener: socket.socket, text: Callable[[], str], parent: int) -> None:
    """Answer one client after the other, for as long as the process `parent` lives, which started this one."""
    listener.settimeout(1)
    while os.getppid() == parent:
        with contextlib.suppress(TimeoutError, ConnectionError):
            stream, _ = listener.accept()
            with stream, contextlib.suppress(OSError):
                answer(stream, text)


def main(port: str, kind: str, parent: str) -> None:
    """Serve the metrics of a task, for as long as its parent lives, which `start`ed it."""
    environment, parent_id = os.environ, int(parent)
    name = naming.task(environment["TFK8S_JOB"], int(environment["TFK8S_INDEX"]))
    task = MeasuredTask({"tfk8s_cluster": environment["TFK8S_NAME"], "task": name}, int(port), kind, Notes())
    os.nice(_NICENESS)
    backoff, pause = Backoff(), threading.Event()
    while os.getppid() == parent_id:
        began = time.monotonic()
        try:
            with activity.listen(int(environment["TFK8S_METRICS_PORT"])) as listener:
                serve(listener, lambda: task.scrape(activity.read_tables(), time.monotonic()), parent_id)
        except Exception as error:
            _say(error)
        pause.wait(backoff.pause(time.monotonic() - began))


def text(labels: Mapping[str, str], state: str, numbers: Mapping[str, float | None], metrics: Mapping[str, str]) -> str:
    """Return the text of a scrape.

    Args:
        labels: the labels of each sample.
        state: one of `STATES`.
        numbers: the values by the names in `NUMBERS`; None for what nobody knows.
        metrics: the metrics of `tfk8s.progress`, of which the first `MAX_METRICS` numbers are shown.
    """
    lines = [*_head("state", "gauge", "1 for the state of the task, 0 for the others.")]
    lines += (_sample("state", {**labels, "state": one}, one == state) for one in STATES)
    for name, kind, meaning in NUMBERS:
        if (number := numbers.get(name)) is not None:
            lines += (*_head(name, kind, meaning), _sample(name, labels, number))
    found = {}
    for name, said in metrics.items():  # whose names come from a user's program
        with contextlib.suppress(ValueError):  # a text is no number
            found[name[:MAX_NAME]] = float(said)
    if found:
        lines += _head("progress", "gauge", "Metrics of tfk8s.progress.")
        shown = list(found.items())[:MAX_METRICS]
        lines += (_sample("progress", {**labels, "metric": name}, number) for name, number in shown)
    return "".join(f"{line}\n" for line in lines)


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {meaning}"
    yield f"# TYPE {PREFIX}{name} {kind}"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    escapes = {92: r"\\", 10: r"\n", 34: r"\""}
    pairs = (f'{label}="{word.translate(escapes)}"' for label, word in labels.items())
    return f"{PREFIX}{name}{{{','.join(pairs)}}} {float(value)!r}"


def _say(error: Exception) -> None:
    print(f"tfk8s: no metrics for now: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
