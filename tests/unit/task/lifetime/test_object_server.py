"""The requests of a cluster's own Jobs, on a pretended connection."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tfk8s.core.lifetime import RemovableObject
from tfk8s.task.lifetime import object_server
from tfk8s.task.lifetime.object_server import ApiFailure, Forbidden, NoAnswer, ObjectServer, TokenRefused

PODS = [{"metadata": {"name": f"pod-{number}"}} for number in range(120)]
ACCOUNT = RemovableObject("v1", "serviceaccounts", "demo-lifetime")


class Connection:
    """A connection that answers a list page by page, and other requests with a status."""

    asked: list[dict[str, list[str]]]
    status, content = 200, b"{}"
    error: Exception | None = None

    def __init__(self, *_: object, **__: object) -> None:
        self.headers = {"date": "Sat, 28 Nov 2026 05:29:54 GMT"}

    def request(self, method: str, path: str, body: object, headers: dict[str, str]) -> None:
        assert headers["authorization"] == "Bearer secret"
        if self.error:
            raise self.error
        query = parse_qs(urlsplit(path).query)
        self.asked.append(query)
        if path.split("?")[0].endswith("/pods"):
            begin, most = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
            token = str(begin + most) if begin + most < len(PODS) else ""
            answer = {"items": PODS[begin : begin + most], "metadata": {"continue": token}}
            self.content = json.dumps(answer).encode()

    def getresponse(self) -> Any:
        return self

    def read(self, most: int) -> bytes:
        return self.content[:most]

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[Connection]:
    class One(Connection):
        asked: list[dict[str, list[str]]] = []  # noqa: RUF012 - of this test alone

    (tmp_path / "token").write_text("secret")
    monkeypatch.setattr(object_server, "TOKEN", str(tmp_path / "token"))
    monkeypatch.setattr("ssl.create_default_context", lambda cafile: None)
    monkeypatch.setattr(http.client, "HTTPSConnection", One)
    return One


@pytest.fixture
def server() -> ObjectServer:
    return ObjectServer("ns", {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"})


def test_a_list_has_one_page_in_memory_at_a_time(connection: type[Connection], server: ObjectServer) -> None:
    found = server.items("pods", "a=b")
    assert [next(found)["metadata"]["name"] for _ in range(50)][-1] == "pod-49"
    assert len(connection.asked) == 1  # the next page is asked for after the first is read
    assert [pod["metadata"]["name"] for pod in found] == [pod["metadata"]["name"] for pod in PODS[50:]]  # type: ignore[index]
    assert connection.asked == [
        {"limit": ["50"], "labelSelector": ["a=b"], **more}
        for more in ({}, {"continue": ["50"]}, {"continue": ["100"]})
    ]


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (401, b"{}", TokenRefused),
        (403, b'{"message": "no"}', Forbidden),
        (500, b"{}", ApiFailure),
        (200, b'{"metadata": {"na', NoAnswer),
    ],
)
def test_refusals(
    connection: type[Connection], server: ObjectServer, status: int, content: bytes, kind: type[Exception]
) -> None:
    connection.status, connection.content = status, content
    with pytest.raises(ApiFailure) as caught:
        server.get(ACCOUNT)
    assert type(caught.value) is kind


@pytest.mark.parametrize("error", [TimeoutError("timed out"), http.client.BadStatusLine("")])
def test_an_api_server_that_does_not_answer_is_no_problem_of_a_volume(
    connection: type[Connection], server: ObjectServer, error: Exception
) -> None:
    connection.error = error
    with pytest.raises(NoAnswer, match=type(error).__name__):
        server.patch(ACCOUNT, {})


def test_what_is_gone_is_none(connection: type[Connection], server: ObjectServer) -> None:
    connection.status = 404
    assert server.get(ACCOUNT).body is None
    assert server.patch(ACCOUNT, {}) is False
