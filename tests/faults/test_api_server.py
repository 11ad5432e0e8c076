"""Faults between tfk8s and an API server, at every request: the same result, or one error."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes import api_server
from fakes.api_server import ApiServer, Fault, refuses

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import client, paths, reflector
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError, TemporaryApiError
from tfk8s.backends.kubernetes.api_server.reflector import ObjectChange, Reflector
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.backends.kubernetes.informer import ObjectCache
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.core.status import Phase
from tfk8s.errors import BackendUnreachable, NoSuchCluster

JOB_FILE = JobFile(name="demo", image="x", jobs=(Job(name="chief"), Job(name="ps", tasks=2)), master="chief")
PODS = paths.collection("Pod", "here")

FAULTS: dict[str, Fault] = {
    "429": refuses(429, **{"retry-after": "0"}),
    "500": refuses(500),
    "503": refuses(503),
    "it hangs up": api_server.hangs_up,
    "the answer is lost": api_server.loses_the_answer,
    "the answer is cut off": api_server.cuts_the_answer,
    "half an object": api_server.answers_half_an_object,
    "no answer": api_server.stalls,
}


@pytest.fixture
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Fault:
    """One of `FAULTS` or `BREAKS`; only where no answer comes is the wait for it short."""
    if request.param == "no answer":
        monkeypatch.setattr(client, "READ_TIMEOUT", 0.2)
        monkeypatch.setattr(reflector, "STREAM_TIMEOUT", 0)
        monkeypatch.setattr(reflector, "DEAD_STREAM_TIMEOUT", 0.2)
    return {**FAULTS, **BREAKS}[request.param]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.setattr(polling, "FIRST_RETRY_INTERVAL", 0.001)
    with ApiServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        yield server


def backend() -> KubernetesBackend:
    return KubernetesBackend()


def wanted(server: ApiServer) -> dict[str, object]:
    """Return what there is, but for what differs between two that were made alike."""
    own = ("uid", "resourceVersion")
    return {
        path: {**thing, "metadata": {key: value for key, value in thing["metadata"].items() if key not in own}}
        for path, thing in server.objects.items()
    }


def calls_of(server: ApiServer, action: Callable[[], object]) -> int:
    before = len(server.requests)
    action()
    return len(server.requests) - before


@pytest.mark.parametrize("fault", FAULTS, indirect=True)
def test_up_and_down_survive_a_fault_at_each_request(server: ApiServer, fault: Fault) -> None:
    calls = calls_of(server, lambda: backend().apply(JOB_FILE))
    server.make_pods()
    expected = wanted(server)
    assert backend().observe("demo").phase is Phase.READY
    ends = calls_of(server, lambda: backend().delete("demo"))
    assert server.objects == {}
    for call in range(calls):
        server.faults[len(server.requests) + call] = fault
        assert backend().apply(JOB_FILE) is True
        server.make_pods()
        assert wanted(server) == expected, f"request {call} of {calls}"
        server.faults[len(server.requests) + call % ends] = fault
        backend().delete("demo")
        assert server.objects == {}, f"request {call % ends} of {ends}"
    assert server.faults == {}


def test_up_and_down_of_a_gang(server: ApiServer) -> None:
    server.versions = ("scheduling.k8s.io/v1beta1",)
    assert backend().apply(JOB_FILE) is True
    path = "/apis/scheduling.k8s.io/v1beta1/namespaces/here/podgroups/demo"
    assert server.objects[path]["spec"] == {"schedulingPolicy": {"gang": {"minCount": 3}}}
    assert backend().apply(JOB_FILE) is False
    server.versions = ()
    assert backend().apply(dataclasses.replace(JOB_FILE, gang=False)) is True
    assert path not in server.objects
    server.versions = ("scheduling.k8s.io/v1beta1",)
    assert backend().apply(JOB_FILE) is False  # the cluster stays what it is
    backend().apply(dataclasses.replace(JOB_FILE, gang=True))
    backend().delete("demo")
    assert server.objects == {}


def test_without_pod_groups_no_request_asks_for_them(server: ApiServer) -> None:
    backend().apply(JOB_FILE)
    backend().apply(JOB_FILE)
    backend().delete("demo")
    assert server.requests[0] == "GET /apis"
    assert not [request for request in server.requests if "/version" in request or "scheduling" in request]


@pytest.mark.parametrize("fault", FAULTS, indirect=True)
def test_reads_survive_a_fault_at_each_request(server: ApiServer, fault: Fault) -> None:
    backend().apply(JOB_FILE)
    server.logs["demo-ps-1"] = ["2026-01-01T00:00:01Z one", "2026-01-01T00:00:02Z two"]

    def look() -> tuple[object, object]:
        mine = backend()
        lines = mine.logs("demo", [Task("ps", 1)], LogOptions())
        return mine.observe("demo"), [line.text for line in lines]

    expected = look()
    calls = calls_of(server, look)
    for call in range(calls):
        server.faults[len(server.requests) + call] = fault
        if fault is not api_server.answers_half_an_object or call < calls - 1:  # a text that was cut is a text
            assert look() == expected, f"request {call} of {calls}"
    assert set(server.faults) <= {len(server.requests) + calls - 1}


@pytest.mark.parametrize("fault", FAULTS, indirect=True)
def test_post_is_retried_only_if_the_server_refused_it(server: ApiServer, fault: Fault) -> None:
    mine = Client(None)
    mine.require_version()
    server.faults[len(server.requests)] = fault
    before, heard = len(server.requests), fault is not FAULTS["429"]
    body = {"metadata": {"name": "a"}}
    if heard:
        with pytest.raises(BackendUnreachable):
            mine.send("POST", paths.collection("Secret", "here"), body=body)
    else:
        mine.send("POST", paths.collection("Secret", "here"), body=body)
    assert len(server.requests) == before + (1 if heard else 2)


@pytest.mark.parametrize("fault", FAULTS, indirect=True)
def test_a_permanent_fault_is_an_error_in_bounded_time(
    server: ApiServer, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RETRY_TIMEOUT", 0.2)
    mine = backend()
    server.always = fault
    with pytest.raises(BackendUnreachable) as caught:
        mine.observe("demo")
    address = f"http://127.0.0.1:{server.port}"
    if isinstance(caught.value, TemporaryApiError):
        assert str(caught.value) == 'the API server of context "fake" can\'t serve the request now: Faulty'
    else:
        cause = "no answer in time" if fault is api_server.stalls else "its answer was cut off"
        assert str(caught.value) == f'the API server of context "fake" ({address}) does not answer: {cause}'


def test_retry_after_is_respected_or_refused_at_once(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(polling.Retries.__init__, "__kwdefaults__", {
        **polling.Retries.__init__.__kwdefaults__, "sleep": slept.append,
    })  # fmt: skip
    mine = Client(None)
    server.faults[0] = refuses(429, **{"retry-after": "3"})
    mine.require_version()
    assert slept == [3.0]
    server.faults[len(server.requests)] = refuses(429, **{"retry-after": "60"})
    with pytest.raises(TemporaryApiError):
        mine.require_version()
    assert slept == [3.0]


@pytest.mark.parametrize("call", range(8))
def test_expired_credentials_are_one_error(server: ApiServer, call: int) -> None:
    mine = backend()
    for number in range(call, 60):
        server.faults[number] = refuses(401)
    with pytest.raises(ApiError) as caught:
        mine.apply(JOB_FILE)
    assert len(server.requests) == call + 1
    assert str(caught.value) == (
        'the API server of context "fake" refuses your credentials: they are wrong, or have expired'
    )


def test_a_refused_connection_is_an_error_at_once(server: ApiServer) -> None:
    server.stop()
    with pytest.raises(BackendUnreachable, match="does not answer: Connection refused"):
        backend().apply(JOB_FILE)


@pytest.mark.parametrize("call", [3, 9])
def test_a_restart_of_the_api_server_is_waited_for(
    server: ApiServer, call: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    back = threading.Event()

    def restart(handler: api_server.Handler, serve: Callable[[], None]) -> None:
        threading.Thread(target=go_and_come).start()
        api_server.stalls(handler, serve)

    def go_and_come() -> None:
        server.stop()
        polling.wait_until(lambda: "trying again" in caplog.text, "the client to tell of it", 60)
        server.start()
        back.set()

    server.faults[call] = restart
    assert backend().apply(JOB_FILE) is True
    assert back.wait(60)
    assert len(wanted(server)) >= 8
    assert caplog.messages[-1] == "the API server answers again"


def test_forbidden_is_retried_after_a_broken_connection(server: ApiServer) -> None:
    server.faults |= {3: api_server.hangs_up, 4: refuses(403), 5: refuses(403)}
    assert backend().apply(JOB_FILE) is True
    assert len(wanted(server)) >= 8


def test_forbidden_is_an_error_at_once(server: ApiServer) -> None:
    server.faults[1] = refuses(403)  # the shared history of the namespace, without which the cluster starts
    server.faults[4] = refuses(403)
    with pytest.raises(ApiError):
        backend().apply(JOB_FILE)
    assert len(server.requests) == 5


def test_an_unknown_cluster_differs_from_a_silent_api_server(server: ApiServer) -> None:
    server.faults[1] = refuses(503)
    with pytest.raises(NoSuchCluster):
        backend().observe("absent")


# ---- watches -------------------------------------------------------------------------------------------------------


def breaks_off(handler: api_server.Handler, serve: Callable[[], None]) -> None:
    """The stream ends in the middle of a line."""
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    handler.chunk('{"type": "MODIFIED", "object": {"metad')
    handler.hang_up()


def ends_in_a_line(handler: api_server.Handler, serve: Callable[[], None]) -> None:
    """The stream ends as it should, but for the line."""
    handler.stream(iter(['{"type": "MODIFIED", "obj']))


def ends(handler: api_server.Handler, serve: Callable[[], None]) -> None:
    """The stream has nothing to say."""
    handler.stream(iter(()))


def says_gone(handler: api_server.Handler, serve: Callable[[], None]) -> None:
    """Its version is too old, as an event says."""
    handler.stream(iter(['{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}']))


BREAKS: dict[str, Fault] = {
    **{name: fault for name, fault in FAULTS.items() if name in ("429", "500", "503", "it hangs up", "no answer")},
    "410": refuses(410),
    "410 as an event": says_gone,
    "it breaks off": breaks_off,
    "it ends in a line": ends_in_a_line,
    "it ends": ends,
}


def put(server: ApiServer, name: str, phase: str) -> None:
    metadata = {"name": name, "labels": {"a": "session-script"}}
    spec = {"containers": [], "restartPolicy": "Always"}
    server.put(f"{PODS}/{name}", {"metadata": metadata, "spec": spec, "status": {"phase": phase}})


def told(change: ObjectChange) -> str:
    item = change.object
    return f"{item['metadata']['name']} {'gone, was ' if change.deleted else ''}{item['status']['phase']}"


@pytest.mark.parametrize("fault", BREAKS, indirect=True)
def test_a_watch_loses_no_change_by_a_broken_stream(server: ApiServer, fault: Fault) -> None:
    put(server, "one", "Running")
    changes = Reflector(Client(None), PODS, {}).changes()
    assert told(next(changes)) == "one Running"
    for step in range(3):  # with the fault at the first stream, at a second one, and at two one after another
        for number in range(max(1, step)):
            server.faults[len(server.requests) + number] = fault
        put(server, "two", f"Running {step}")
        assert told(next(changes)) == f"two Running {step}"
        put(server, "two", f"Succeeded {step}")
        server.remove(f"{PODS}/two")
        found = [told(next(changes))]
        if "gone" not in found[0]:
            found.append(told(next(changes)))
        assert found[-1] == f"two gone, was Succeeded {step}"
    changes.close()


def test_an_object_deleted_between_watches_is_reported_as_last_seen(server: ApiServer) -> None:
    put(server, "one", "Running")
    put(server, "two", "Running")
    changes = Reflector(Client(None), PODS, {}).changes()
    assert [told(next(changes)) for _ in range(2)] == ["one Running", "two Running"]
    server.remove(f"{PODS}/one")
    put(server, "two", "Failed")
    server.faults[len(server.requests)] = refuses(410)
    assert [told(next(changes)) for _ in range(2)] == ["one gone, was Running", "two Failed"]


def test_a_good_list_follows_a_bad_object_in_a_watch(server: ApiServer) -> None:
    put(server, "one", "Running")
    changes = Reflector(Client(None), PODS, {}).changes()
    next(changes)
    bad = {"type": "MODIFIED", "object": {**server.objects[f"{PODS}/one"], "status": 5}}
    later = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "90"}}}
    server.faults[len(server.requests)] = lambda handler, _: handler.stream(map(json.dumps, (bad, later)))
    put(server, "one", "Succeeded")
    assert told(next(changes)) == "one Succeeded"
    assert [request.partition("?watch")[0] for request in server.requests[-2:]] == [f"GET {PODS}"] * 2
    assert "watch" not in server.requests[-1]


def test_a_stream_may_be_quiet_for_longer_than_a_request_is_tried(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def speak_late() -> Iterator[str]:
        threading.Event().wait(1.3)
        yield "late"

    monkeypatch.setattr(client, "RETRY_TIMEOUT", 0.1)  # a try has a second at least
    server.faults[0] = lambda handler, _: handler.stream(speak_late())
    with Client(None).lines(PODS, {}, 20.0) as lines:
        assert list(lines) == ["late"]


def test_a_forbidden_watch_is_an_error(server: ApiServer) -> None:
    put(server, "one", "Running")
    changes = Reflector(Client(None), PODS, {}).changes()
    next(changes)
    server.faults[len(server.requests)] = refuses(403)
    with pytest.raises(ApiError):
        next(changes)


def test_a_watch_ends_on_request(server: ApiServer) -> None:
    assert list(Reflector(Client(None), PODS, {}).changes(iter([True, False]).__next__)) == []


def test_the_last_state_of_a_deleted_object_is_known(server: ApiServer) -> None:
    put(server, "one", "Running")
    changes: list[ObjectChange] = []
    cache = ObjectCache(Client(None), PODS, {}, changes.append)
    cache.start()
    put(server, "one", "Succeeded")
    server.remove(f"{PODS}/one")
    polling.wait_until(lambda: changes and changes[-1].deleted, "its end to be seen", 60)
    assert told(changes[-1]) == "one gone, was Succeeded"
    cache.close()
