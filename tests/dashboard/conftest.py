"""The live page in Chromium, without a window: clusters are data, and the browser is real."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from job_files import job_file
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tfk8s.backends.usage import Usage
from tfk8s.core.events import Event
from tfk8s.core.progress import StepProgress
from tfk8s.core.script import LogLine, LogOptions
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus, Phase, ScriptPhase, ScriptStatus
from tfk8s.features.dashboard.shown_clusters import ShownClusters
from tfk8s.features.dashboard.site import Dashboard
from tfk8s.sessions.forward import listen
from tfk8s.testing import FakeBackend

PICTURES = Path(__file__).parents[2] / "build" / "dashboard"
HOSTILE = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">\x1b[2J"
expect.set_options(timeout=20_000)  # milliseconds: a busy machine draws a thousand rows slowly


class Training(FakeBackend):
    """A backend whose tasks train: each look finds more steps. The last worker is far slower than the others."""

    def __init__(self, *job_files: JobFile) -> None:
        super().__init__(*job_files)
        self.looks = 0
        self.past_events = [
            Event(
                id=str(n), time=time.time() - n, about=f"worker/{n}", warning=n == 0, reason="Evicted", message=HOSTILE
            )
            for n in range(3)
        ]

    def observe(self, name: str) -> ClusterStatus:
        self.looks += 1
        found = super().observe(name)
        tasks = []
        for task in found.tasks:
            rate = 1.0 if task.task.index == len(found.tasks) - 2 else 20.0
            progress = StepProgress(
                step=int(rate * self.looks), total=1000, rate=rate, metrics={"loss": f"{9 / (9 + self.looks):.3f}"}
            )
            is_worker = task.task.job == "worker" and task.phase is Phase.READY
            more = {"phase": Phase.RUNNING, "progress": progress} if is_worker else {}
            tasks.append(dataclasses.replace(task, restarts=1, reason=HOSTILE, **more))
        script = ScriptStatus(name="script-4e9c21", phase=ScriptPhase.RUNNING, command=HOSTILE, since=time.time())
        return dataclasses.replace(found, tasks=tuple(tasks), scripts=(script,))

    def usage(self, name: str, chosen: Sequence[str]) -> list[Usage]:
        return [
            Usage(name=one, cpu=0.5 + n % 7, memory=(n % 5 + 1) * 2.0**28, received=1e5 * n, sent=2e4, gpu=0.7)
            for n, one in enumerate(chosen)
        ]

    def logs(self, name: str, tasks: Sequence[Task], options: LogOptions) -> Iterator[LogLine]:
        yield from (LogLine(task=tasks[0], text=f"step {n} {HOSTILE}") for n in range(100))


class Window:
    """A window of the browser, with all that went wrong in it.

    Attributes:
        page: Playwright's page.
        problems: messages of the console, and requests to other hosts.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.problems = page, list[str]()
        page.on("console", self._listen)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self._check(request, url))
        page.goto(url)

    def _listen(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _check(self, request: Request, url: str) -> None:
        if not request.url.startswith((url, "data:")):
            self.problems.append(request.url)

    def picture(self, name: str) -> None:
        """Keep a picture of the whole page, for people to look at."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path, "there is no Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield chromium
        chromium.close()


Show = Callable[..., Window]


@pytest.fixture
def show(browser: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Show]:
    """Return a function that opens the page of a backend, or of several."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with contextlib.ExitStack() as stack:

        def show(shown: FakeBackend | ShownClusters, **context: Any) -> Window:
            clusters = shown if isinstance(shown, ShownClusters) else ShownClusters({"local": shown})
            page = stack.enter_context(Dashboard(clusters, listen(0), "secret"))
            window = browser.new_context(**context)
            stack.callback(window.close)
            return Window(window.new_page(), page.url)

        yield show


@pytest.fixture
def training() -> Training:
    return Training(job_file(chief=1, worker=4))
