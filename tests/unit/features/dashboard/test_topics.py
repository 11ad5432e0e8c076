"""Topics: one thread for all browsers, and what later browsers get."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tfk8s import polling
from tfk8s.errors import InvalidInput
from tfk8s.features.dashboard import topics
from tfk8s.features.dashboard.topics import Hub, Produce, Topic


def messages(text: str) -> Any:
    return json.loads(text)["data"]


async def read(hub: Hub, names: list[str], count: int) -> list[Any]:
    """Return the first messages of topics, as a browser gets them."""
    found: list[Any] = []
    async for text in hub.messages(hub.topics(names), 5.0):
        found.append(messages(text))
        if len(found) == count:
            break
    return found


def numbers(topic: Topic) -> None:
    for number in range(3):
        topic.send("event", number)
    polling.wait_until(lambda: not topic.wait(0.01), "the end", 20)


def test_one_thread_serves_all_browsers() -> None:
    started: list[str] = []

    def produce(topic: Topic) -> None:
        started.append(topic.name)
        numbers(topic)

    async def browse() -> list[list[Any]]:
        hub = Hub(lambda _: produce)
        try:
            return await asyncio.gather(*(read(hub, ["a"], 3) for _ in range(5)))
        finally:
            hub.close()

    assert asyncio.run(browse()) == [[0, 1, 2]] * 5
    assert started == ["a"]


def test_a_later_browser_gets_what_was_kept() -> None:
    async def browse() -> tuple[list[Any], list[Any]]:
        hub = Hub(lambda _: numbers)
        try:
            return await read(hub, ["a"], 3), await read(hub, ["a"], 3)
        finally:
            hub.close()

    assert asyncio.run(browse()) == ([0, 1, 2], [0, 1, 2])


@pytest.mark.parametrize(
    ("kind", "size", "kept"), [("cluster", 1, 1), ("event", 1, 300), ("line", 1 << 20, 3), ("event", 8 << 20, 1)]
)
def test_what_is_kept_has_limits(kind: str, size: int, kept: int) -> None:
    topic, got = Topic("a", numbers), []

    class Counting:
        def put(self, text: str) -> None:
            got.append(text)

    for _ in range(400 if size == 1 else 10):
        topic.send(kind, "x" * size)
    topic.add(Counting())  # type: ignore[arg-type]
    assert len(got) == kept


def test_the_thread_ends_some_time_after_the_last_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def produce(topic: Topic) -> None:
        numbers(topic)
        ended.set()

    async def browse() -> None:
        await read(Hub(lambda _: produce), ["a"], 3)

    monkeypatch.setattr(topics, "LINGER", 0.05)
    asyncio.run(browse())
    assert ended.wait(20)


def fails(_: Topic) -> None:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize(("produce", "expected"), [(fails, ["ZeroDivisionError: division by zero"])])
def test_no_thread_ends_without_a_word(produce: Produce, expected: list[str]) -> None:
    assert asyncio.run(read(Hub(lambda _: produce), ["a"], 1)) == expected


def test_a_silent_topic_shows_that_the_connection_lives() -> None:
    async def first() -> str:
        hub = Hub(lambda _: lambda topic: polling.wait_until(lambda: not topic.wait(0.01), "the end", 20))
        try:
            async for text in hub.messages(hub.topics(["a"]), 0.01):
                return text
        finally:
            hub.close()
        return "nothing"

    assert asyncio.run(first()) == ""


def refuse(name: str) -> Produce:
    raise InvalidInput(f"no topic {name}")


@pytest.mark.parametrize(
    ("find", "names", "words"),
    [(refuse, ["a"], "no topic a"), (lambda _: numbers, [str(n) for n in range(65)], "shows 64 clusters and logs")],
)
def test_topics_have_limits(find: Callable[[str], Produce], names: list[str], words: str) -> None:
    hub = Hub(find)
    with pytest.raises(InvalidInput, match=words):
        hub.topics(names)
    hub.close()


def test_a_silent_thread_serves_those_who_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    line, started = threading.Event(), []

    def produce(topic: Topic) -> None:  # the log of a task that writes nothing
        started.append(topic)
        line.wait(20)
        topic.send("line", "at last")

    async def browse() -> Any:
        hub = Hub(lambda _: produce)
        for _ in range(5):
            hub.topics(["a"])
            await asyncio.sleep(0.02)
        line.set()
        return await read(hub, ["a"], 1)

    monkeypatch.setattr(topics, "LINGER", 0.01)
    assert asyncio.run(browse()) == ["at last"]
    assert len(started) == 1


def test_a_browser_that_does_not_read_is_left_behind() -> None:
    async def browse() -> list[str]:
        hub, kept = Hub(lambda _: numbers), []
        (topic,) = hub.topics(["a"])
        async for text in hub.messages([topic], 0.01):  # suspended while its socket is full
            kept.append(text)
            for _ in range(100):
                topic.send("line", "x" * (1 << 20))
            await asyncio.sleep(0)
        hub.close()
        return kept

    assert len(asyncio.run(browse())) < 10


def test_a_later_browser_gets_no_problem_that_is_over() -> None:
    topic, got = Topic("a", numbers), []

    class Taking:
        def put(self, text: str) -> None:
            got.append(json.loads(text)["kind"])

    for kind in ("cluster", "problem", "gone", "cluster", "usage"):
        topic.send(kind, 1)
    topic.add(Taking())  # type: ignore[arg-type]
    assert got == ["cluster", "usage"]


def test_infinity_is_no_message() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Topic("a", numbers).send("usage", float("inf"))
