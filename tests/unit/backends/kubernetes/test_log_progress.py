"""The progress of programs and scripts, from the logs of their pods."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server.errors import NoResponse
from tfk8s.backends.kubernetes.workloads import log_progress
from tfk8s.core.progress import StepProgress


class Logs:
    """An API server that only has logs, by the names of pods."""

    context, namespace = "kind", "ns"

    def __init__(self, logs: dict[str, str]) -> None:
        self.requests: list[str] = []
        self._logs = logs

    def get(self, path: str, query: Any = None) -> Any:
        raise NotImplementedError

    def text(self, path: str, query: Any = None) -> str:
        self.requests.append(path)
        name = path.split("/")[6]
        if name not in self._logs:
            raise NoResponse("no answer", had_no_effect=True)
        return self._logs[name]


def pod(name: str, is_ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "ns"}, "spec": {"containers": [{"name": "script"}]},
        "status": {"conditions": [{"type": "Ready", "status": str(is_ready)}]},
    }  # fmt: skip


def test_the_last_line_of_ready_pods_counts() -> None:
    client = Logs({"a": "x\ntfk8s: step 3/4 (75%)\n! tfk8s: step 4/4 (100%), 2 steps/s\nended", "b": "nothing"})
    pods = [pod("a"), pod("b"), pod("forbidden"), pod("waits", is_ready=False)]
    assert log_progress.read(client, pods) == {"a": StepProgress(step=4, total=4, rate=2.0)}
    assert len(client.requests) == 3


def test_the_number_of_requests_does_not_grow_with_the_cluster() -> None:
    client = Logs({})
    assert log_progress.read(client, [pod(f"w-{number}") for number in range(50)]) == {}
    assert len(client.requests) == log_progress.MAX_LOGS


def test_a_caller_that_polls_waits_for_no_log() -> None:
    now = 0.0
    client, asked, answer = Logs({"a": "tfk8s: step 3"}), threading.Event(), threading.Event()
    read_now = client.text

    def read_slowly(path: str, query: Any = None) -> str:
        asked.set()
        answer.wait(10)
        return read_now(path, query)

    client.text = read_slowly  # type: ignore[method-assign]
    recent = log_progress.RecentLogs(log_progress.read, lambda: now)
    assert recent.read(client, [pod("a")]) == {}
    assert asked.wait(10)
    answer.set()
    expected = {"a": StepProgress(step=3)}
    polling.wait_until(lambda: recent.read(client, [pod("a")]) == expected, "the thread to read the log", 10)
    assert recent.read(client, [pod("a", is_ready=False)]) == {}
    assert len(client.requests) == 1
    now = log_progress.READ_INTERVAL
    recent.read(client, [pod("a")])
    polling.wait_until(lambda: len(client.requests) == 2, "another request", 10)


def test_an_error_of_a_read_is_said_and_not_the_last_read(caplog: pytest.LogCaptureFixture) -> None:
    times, reads = itertools.count(0.0, log_progress.READ_INTERVAL), []

    def fails(*_: object) -> dict[str, StepProgress]:
        reads.append(1)
        raise ValueError("a bug")

    recent = log_progress.RecentLogs(fails, lambda: next(times))
    polling.wait_until(lambda: recent.read(Logs({}), [pod("a")]) or len(reads) > 1, "another read", 10)
    assert caplog.messages[0] == "logs could not be read: ValueError: a bug"
