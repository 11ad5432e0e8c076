"""Copies of the files of programs, from pods whose ends of the stream are real."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.pods import disruptions
from tfk8s.backends.kubernetes.scripts.stream import program_files, script_stream
from tfk8s.backends.kubernetes.scripts.stream.program_files import ProgramFiles
from tfk8s.core.script import Download
from tfk8s.core.spec import Task
from tfk8s.errors import BackendUnreachable, ClusterError, NoSuchCluster
from tfk8s.task.stream import channel, pod_link
from tfk8s.task.stream.channel import Channel
from tfk8s.task.stream.pod_link import PodLink

WORKER = Task("worker", 0)
CLUSTER: Any = SimpleNamespace(name="demo", namespace="ns", tasks=(WORKER, Task("worker", 1)))


class Pods:
    """An API server with the pods of worker/0, one after another.

    Attributes:
        links: the pods' ends of the streams, by name.
        items: the pods.
        failures: what the next lists of pods raise.
    """

    def __init__(self) -> None:
        self.links: dict[str, tuple[socket.socket, PodLink]] = {}
        self.items: list[dict[str, Any]] = []
        self.failures: list[Exception] = []

    def start(self, name: str) -> None:
        """Start a pod in place of the last one."""
        listener = socket.create_server(("127.0.0.1", 0))
        link = PodLink(listener, None, None)
        link.start()
        self.links[name] = listener, link
        labels = {"batch.kubernetes.io/job-completion-index": "0", "batch.kubernetes.io/job-name": "demo-worker"}
        metadata = {"name": name, "namespace": "ns", "uid": name, "labels": labels, "creationTimestamp": name}
        self.items = [{"metadata": metadata, "status": {"phase": "Running"}}]

    def end(self, name: str, *paths: str, pod_ends: bool = False) -> None:
        """End the program of a pod, and wait until the client knows."""
        result = pod_link.end({"exit": 0}, note="", files=bool(paths), pod_ends=pod_ends)
        self.links[name][1].end(result, paths)
        del self.links[name]

    def dial(self, _client: object, _namespace: str, name: str, _port: int) -> socket.socket:
        """Return a connection to a pod."""
        return socket.create_connection(self.links[name][0].getsockname(), 20)

    def get(self, _path: str, _query: object) -> dict[str, Any]:
        """Return the pods."""
        if self.failures:
            raise self.failures.pop(0)
        return {"items": self.items}

    def find(self, path: str) -> dict[str, Any] | None:
        """Return a pod."""
        return next((pod for pod in self.items if path.endswith(f"/{pod['metadata']['name']}")), None)


@pytest.fixture
def pods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Pods]:
    made = Pods()
    monkeypatch.setattr(streams, "dial", made.dial)
    monkeypatch.setattr(script_stream, "REDIAL_INTERVAL", 0.0)
    monkeypatch.setattr(program_files, "INTERVAL", 0.01)
    monkeypatch.setenv(channel.CLIENT_VARIABLE, "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "left").write_text("a model")
    yield made
    monkeypatch.delenv(channel.CLIENT_VARIABLE)  # the pods wait for no client
    for name in list(made.links):
        made.end(name)


def copies(pods: Pods, find: Any = lambda: CLUSTER) -> ProgramFiles:
    return ProgramFiles(pods, find, {WORKER: [Download("left", Path("here"))]})  # type: ignore[arg-type]


def test_pods_get_the_files_of_their_tasks_as_a_variable() -> None:
    wanted = {
        WORKER: [Download("a", Path("a")), Download("b", Path("b"))],
        Task("worker", 2): [Download("c", Path("c"))],
        Task("chief", 0): [Download("a", Path("d"))],
    }
    made = ProgramFiles(None, lambda: CLUSTER, wanted).environment  # type: ignore[arg-type]
    assert {job: json.loads(variables["TFK8S_DOWNLOADS"]) for job, variables in made.items()} == {
        "worker": {"0": ["a", "b"], "2": ["c"]},
        "chief": {"0": ["a"]},
    }


def test_files_are_copied_when_the_program_has_ended(pods: Pods) -> None:
    missing: list[Exception] = [NoSuchCluster("demo"), BackendUnreachable("no answer")]

    def find() -> Any:
        if missing:
            raise missing.pop(0)
        return CLUSTER

    with copies(pods, find) as files:
        pods.start("pod-1")
        polling.wait_until(lambda: not missing, "the pod to be found", 20)
        pods.end("pod-1", "left")
        assert files.finish() == []
    assert Path("here").read_text() == "a model"


def test_the_next_pod_of_a_program_has_the_files(pods: Pods) -> None:
    with copies(pods) as files:
        pods.start("pod-1")
        pods.end("pod-1", pod_ends=True)
        pods.start("pod-2")
        pods.end("pod-2", "left")
        assert files.finish() == []


def test_a_run_that_ends_before_the_program_says_so(pods: Pods) -> None:
    with copies(pods) as files:
        pods.start("pod-1")
        assert files.finish() == ["worker/0: its files were not copied: its program did not end by itself"]


def test_missing_files_are_named(pods: Pods) -> None:
    with copies(pods) as files:
        pods.start("pod-1")
        pods.end("pod-1", "none")
        assert files.finish() == ['worker/0: "none" was not copied: there is no such file or folder']


def test_a_pod_does_not_wait_for_a_client_that_can_not_store_its_files(
    pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left").write_bytes(bytes(5_000_000))
    monkeypatch.setenv("TFK8S_GET_LIMIT", "1Mi")
    with copies(pods) as files:
        pods.start("pod-1")
        pods.end("pod-1", "left")
        (problem,) = files.finish()
    assert problem.startswith("worker/0: its files were not copied: the files have more than 1Mi bytes")


def test_a_pod_that_goes_while_its_files_travel_is_waited_for_no_longer(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods.start("pod-1")
    near, far = socket.socketpair()
    monkeypatch.setattr(streams, "dial", lambda *_: near)
    with copies(pods) as files:
        channel.hear_hello(far)
        channel.say_hello(far, {"received": 0})
        one = Channel()
        one.attach(far, 0)
        one.send_json(channel.END, pod_link.end({"exit": 0}, note="", files=True))
        one.send(channel.FILES, b'["file", "0", 100, false]\n0123456789')
        while not one.is_acknowledged:
            assert polling.readable(far, 20)
            one.read()
        pods.items.clear()
        one.detach()
        assert files.finish() == [f"worker/0: its files were not copied: the copy broke off: {disruptions.DELETED}"]


def test_who_may_not_connect_is_told_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_files.access_review, "may_connect", lambda *_: False)
    with pytest.raises(ClusterError, match="you may not connect to pods") as error:
        program_files.require_connections(None, "ns")  # type: ignore[arg-type]
    assert error.value.help == "leave out --get, and let the programs write to a volume of the job file"
