"""The requests that the live page costs a cluster."""

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import websocket
from on_cluster import make_job, make_job_file

from tfk8s.backends.kubernetes.api_server.reflector import STREAM_TIMEOUT
from tfk8s.features.dashboard.shown_clusters import ShownClusters
from tfk8s.features.dashboard.site import Dashboard
from tfk8s.sessions.forward import listen

BROWSERS, LOOKS = 8, 3


@pytest.fixture
def sent(monkeypatch) -> list[str]:
    """The paths of all requests of this process, and the addresses of its WebSockets."""
    found = []

    def put(connection, method, url, *more, **options):
        found.append(url)
        return put_request(connection, method, url, *more, **options)

    def connect(stream, url, **options):
        found.append(url)
        return open_stream(stream, url, **options)

    put_request, open_stream = http.client.HTTPConnection.putrequest, websocket.WebSocket.connect
    monkeypatch.setattr(http.client.HTTPConnection, "putrequest", put)
    monkeypatch.setattr(websocket.WebSocket, "connect", connect)
    return found


def measurements(page: Dashboard, topic: str) -> set[str]:
    """Return the tasks that a browser has seen in the first measurements."""
    connection = http.client.HTTPConnection(page.url.split("/")[2], timeout=60)
    connection.request("GET", f"/page/stream?topic={topic.replace(' ', '%20')}")
    answer, seen, tasks = connection.getresponse(), 0, set()
    while seen < LOOKS:
        line = answer.readline().decode()
        assert line, "the stream ended"
        if line.startswith("data: ") and (message := json.loads(line.removeprefix("data: ")))["kind"] == "usage":
            seen += 1
            tasks |= message["data"]["tasks"].keys()
    connection.close()
    return tasks


def test_browsers_together_cost_one_request_a_task_and_measurement(up, backend, sent):
    name = up(make_job_file("watched", make_job("ps", tasks=2), make_job("worker")))
    with (
        Dashboard(ShownClusters({"kubernetes": backend}), listen(0), "page") as page,
        ThreadPoolExecutor(BROWSERS) as browsers,
    ):
        sent.clear()
        start = time.monotonic()
        seen = list(browsers.map(lambda _: measurements(page, f"cluster kubernetes {name}"), range(BROWSERS)))
    assert seen == [{"ps/0", "ps/1", "worker/0"}] * BROWSERS
    sent = [url for url in sent if name in url and not url.startswith("/page/")]  # others watch their own clusters
    commands = [url for url in sent if "/exec" in url]
    assert len(commands) <= 3 * LOOKS, sent
    watches = [url for url in sent if "watch=true" in url]
    assert len({url.partition("?")[0] for url in watches}) == 3  # each is renewed after `STREAM_TIMEOUT`, then later
    renewals = 3 * (1 + (time.monotonic() - start) / STREAM_TIMEOUT)
    assert len(watches) <= 2 * renewals, sent  # each browser by itself would cost as many: eight times
    assert len(sent) - len(commands) - len(watches) <= 4 * LOOKS + 6, sent  # the lists of a measurement; the events
