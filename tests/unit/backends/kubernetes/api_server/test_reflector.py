"""A watch of quiet objects costs few requests, and none that is broken waits for long."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server.reflector import DEAD_STREAM_TIMEOUT, MAX_STREAM_TIMEOUT, Reflector


class QuietServer:
    """An API server without objects. Each of its streams lasts as long as asked, or as long as `lasts` says."""

    def __init__(self, lasts: dict[int, float]) -> None:
        self.seconds, self._lasts = 0.0, lasts
        self.asked: list[int] = []

    def get(self, path: str, query: Any) -> dict[str, Any]:
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    @contextlib.contextmanager
    def lines(self, path: str, query: Any, timeout: float) -> Iterator[Iterator[str]]:
        asked = query["timeoutSeconds"]
        assert timeout == asked + DEAD_STREAM_TIMEOUT
        self.asked.append(asked)
        self.seconds += self._lasts.get(len(self.asked), asked)
        yield iter(())


@pytest.mark.parametrize(
    ("lasts", "asked"),
    [
        ({}, [4, 8, 16, 32, 32, 32]),
        ({3: 16 + DEAD_STREAM_TIMEOUT}, [4, 8, 16, 4, 8, 16]),  # silent: only its limit has ended the stream
        ({2: 0.0}, [4, 8, 4, 8, 16, 32]),  # broken
    ],
    ids=["quiet", "silent", "broken"],
)
def test_streams_last_longer_while_the_api_server_ends_them(
    monkeypatch: pytest.MonkeyPatch, lasts: dict[int, float], asked: list[int]
) -> None:
    server: Any = QuietServer(lasts)
    monkeypatch.setattr(time, "monotonic", lambda: server.seconds)
    monkeypatch.setattr(polling, "poll", lambda _: itertools.count())
    looks = itertools.count()
    assert list(Reflector(server, "/api/v1/pods", {}).changes(lambda: next(looks) <= len(asked))) == []
    assert server.asked == asked
    assert max(asked) <= MAX_STREAM_TIMEOUT
