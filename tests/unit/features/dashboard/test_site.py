"""The page's server: what it sends, and whom it refuses."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from job_files import job_file

from tfk8s.backends.history.files import EntryFiles
from tfk8s.backends.usage import Usage
from tfk8s.core.events import Event
from tfk8s.core.progress import StepProgress
from tfk8s.core.script import WHOLE_LOG, LogOptions
from tfk8s.core.status import Phase
from tfk8s.errors import InvalidInput
from tfk8s.features.dashboard import site
from tfk8s.features.dashboard.shown_clusters import ShownClusters
from tfk8s.features.dashboard.site import Dashboard
from tfk8s.sessions.forward import listen
from tfk8s.testing import CREATED, FakeBackend, change

TOKEN = "secret"


@pytest.fixture
def backend() -> FakeBackend:
    backend = FakeBackend(job_file())
    backend.past_events = [
        Event(id="1", time=CREATED, about="worker/0", warning=True, reason="Evicted", message="no\x1b[31m memory")
    ]
    return backend


@pytest.fixture
def page(backend: FakeBackend) -> Iterator[Dashboard]:
    with Dashboard(ShownClusters({"local": backend}), listen(0), TOKEN) as page:
        yield page


def ask(
    page: Dashboard, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    host = page.url.split("/")[2]
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request(method, path, headers=headers)
    return connection, connection.getresponse()


def get(page: Dashboard, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection, answer = ask(page, path, method, **headers)
    try:
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def stream(page: Dashboard, topics: list[str], kinds: set[str]) -> dict[str, Any]:
    """Return the first message of each kind."""
    connection, answer = ask(page, f"/{TOKEN}/stream?" + "&".join(f"topic={t.replace(' ', '%20')}" for t in topics))
    assert answer.status == 200, answer.read()
    found: dict[str, Any] = {}
    while kinds - found.keys():
        line = answer.readline().decode()
        assert line, found.keys()
        if line.startswith("data: "):
            message = json.loads(line.removeprefix("data: "))
            found.setdefault(message["kind"], message["data"])
    connection.close()
    return found


def messages(page: Dashboard, topic: str, last: str) -> list[tuple[str, Any]]:
    """Return the messages of a topic until one of the kind `last`."""
    connection, answer = ask(page, f"/{TOKEN}/stream?topic={topic.replace(' ', '%20')}")
    found: list[tuple[str, Any]] = []
    while not found or found[-1][0] != last:
        line = answer.readline().decode()
        assert line, found
        if line.startswith("data: "):
            message = json.loads(line.removeprefix("data: "))
            found.append((message["kind"], message["data"]))
            assert message["kind"] != "problem", found
    connection.close()
    return found


def test_the_page_loads_nothing_from_elsewhere(page: Dashboard) -> None:
    connection, answer = ask(page, f"/{TOKEN}/")
    text = answer.read().decode()
    connection.close()
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert answer.headers["Cache-Control"] == "no-store"
    assert "http" not in text.replace("http-equiv", "")
    for name in ("page.js", "charts.js", "page.css", "uPlot.iife.js", "uPlot.min.css"):
        assert f'"{name}"' in text
        assert get(page, f"/{TOKEN}/{name}")[0] == 200


@pytest.mark.parametrize(
    ("path", "method", "headers", "expected"),
    [
        ("/", "GET", {}, (404, "Not Found")),
        ("/other/", "GET", {}, (404, "Not Found")),
        ("/secret/../secret/", "GET", {}, (404, "Not Found")),
        ("/secret/page/page.js", "GET", {}, (404, "Not Found")),
        ("/secret/", "GET", {"Host": "evil.example"}, (403, "tfk8s: the name of the host is another one\n")),
        ("/secret/", "GET", {"Origin": "http://evil.example"}, (403, "tfk8s: another page asks\n")),
        ("/secret/", "GET", {"Origin": "null"}, (403, "tfk8s: another page asks\n")),
        ("/secret/", "HEAD", {}, (403, "")),
        ("/secret/", "POST", {}, (403, "tfk8s: the page can only be read\n")),
        ("/secret/stream?topic=x", "GET", {}, (404, "tfk8s: the dashboard has no such topic\n")),
        ("/secret/stream?topic=cluster%20other%20mnist", "GET", {}, (404, "tfk8s: the dashboard has no such topic\n")),
        ("/secret/timeline/mnist@1", "GET", {}, (404, "tfk8s: the history has no entry mnist@1\n")),
        ("/secret/timeline/..%2Fpasswd", "GET", {}, (404, "Not Found")),
        ("/secret/timeline/mnist", "GET", {}, (404, "tfk8s: the history has no entry mnist\n")),
    ],
)
def test_refusals(
    page: Dashboard, path: str, method: str, headers: dict[str, str], expected: tuple[int, str], state: object
) -> None:
    assert get(page, path, method, **headers) == expected


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_connections_of_other_users_are_closed(page: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "own_clients", lambda *_: set())
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        get(page, f"/{TOKEN}/")


def test_the_list_of_clusters(page: Dashboard, backend: FakeBackend) -> None:
    found = stream(page, ["overview"], {"clusters local", "history"})
    (cluster,) = found["clusters local"]["clusters"]
    assert (cluster["source"], cluster["name"], cluster["phase"]) == ("local", "mnist", "Ready")
    assert (cluster["tasks"], cluster["ready"]) == (3, 3)
    assert found["history"] == []


def test_the_list_says_why_all_tasks_wait(page: Dashboard, backend: FakeBackend) -> None:
    for task in ("chief/0", "worker/0", "worker/1"):
        wait = change(task, phase=Phase.PENDING, reason="waits in the queue, 2 are ahead")
        backend.statuses["mnist"] = wait(backend.statuses["mnist"])
    (cluster,) = stream(page, ["overview"], {"clusters local"})["clusters local"]["clusters"]
    assert cluster["reason"] == "waits in the queue, 2 are ahead"


def test_a_cluster(page: Dashboard, backend: FakeBackend) -> None:
    backend.updates = [change("worker/1", progress=StepProgress(step=3, rate=2.0, metrics={"loss": "0.5", "x": "nan"}))]
    found = stream(page, ["cluster local mnist"], {"cluster", "usage", "event", "progress"})
    assert [task["task"] for task in found["cluster"]["tasks"]] == ["chief/0", "worker/0", "worker/1"]
    assert found["usage"]["tasks"].keys() == {"chief/0", "worker/0", "worker/1"}
    assert found["event"]["message"] == "no\x1b[31m memory"
    assert found["progress"]["tasks"]["worker/1"]["metrics"] == {"loss": 0.5, "x": "nan"}


def test_a_cluster_that_does_not_exist(page: Dashboard) -> None:
    assert stream(page, ["cluster local other"], {"gone"})["gone"].startswith('there is no cluster "other"')


def test_a_log(page: Dashboard, backend: FakeBackend) -> None:
    found = stream(page, ["log local mnist worker/0"], {"line", "end"})
    assert found["end"] == "worker/0 writes no more"
    assert stream(page, ["log local mnist worker/9"], {"end"})["end"].startswith('there is no task "worker/9"')


class Writing(FakeBackend):
    """A backend with one script, which has written much."""

    def log(self, name: str, script: str, options: LogOptions = WHOLE_LOG) -> Iterator[str]:
        if script != "script-4e9c21":
            raise InvalidInput(f"there is no script {script}")
        assert options.follow
        assert options.tail
        return (f"step {number}" for number in range(options.tail))


def test_the_log_of_a_script() -> None:
    with Dashboard(ShownClusters({"local": Writing(job_file())}), listen(0), TOKEN) as page:
        sent = messages(page, "log local mnist script-4e9c21", "end")
        assert sent[-2:] == [("line", "step 499"), ("end", "script-4e9c21 writes no more")]
        assert messages(page, "log local mnist script-000000", "end") == [("end", "there is no script script-000000")]


class Counting(FakeBackend):
    """A backend that counts measurements."""

    measured = 0

    def usage(self, name: str, chosen: Sequence[str]) -> list[Usage]:
        self.measured += 1
        return super().usage(name, chosen)


def test_many_browsers_cost_what_one_costs() -> None:
    backend = Counting(job_file())
    with Dashboard(ShownClusters({"local": backend}), listen(0), TOKEN) as page:
        for _ in range(5):
            stream(page, ["cluster local mnist"], {"cluster", "usage"})
        assert (backend.observers, backend.measured) == (1, 1)


def test_only_one_cluster_is_shown_if_one_is_named(backend: FakeBackend) -> None:
    with Dashboard(ShownClusters({"local": backend}, "mnist"), listen(0), TOKEN) as page:
        assert stream(page, ["overview"], {"clusters local"})["clusters local"]["clusters"][0]["name"] == "mnist"
        assert get(page, f"/{TOKEN}/stream?topic=cluster%20local%20other") == (
            404, 'tfk8s: the dashboard shows "mnist" alone\n',
        )  # fmt: skip


@pytest.fixture
def entry(state: Path) -> EntryFiles:
    files = EntryFiles(state / "tfk8s" / ".history" / "mnist" / "1")
    files.path.mkdir(parents=True)
    (files.path / "facts.jsonl").write_text("{}")
    return files


def test_the_timeline_of_an_entry(page: Dashboard, entry: EntryFiles, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<h1>steps</h1>")
    entry.keep_timeline(tmp_path / "page.html")
    connection, answer = ask(page, f"/{TOKEN}/timeline/mnist@1")
    assert answer.read() == b"<h1>steps</h1>"
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    connection.close()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "link"])
def test_a_timeline_that_is_no_file_is_refused(
    page: Dashboard, entry: EntryFiles, make: Callable[[Path], None]
) -> None:
    make(entry.timeline)
    status, text = get(page, f"/{TOKEN}/timeline/mnist@1")
    assert (status, "remove it" in text) == (404, True), text
