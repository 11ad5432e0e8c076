"""Retries of requests, and the meaning of responses. Faults in whole exchanges are in tests/faults."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import answers, client, errors, lines
from tfk8s.backends.kubernetes.api_server.client import Client

REFUSED = urllib3.exceptions.NewConnectionError(None, "Connection refused")  # type: ignore[arg-type]
BROKEN = urllib3.exceptions.ProtocolError("Connection aborted.")
KUBECONFIG = """
current-context: one
contexts: [{name: one, context: {cluster: c}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
"""


class Responses:
    """A transport with these responses: a status, a body, or an error for each request."""

    def __init__(self, *responses: int | str | Exception) -> None:
        self.left = list(responses)
        self.requests: list[tuple[str, str]] = []
        self.responses: list[urllib3.HTTPResponse] = []

    def request(self, method: str, path: str, **_: object) -> urllib3.HTTPResponse:
        self.requests.append((method, path))
        response = self.left.pop(0)
        if isinstance(response, Exception):
            raise response
        code, text = (200, response) if isinstance(response, str) else (response, "{}")
        self.responses.append(urllib3.HTTPResponse(io.BytesIO(text.encode()), status=code, preload_content=False))
        return self.responses[-1]


@pytest.fixture(autouse=True)
def _kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(polling, "FIRST_RETRY_INTERVAL", 0.001)


def connect(*responses: int | str | Exception) -> tuple[Client, Responses]:
    api, transport = Client(None), Responses(*responses)
    api.transport = transport  # type: ignore[assignment]
    return api, transport


@pytest.mark.parametrize("failure", [429, 500, 503, BROKEN])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_idempotent_requests_are_retried(method: str, failure: int | Exception) -> None:
    api, transport = connect(failure, failure, '{"a": 1}')
    assert api.send(method, "/x") == {"a": 1}
    assert transport.requests == [(method, "/x")] * 3


@pytest.mark.parametrize("failure", [500, 503, BROKEN])
def test_a_post_is_not_retried(failure: int | Exception) -> None:
    api, transport = connect(failure, "{}")
    with pytest.raises(errors.BackendUnreachable):
        api.send("POST", "/x")
    assert len(transport.requests) == 1


@pytest.mark.parametrize(("metadata", "may_repeat"), [({}, True), ({"resourceVersion": "1"}, False)])
def test_a_change_of_a_version_that_is_gone_is_not_repeated(metadata: dict[str, str], may_repeat: bool) -> None:
    stale, busy = (errors.from_response(code, b'{"reason": "Conflict"}', "c") for code in (409, 503))
    assert isinstance(stale, errors.TemporaryApiError)
    assert isinstance(busy, errors.TemporaryApiError)
    assert errors.may_repeat("PATCH", {"metadata": metadata}, stale) is may_repeat
    assert errors.may_repeat("PATCH", {"metadata": metadata}, busy)
    assert errors.may_repeat("PATCH", None, stale)


@pytest.mark.parametrize("failure", [429, REFUSED])
def test_a_post_without_effect_is_retried(failure: int | Exception) -> None:
    api, _ = connect("{}", failure, '{"a": 1}')
    api.get("/version")
    assert api.send("POST", "/x") == {"a": 1}


def test_the_first_connection_is_not_retried() -> None:
    api, transport = connect(REFUSED, "{}")
    with pytest.raises(errors.NoResponse, match="Connection refused"):
        api.get("/x")
    assert len(transport.requests) == 1


def test_forbidden_is_retried_after_a_broken_connection() -> None:
    api, transport = connect(BROKEN, 403, '{"a": 1}')
    assert api.get("/x") == {"a": 1}
    assert len(transport.requests) == 3


def test_forbidden_is_an_error_at_once() -> None:
    api, transport = connect(403, '{"a": 1}')
    with pytest.raises(errors.ApiError):
        api.get("/x")
    assert len(transport.requests) == 1


def stored(name: str) -> dict[str, str]:
    """Return the metadata of an object that an API server keeps."""
    return {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}


def test_a_list_comes_in_pages_without_managed_fields() -> None:
    first = {"metadata": {"continue": "next"}, "items": [{"metadata": {**stored("a"), "managedFields": [{}]}}]}
    last = {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": stored("b")}]}
    api, transport = connect(json.dumps(first), BROKEN, json.dumps(last))
    assert api.get("/pods", {"labelSelector": "a=b"}) == {
        "metadata": {"resourceVersion": "7"},
        "items": [{"metadata": stored("a")}, {"metadata": stored("b")}],
    }
    pages = [("GET", f"/pods?labelSelector=a%3Db&limit=250{rest}") for rest in ("", "&continue=next")]
    assert transport.requests == [pages[0], pages[1], pages[1]]


def test_a_list_whose_pages_have_expired_comes_at_once() -> None:
    first = {"metadata": {"continue": "next"}, "items": [{"metadata": stored("a")}]}
    whole = {"metadata": {}, "items": [{"metadata": stored("b")}]}
    api, transport = connect(json.dumps(first), 410, json.dumps(whole))
    assert api.get("/pods", {"labelSelector": "a=b"}) == whole
    assert transport.requests[-1] == ("GET", "/pods?labelSelector=a%3Db")


def test_a_list_with_a_limit_is_one_page() -> None:
    api, transport = connect('{"metadata": {"continue": "next"}, "items": []}')
    assert api.get("/pods", {"limit": 1})["metadata"] == {"continue": "next"}
    assert transport.requests == [("GET", "/pods?limit=1")]


def test_a_collection_is_deleted_in_parts() -> None:
    api, transport = connect('{"metadata": {"continue": "next"}}', BROKEN, '{"metadata": {}}')
    api.delete_all("/pods", {"labelSelector": "a=b"})
    first, second = (("DELETE", f"/pods?labelSelector=a%3Db&limit=100{rest}") for rest in ("", "&continue=next"))
    assert transport.requests == [first, second, second]


def test_absent_objects() -> None:
    api, _ = connect(404, 404, 404)
    assert api.send("DELETE", "/x") == {}
    assert api.find("/x") is None
    with pytest.raises(errors.ApiError):
        api.get("/x")


class BrokenStream(urllib3.HTTPResponse):
    """A response that breaks in its second line."""

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:  # type: ignore[override]
        yield from (b"one\ntw", b"o\nhal")
        raise BROKEN


def test_lines_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    api, transport = connect("one\n\ntwo\nthree")
    with api.lines("/x") as lines:
        assert list(lines) == ["one", "", "two", "three"]
    api, transport = connect(*["one\n" * 100_000] * 2)
    for count in (0, 1):
        with api.lines("/x") as lines:
            assert list(itertools.islice(lines, count)) == ["one"] * count
    broken = BrokenStream()
    monkeypatch.setattr(transport, "request", lambda *_, **__: broken)
    with api.lines("/x") as lines:
        assert list(lines) == ["one", "two"]
    assert all(response.closed for response in (*transport.responses, broken))


def test_a_line_without_an_end_takes_little_memory() -> None:
    assert list(lines.split([b"a", b"b\n", b"c" * 10, b"d\n", b"e"], limit=9)) == [b"ab", b"c" * 10, b"d", b"e"]
    sizes = [len(line) for line in lines.split(itertools.repeat(bytes(1 << 16), 200))]
    assert sum(sizes) == 200 << 16
    assert max(sizes) <= lines.MAX_LINE + (1 << 16)


NO_GROUPS = '{"groups": []}'


def version(minor: str) -> str:
    return f'{{"major": "1", "minor": "{minor}", "gitVersion": "v1.{minor}"}}'


@pytest.mark.parametrize("minor", ["28", "29+"])
def test_a_new_api_server(minor: str) -> None:
    assert connect(NO_GROUPS, version(minor))[0].require_version() == frozenset()


def test_one_request_tells_that_an_api_server_is_new_and_what_it_has() -> None:
    groups = [("apps", "v1"), ("flowcontrol.apiserver.k8s.io", "v1"), ("scheduling.k8s.io", "v1beta1")]
    answer = {"groups": [{"name": name, "versions": [{"groupVersion": f"{name}/{one}"}]} for name, one in groups]}
    api, transport = connect(json.dumps(answer))
    assert api.require_version() == {f"{name}/{one}" for name, one in groups}
    assert transport.requests == [("GET", "/apis")]


def test_an_old_api_server_is_an_error() -> None:
    with pytest.raises(errors.ApiError, match=r'^context "one" runs Kubernetes v1\.27; tfk8s needs 1\.28 or newer$'):
        connect(NO_GROUPS, version("27"))[0].require_version()


@pytest.mark.parametrize(("kind", "forces"), [("PodGroup", True), ("PodDisruptionBudget", True), ("Service", False)])
def test_numbers_that_an_administrator_has_changed_are_taken_back(kind: str, forces: bool) -> None:
    client, responses = connect(200)
    client.apply("/x", {"kind": kind})
    assert ("force=true" in responses.requests[0][1]) is forces


def test_queries_are_encoded() -> None:
    query = {"watch": True, "tailLines": 5, "labelSelector": "a=b,c!=d"}
    assert client.add_query("/x", query) == "/x?watch=true&tailLines=5&labelSelector=a%3Db%2Cc%21%3Dd"
    assert client.add_query("/x") == "/x"


@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', "NaN", "[" * 100_000])
def test_an_answer_that_is_no_object_is_no_answer(text: str) -> None:
    api, _ = connect(text)
    with pytest.raises(errors.NoResponse, match="its answer is no object of Kubernetes"):
        api.send("POST", "/x")


@pytest.mark.parametrize(
    "text", ["{}", '{"items": 5, "metadata": {}}', '{"items": []}', '{"items": [1], "metadata": {}}']
)
def test_an_answer_that_is_no_list_is_no_answer(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_TIMEOUT", 0.0)
    api, _ = connect(text)
    with pytest.raises(errors.NoResponse, match="its answer is no list of Kubernetes"):
        api.get("/x", {"watch": False})


def test_a_list_without_an_end_ends() -> None:
    api, _ = connect(*['{"items": [], "metadata": {"continue": "x"}}'] * 1000)
    with pytest.raises(errors.NoResponse, match="its list does not end"):
        api.get("/x", {"watch": False})


def test_an_answer_without_an_end_ends() -> None:
    response = urllib3.HTTPResponse(io.BytesIO(b"1" * (1 << 20)), preload_content=False)
    times = itertools.count(step=10.0)
    with pytest.raises(OSError, match="its answer does not end within 256 MiB and 60 s"):
        answers.body(response, clock=lambda: next(times))
