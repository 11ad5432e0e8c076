"""The pod that reads a shared history: its image, the wait for it, its end, and its answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import websocket
from fakes.web_socket import Stream

from tfk8s import polling
from tfk8s.backends.history import files, index
from tfk8s.backends.history.merging import Pulled
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.scripts import history_reader
from tfk8s.errors import ClusterError, InvalidInput, WaitTimeout
from tfk8s.render import history_pod

BINARY = websocket.ABNF.OPCODE_BINARY
SUCCESS = (BINARY, b'\3{"status": "Success"}')
CAUSES = [{"reason": "ExitCode", "message": "1"}]
FAILURE = (BINARY, b"\3" + json.dumps({"status": "Failure", "details": {"causes": CAUSES}}).encode())
RUNNING = {"phase": "Running"}
NAME = "mnist.0f7d3c1e-0000-4000-8000-00000000000a"
END = b'{"left_out": 0}\n'
LISTED = json.dumps({"record": NAME, "mark": "0123456789abcdef"}).encode() + b"\n" + END


class Server:
    """An API server with a claim, whose pods have a status."""

    context = "a"
    refusal: ApiError | None = None

    def __init__(self, *statuses: dict[str, Any], claim: Any = True, pods: Any = (), events: Any = ()) -> None:
        self.statuses, self.claim, self.pods, self.events = list(statuses), claim, list(pods), list(events)
        self.created: list[dict[str, Any]] = []
        self.deleted: list[str] = []

    def find(self, path: str) -> Any:
        assert path == "/api/v1/namespaces/team/persistentvolumeclaims/tfk8s-history"
        if isinstance(self.claim, Exception):
            raise self.claim
        return {"metadata": {}} if self.claim else None

    def get(self, path: str, query: Any = None) -> Any:
        if path.endswith("/pods"):
            return {"items": self.pods}
        if path.endswith("/events"):
            return {"items": self.events}
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return {**self.created[-1], "metadata": {"uid": "u", "name": "x"}, "status": status}

    def send(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        if method == "POST":
            self.created.append(body)
            if self.refusal:
                raise self.refusal
        else:
            self.deleted.append(path.rpartition("/")[2])
        return {}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(history_reader, "START_TIMEOUT", 0.02)
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, bytes]]]:
    """The messages of each command in the pod."""
    given: list[list[tuple[int, bytes]]] = []
    monkeypatch.setattr(streams, "open_stream", lambda *_: Stream(*given.pop(0)))
    return given


def pull(server: Server, image: str | None = None) -> Pulled:
    try:
        return history_reader.pull(server, "team", "tfk8s-history", cluster=None, last=30, image=image)  # type: ignore[arg-type]
    finally:
        assert server.deleted[-1:] == [body["metadata"]["name"] for body in server.created[-1:]]


def output(data: bytes) -> tuple[int, bytes]:
    return BINARY, b"\1" + data


def record(facts: bytes = b'{"kind": "start", "time": 1}\n') -> bytes:
    import gzip

    packed = gzip.compress(facts)
    header = {"record": NAME, "mark": "0123456789abcdef", "parts": [["facts.jsonl", len(packed)]]}
    return json.dumps(header).encode() + b"\n" + packed


def test_records_come_into_the_history_once(answers: Any) -> None:
    answers += [[output(LISTED), SUCCESS], [output(record()), output(END), SUCCESS], [output(LISTED), SUCCESS]]
    assert pull(Server(RUNNING)) == Pulled(new=1)
    assert [row.location for row in index.rows()] == ["context a, namespace team"]
    assert pull(Server(RUNNING)) == Pulled(same=1)
    assert answers == []


def test_a_record_without_a_start_is_named(answers: Any) -> None:
    answers += [[output(LISTED), SUCCESS], [output(record(b"[]\n") + END), SUCCESS]]
    assert pull(Server(RUNNING)).problems == [f"record {NAME} is left out: nothing tells its start"]
    assert files.of_name("mnist") == []


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([output(b"[]\n")], "the answer of the pod that reads claim \"tfk8s-history\" has a wrong form: it is cut off"),
        ([output(LISTED[:9]), SUCCESS], "the answer of the pod that reads claim \"tfk8s-history\" has a wrong form"),
        ([(BINARY, b"\2Traceback\nPermissionError: no"), FAILURE],
         'claim "tfk8s-history" can\'t be read: PermissionError: no'),
        ([], 'claim "tfk8s-history" can\'t be read: the stream to pod tfk8s-history-'),
    ],
)  # fmt: skip
def test_another_answer_is_one_error(answers: Any, messages: list[tuple[int, bytes]], error: str) -> None:
    answers.append(messages)
    with pytest.raises(ClusterError) as caught:
        pull(Server(RUNNING))
    assert str(caught.value).startswith(error)


def test_a_record_that_nobody_asked_for_is_refused(answers: Any) -> None:
    answers += [[output(LISTED), SUCCESS], [output(record().replace(b"mnist.", b"other.") + END), SUCCESS]]
    with pytest.raises(ClusterError, match="it has a record that nobody asked for"):
        pull(Server(RUNNING))


def test_a_missing_claim_is_refused_before_there_is_a_pod() -> None:
    server = Server(RUNNING, claim=None)
    with pytest.raises(InvalidInput, match='there is no PersistentVolumeClaim "tfk8s-history" in namespace "team"'):
        pull(server)
    assert server.created == []


def test_users_who_may_not_read_claims_go_on(answers: Any) -> None:
    answers.append([output(END), SUCCESS])
    assert pull(Server(RUNNING, claim=ApiError(403, "no"))) == Pulled()
    with pytest.raises(ApiError, match="no"):
        pull(Server(RUNNING, claim=ApiError(500, "no")))


def writer(name: str, created: str, claim: str = "tfk8s-history") -> dict[str, Any]:
    spec = {
        "containers": [{"name": "proxy", "image": "sidecar"}, {"name": "lifetime", "image": name}],
        "imagePullSecrets": [{"name": "s"}],
        "volumes": [{"name": "x"}, {"name": "h", "persistentVolumeClaim": {"claimName": claim}}],
    }  # fmt: skip
    labels = {"app.kubernetes.io/component": "cluster-lifetime"}
    return {"metadata": {"name": name, "labels": labels, "creationTimestamp": created}, "spec": spec}


@pytest.mark.parametrize(
    ("image", "pods", "chosen"),
    [
        (None, [], history_pod.DEFAULT_IMAGE),
        (None, [writer("new", "2026-02"), writer("old", "2026-01"), writer("other", "2026-03", "another")], "new"),
        (None, [writer("", "2026-02")], history_pod.DEFAULT_IMAGE),
        ("mine", [writer("new", "2026-02")], "mine"),
    ],
)
def test_the_image_is_that_of_the_newest_writer(answers: Any, image: Any, pods: Any, chosen: str) -> None:
    answers.append([output(END), SUCCESS])
    server = Server(RUNNING, pods=pods)
    pull(server, image)
    (body,) = server.created
    assert body["spec"]["containers"][0]["image"] == chosen
    assert body["spec"].get("imagePullSecrets", []) == ([{"name": "s"}] if pods and image is None else [])


def test_a_pod_that_a_killed_command_has_left_is_deleted_when_it_has_ended(answers: Any) -> None:
    answers.append([output(END), SUCCESS])
    labels = {"app.kubernetes.io/component": "history-reader"}
    ended, other = (
        {"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}}
        for name, phase in (("ended", "Failed"), ("other", "Running"))
    )
    server = Server(RUNNING, pods=[ended, other])
    pull(server)
    assert server.deleted == ["ended", server.created[0]["metadata"]["name"]]


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (waiting("ErrImagePull", "not found"), "ErrImagePull: not found"),
        (waiting("CreateContainerError", "no python3"), "CreateContainerError: no python3"),
        ({"phase": "Failed", "message": "the node was short of memory"}, "the node was short of memory"),
        ({"phase": "Succeeded"}, "it has ended"),
        ({"phase": "Failed", "containerStatuses": [
            {"state": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "no python3"}}}]},
         "StartError: no python3"),
    ],
)  # fmt: skip
def test_a_pod_that_can_not_run_says_why(status: Any, reason: str) -> None:
    with pytest.raises(ClusterError) as caught:
        pull(Server({"phase": "Pending"}, status))
    assert str(caught.value) == f'the pod that reads claim "tfk8s-history" can\'t run: {reason}'
    assert caught.value.help == "--image IMAGE names an image with Python 3 that the nodes can pull"


def event(reason: str, message: str) -> dict[str, Any]:
    return {"type": "Warning", "reason": reason, "message": message, "involvedObject": {"uid": "u"}}


@pytest.mark.parametrize(
    ("status", "events", "reason"),
    [
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes: cpu"}]},
         [], ": 0/1 nodes: cpu"),
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]},
         [], ": it waits for the scheduler"),
        (waiting("ContainerCreating"), [event("FailedMount", "volume is busy")], ": volume is busy"),
        ({"phase": "Pending"}, [], ""),
    ],
)  # fmt: skip
def test_a_pod_that_waits_for_long_says_why(status: Any, events: Any, reason: str) -> None:
    with pytest.raises(WaitTimeout) as caught:
        pull(Server(status, events=events))
    assert str(caught.value) == f'waited 0.02 s for the pod that reads claim "tfk8s-history" to start{reason}'


def test_a_quota_that_is_used_up_has_advice() -> None:
    server = Server(RUNNING)
    server.refusal = ApiError(403, "exceeded quota")
    with pytest.raises(ApiError, match="exceeded quota") as caught:
        pull(server)
    assert caught.value.help == (
        "ask for room: the pod requests 10m of a core and 32Mi, with limits of 500m and 128Mi"
    )  # fmt: skip
    server.refusal = ApiError(403, "no right", help="a Role")
    with pytest.raises(ApiError, match="no right") as caught:
        pull(server)
    assert caught.value.help == "a Role"


def test_ctrl_c_leaves_no_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(streams, "open_stream", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pull(Server(RUNNING))


def test_the_pod_meets_the_standard_restricted_and_ends_by_itself() -> None:
    pod = history_pod.render("x", "tfk8s-history", "image")
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["activeDeadlineSeconds"] == 600
    assert not spec["automountServiceAccountToken"]
    assert container["volumeMounts"] == [{"name": "history", "mountPath": "/history", "readOnly": True}]
    assert container["resources"]["requests"] == {"cpu": "10m", "memory": "32Mi", "ephemeral-storage": "128Mi"}
    assert "tolerations" not in spec
