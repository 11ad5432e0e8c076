"""Topics: each has a thread that reads from a cluster for all browsers together, and keeps what later ones need.

A browser costs the cluster nothing: the first one that asks for a topic starts the thread, and some time after the last
one has left, the thread ends. A thread that waits for the next line of a silent log ends later, and serves those who
come until then: there are never two for a topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from tfk8s.errors import InvalidInput
from tfk8s.log import log

LINGER = 60.0  # seconds after the last browser has left: a page that is loaded again finds its curves
MAX_TOPICS = 64  # each has a thread
MAX_BROWSERS = 32  # each has a connection
_MOST = {"usage": 400, "progress": 5000, "event": 300, "line": 2000}  # messages of a kind; of others, the last
_MOST_BYTES = 4 << 20  # of a kind
_CONTRADICTED = {"cluster": ("gone", "problem")}  # kinds that a message of another kind makes untrue
_PAUSE = 1.0
_BEHIND = 64 << 20  # characters that a slow browser may be behind; it connects again after more

Produce = Callable[["Topic"], None]


class Topic:
    """The messages about one subject.

    Args:
        name: stands in each message.
        produce: sends messages while the topic is wanted, on a thread of its own.

    Attributes:
        has_ended: whether the thread has ended.
    """

    def __init__(self, name: str, produce: Produce) -> None:
        self.name, self._produce = name, produce
        self._lock = threading.Lock()
        self._kept: defaultdict[str, deque[str]] = defaultdict(deque)
        self._sizes: defaultdict[str, int] = defaultdict(int)
        self._browsers: list[Browser] = []
        self._left_at = time.monotonic()
        self._closing, self.has_ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name=f"tfk8s-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def claim(self) -> bool:
        """Keep the thread for a browser that comes in a moment; return False if the thread has ended."""
        with self._lock:
            self._left_at = time.monotonic()
            return not self.has_ended

    def close(self) -> None:
        """Let the thread end."""
        self._closing.set()

    def is_wanted(self) -> bool:
        """Return whether a browser shows the topic, or did a moment ago."""
        with self._lock:
            return self._is_wanted()

    def _is_wanted(self) -> bool:
        return not self._closing.is_set() and (bool(self._browsers) or time.monotonic() - self._left_at < LINGER)

    def wait(self, seconds: float) -> bool:
        """Wait between two polls; return whether the topic is still wanted."""
        return not self._closing.wait(seconds) and self.is_wanted()

    def send(self, kind: str, data: Any) -> None:
        """Send a message to all browsers, and keep the message for others."""
        message = {"topic": self.name, "kind": kind, "data": data}
        text = json.dumps(message, separators=(",", ":"), allow_nan=False)
        with self._lock:
            for other in _CONTRADICTED.get(kind, ()):
                self._kept[other].clear()
                self._sizes[other] = 0
            kept = self._kept[kind]
            kept.append(text)
            self._sizes[kind] += len(text)
            while len(kept) > _MOST.get(kind, 1) or (len(kept) > 1 and self._sizes[kind] > _MOST_BYTES):
                self._sizes[kind] -= len(kept.popleft())
            for browser in self._browsers:
                browser.put(text)

    def add(self, browser: Browser) -> None:
        """Give a browser what was kept, and what comes."""
        with self._lock:
            for kept in self._kept.values():
                for text in kept:
                    browser.put(text)
            self._browsers.append(browser)

    def remove(self, browser: Browser) -> None:
        """Send nothing more to a browser."""
        with self._lock:
            self._browsers.remove(browser)
            self._left_at = time.monotonic()

    def _run(self) -> None:
        try:
            self._produce(self)
        except Exception as error:
            log.warning("the dashboard can't show %s: %s", self.name, error)
            self.send("problem", f"{type(error).__name__}: {error}")
        while not self._end():
            self.wait(_PAUSE)

    def _end(self) -> bool:
        with self._lock:
            self.has_ended = not self._is_wanted()
            return self.has_ended


class Browser:
    """The messages that wait for one browser. `put` works on all threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[str] = asyncio.Queue()
        self._size, self._is_behind = 0, False

    def put(self, text: str) -> None:
        """Add a message."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._put, text)

    def _put(self, text: str) -> None:
        self._size += len(text)
        if self._size > _BEHIND and not self._is_behind:  # its socket is full: it reads little or nothing
            self._is_behind, self._waiting = True, asyncio.Queue()
        if not self._is_behind:
            self._waiting.put_nowait(text)

    async def messages(self, pause: float) -> AsyncIterator[str]:
        """Yield the messages, and "" after each pause without one, until the browser is too far behind."""
        while not self._is_behind:
            text = ""
            with contextlib.suppress(TimeoutError):
                text = await asyncio.wait_for(self._waiting.get(), pause)
            self._size -= len(text)
            yield text


class Hub:
    """All topics that somebody wants.

    Args:
        find: returns what produces a topic's messages; raises InvalidInput for an unknown topic.
    """

    def __init__(self, find: Callable[[str], Produce]) -> None:
        self._find = find
        self._topics: dict[str, Topic] = {}
        self._browsers = 0

    @property
    def is_full(self) -> bool:
        """True if as many browsers are connected as may be."""
        return self._browsers >= MAX_BROWSERS

    def topics(self, names: Sequence[str]) -> list[Topic]:
        """Return topics by their names, and start those that do not run.

        Raises:
            InvalidInput: there is no such topic, or there are too many.
        """
        self._topics = {name: topic for name, topic in self._topics.items() if not topic.has_ended}
        missing = [name for name in names if name not in self._topics or not self._topics[name].claim()]
        producers = {name: self._find(name) for name in missing}
        if len(self._topics.keys() | producers.keys()) > MAX_TOPICS:
            raise InvalidInput(f"the dashboard shows {MAX_TOPICS} clusters and logs already; close some of its pages")
        for name, produce in producers.items():
            self._topics[name] = Topic(name, produce)
            self._topics[name].start()
        return [self._topics[name] for name in dict.fromkeys(names)]

    async def messages(self, topics: Sequence[Topic], pause: float) -> AsyncIterator[str]:
        """Yield the messages of topics for one browser, and "" after each pause without one."""
        browser = Browser()
        self._browsers += 1
        try:
            for topic in topics:
                topic.add(browser)
            async for text in browser.messages(pause):
                yield text
        finally:
            self._browsers -= 1
            for topic in topics:
                topic.remove(browser)

    def close(self) -> None:
        """Let all threads end."""
        for topic in list(self._topics.values()):
            topic.close()
