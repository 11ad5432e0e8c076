"""Logs of pods, across broken streams."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tfk8s.backends.kubernetes.api_server import errors, logs
from tfk8s.backends.kubernetes.api_server.logs import Follower
from tfk8s.core.script import LogOptions


class Streams:
    """A client whose log streams break: each call gives the next of them."""

    def __init__(self, *streams: list[str] | Exception) -> None:
        self.streams = list(streams)
        self.queries: list[dict[str, object]] = []

    @contextlib.contextmanager
    def lines(self, path: str, query: dict[str, object]) -> Iterator[Iterator[str]]:
        self.queries.append(query)
        answer = self.streams.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield iter(answer)


def follow(*streams: list[str] | Exception, **options: Any) -> tuple[list[str], list[dict[str, object]]]:
    client = Streams(*streams)
    lines = list(Follower(client, "ns", "pod", LogOptions(tail=7, **options), lambda: len(client.streams) > 1))
    return lines, client.queries


def test_each_line_is_yielded_once_across_broken_streams() -> None:
    lines, queries = follow(
        ["2026-01-01T00:00:01.5Z one", "2026-01-01T00:00:02.5Z two", "2026-01-01T00:00:02.5Z three"],
        ["2026-01-01T00:00:02.1Z before", "2026-01-01T00:00:02.5Z two", "2026-01-01T00:00:02.5Z three",
         "2026-01-01T00:00:02.5Z four", "2026-01-01T00:00:03.5Z five"],
        ["unable to retrieve container logs for containerd://7470"],
        ["2026-01-01T00:00:03.5Z five", "2026-01-01T00:00:04.5Z last"],
    )  # fmt: skip
    assert lines == ["one", "two", "three", "four", "five", "last"]
    assert [query.get("tailLines") for query in queries] == [7, None, None, None]
    assert queries[1]["sinceTime"] == "2026-01-01T00:00:02Z"
    assert [query["follow"] for query in queries] == [True, True, True, False]


class OneLog:
    """A client with one log; it notes what it is asked for."""

    def text(self, path: str, query: object) -> str:
        self.path, self.query = path, query
        return "out\n\x1eerr\n\n"


def test_marks_of_standard_error_are_kept() -> None:
    assert logs.read_pod(OneLog(), "ns", "pod", LogOptions()) == ["out", "\x1eerr", ""]


def test_a_task_is_read_whose_pod_has_the_name_of_a_script() -> None:
    client = OneLog()
    logs.read_pod(client, "ns", "a-script-abcdef-0", LogOptions())
    assert client.path == "/api/v1/namespaces/ns/pods/a-script-abcdef-0/log?container=server"


def test_options_are_those_of_the_api_server() -> None:
    client = OneLog()
    logs.read_pod(client, "ns", "pod", LogOptions(previous=True, since=0.5, timestamps=True))
    assert client.query == {"sinceSeconds": 1, "previous": True, "timestamps": True}


def test_followed_lines_begin_with_their_time() -> None:
    lines, queries = follow(["2026-01-01T00:00:01.5Z one"], ["2026-01-01T00:00:01.5Z one"], timestamps=True, since=90.0)
    assert lines == ["2026-01-01T00:00:01.5Z one"]
    assert queries[0] == {"tailLines": 7, "sinceSeconds": 90, "follow": True, "timestamps": True}


def test_a_container_that_has_not_started() -> None:
    lines, _ = follow(errors.ApiError(400, "waiting to start"), ["2026-01-01T00:00:01Z one"], [])
    assert lines == ["one"]


def test_a_refusal_is_raised() -> None:
    with pytest.raises(errors.ApiError):
        follow(errors.ApiError(403, "no"), [])
