"""Which requests are made again, and what answers mean; whole exchanges that break are in tests/faults."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tfk8s import polling
from tfk8s.backends.kubernetes import client, errors
from tfk8s.backends.kubernetes.client import Client

NOBODY = urllib3.exceptions.NewConnectionError(None, "Connection refused")  # type: ignore[arg-type]
BROKEN = urllib3.exceptions.ProtocolError("Connection aborted.")
KUBECONFIG = """
current-context: one
contexts: [{name: one, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
"""


class Answers:
    """In the place of the transport: gives these, one a request."""

    def __init__(self, *answers: int | str | Exception) -> None:
        self.left = list(answers)
        self.asked: list[tuple[str, str]] = []
        self.given: list[urllib3.HTTPResponse] = []

    def request(self, method: str, path: str, **_: object) -> urllib3.HTTPResponse:
        self.asked.append((method, path))
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        code, text = (200, answer) if isinstance(answer, str) else (answer, "{}")
        self.given.append(urllib3.HTTPResponse(io.BytesIO(text.encode()), status=code, preload_content=False))
        return self.given[-1]


@pytest.fixture(autouse=True)
def _kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(polling, "FIRST_RETRY_INTERVAL", 0.001)


def asking(*answers: int | str | Exception) -> tuple[Client, Answers]:
    made, given = Client(None), Answers(*answers)
    made.transport = given  # type: ignore[assignment]
    return made, given


@pytest.mark.parametrize("trouble", [429, 500, 503, BROKEN])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_what_may_be_asked_twice_is_asked_again(method: str, trouble: int | Exception) -> None:
    made, given = asking(trouble, trouble, '{"a": 1}')
    assert made.send(method, "/x") == {"a": 1}
    assert given.asked == [(method, "/x")] * 3


@pytest.mark.parametrize("trouble", [500, 503, BROKEN])
def test_what_would_make_two_is_not(trouble: int | Exception) -> None:
    made, given = asking(trouble, "{}")
    with pytest.raises(errors.BackendUnreachable):
        made.send("POST", "/x")
    assert len(given.asked) == 1


@pytest.mark.parametrize("trouble", [429, NOBODY])
def test_unless_the_first_was_not_heard(trouble: int | Exception) -> None:
    made, _ = asking("{}", trouble, '{"a": 1}')
    made.get("/version")
    assert made.send("POST", "/x") == {"a": 1}


def test_where_nobody_was_there_ever_nobody_is_waited_for() -> None:
    made, given = asking(NOBODY, "{}")
    with pytest.raises(errors.Unanswered, match="Connection refused"):
        made.get("/x")
    assert len(given.asked) == 1


@pytest.mark.parametrize(("before", "asked"), [([], 1), ([BROKEN], 3)])
def test_who_may_do_what_is_asked_again_of_an_api_server_that_broke_a_moment_ago(before: list[Any], asked: int) -> None:
    made, given = asking(*before, 403, '{"a": 1}')
    if before:
        assert made.get("/x") == {"a": 1}
    else:
        with pytest.raises(errors.ApiError):
            made.get("/x")
    assert len(given.asked) == asked


def test_what_is_not_there() -> None:
    made, _ = asking(404, 404, 404)
    assert made.send("DELETE", "/x") == {}
    assert made.find("/x") is None
    with pytest.raises(errors.ApiError):
        made.get("/x")


class Stream(urllib3.HTTPResponse):
    """Comes in blocks, and breaks."""

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:  # type: ignore[override]
        yield from (b"one\ntw", b"o\nhal")
        raise BROKEN


def test_lines_come_whole_to_the_end_of_their_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = asking("one\ntwo\nthree")
    assert list(made.lines("/x")) == ["one", "two", "three"]
    made, given = asking("one\n" * 100_000)
    lines = made.lines("/x")
    assert next(lines) == "one"
    lines.close()
    broken = Stream()
    monkeypatch.setattr(given, "request", lambda *_, **__: broken)
    assert list(made.lines("/x")) == ["one", "two"]
    assert all(answer.closed for answer in (*given.given, broken))


@pytest.mark.parametrize(("minor", "fits"), [("27", False), ("28", True), ("29+", True)])
def test_an_api_server_has_to_be_new_enough(minor: str, fits: bool) -> None:
    made, _ = asking(f'{{"major": "1", "minor": "{minor}", "gitVersion": "v1.{minor}"}}')
    if fits:
        made.require_version()
    else:
        with pytest.raises(
            errors.ApiError, match=r'^context "one" runs Kubernetes v1\.27; tfk8s needs 1\.28 or newer$'
        ):
            made.require_version()


def test_a_query_is_written_as_kubernetes_reads_it() -> None:
    query = {"watch": True, "tailLines": 5, "labelSelector": "a=b,c!=d"}
    assert client.address("/x", query) == "/x?watch=true&tailLines=5&labelSelector=a%3Db%2Cc%21%3Dd"
    assert client.address("/x") == "/x"
