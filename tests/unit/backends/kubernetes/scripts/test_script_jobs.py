"""The folder of a script with a pod of its own: in the Secret as long as Kubernetes allows it, then over the stream."""

from __future__ import annotations

import base64
import contextlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes.api_server import access_review, streams
from tfk8s.backends.kubernetes.scripts import namespace_rules, script_archive, script_jobs, script_pod
from tfk8s.backends.kubernetes.scripts.stream.pod_stream import PodScript
from tfk8s.backends.kubernetes.workloads import deployed
from tfk8s.core.script import Download, Outcome, Script
from tfk8s.errors import BackendUnreachable, ClusterError
from tfk8s.render import package_files, program_job, script_job
from tfk8s.task.stream import channel

LIMIT = 1_048_576  # Kubernetes' MaxSecretSize
ROOM = LIMIT - len(package_files.zip_of_scripts())


class Client:
    """An API server that keeps what is created."""

    def __init__(self) -> None:
        self.created: dict[str, dict[str, Any]] = {}
        self.deleted: list[str] = []

    def send(self, method: str, path: str, query: object = None, body: Any = None) -> Any:
        if method == "DELETE":
            self.deleted.append(path)
        if body:
            self.created[body["kind"]] = body
        return {"metadata": {"uid": "uid"}}


@pytest.mark.parametrize("size", [1, 551_000, 700_000, ROOM, ROOM + 1, LIMIT])
@pytest.mark.parametrize("may_connect", [True, False])
def test_a_secret_is_never_over_its_limit(monkeypatch: pytest.MonkeyPatch, size: int, *, may_connect: bool) -> None:
    sent: list[bytes] = []
    monkeypatch.setattr(namespace_rules, "read", lambda client, namespace: {})
    monkeypatch.setattr(script_pod, "wait_for_start", lambda *arguments: {"metadata": {"name": "pod"}})
    monkeypatch.setattr(PodScript, "upload", lambda _, archive: sent.append(archive))
    monkeypatch.setattr(access_review, "may_connect", lambda *_: may_connect)
    client: Any = Client()
    archive = os.urandom(size)
    items = [item for item in render.objects(job_file(image="tf:1"), "ns") if item["kind"] == "StatefulSet"]
    cluster = deployed.describe(
        [{**item, "metadata": {"namespace": "ns", "uid": "", **item["metadata"]}} for item in items]
    )
    monkeypatch.setattr(script_jobs, "Informer", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(script_archive, "pack", lambda *_: archive)
    if size > ROOM and not may_connect:
        with pytest.raises(ClusterError, match=r"^the script's folder can't be passed on: you may not connect to pods"):
            script_jobs.start(client, cluster, Script(path=Path("a.py")))
        assert not client.created
        return
    script_jobs.start(client, cluster, Script(path=Path("a.py")))
    data = client.created["Secret"]["data"]
    assert sum(len(base64.b64decode(value)) for value in data.values()) <= LIMIT
    assert (script_job.ARCHIVE in data, b"".join(sent)) == ((True, b"") if size <= ROOM else (False, archive))


class EndingCluster:
    """An API server whose StatefulSets are the next of some lists, and then the last of them."""

    context, namespace = "test", "ns"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def get(self, path: str, query: object) -> Any:
        if not path.endswith("/statefulsets"):
            return {"items": []}
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"items": answer}

    find = get


def tasks(**metadata: str) -> list[Any]:
    objects = render.objects(job_file(image="tf:1"), "ns")
    return [
        {**item, "metadata": {"namespace": "ns", "uid": "", **item["metadata"], **metadata}}
        for item in objects if item["kind"] == "StatefulSet"
    ]  # fmt: skip


DELETED = tasks(deletionTimestamp="2026-11-28T05:29:54Z")


@pytest.mark.parametrize("answers", [[tasks(), tasks(), []], [tasks(), DELETED], [[]]])
def test_a_script_whose_pod_is_gone_before_the_tasks_are_says_that_its_cluster_was_removed(answers: list[Any]) -> None:
    client: Any = EndingCluster(*answers)
    with pytest.raises(ClusterError, match=r"was removed by `tfk8s down`, while a\.py ran"):
        script_jobs.require_cluster(client, deployed.describe(tasks()), Script(path=Path("a.py")))


@pytest.mark.parametrize("answer", [tasks(), BackendUnreachable("away")])
def test_a_script_whose_pod_alone_is_gone_says_so(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_jobs, "REMOVAL_TIMEOUT", 0.1)
    client: Any = EndingCluster(answer)
    script_jobs.require_cluster(client, deployed.describe(tasks()), Script(path=Path("a.py")))


def test_the_folder_of_programs_has_the_secret_for_itself() -> None:
    assert program_job.max_secret_bytes() == LIMIT


def test_a_secret_holds_the_folders_that_are_no_large_ones_beside_the_package() -> None:
    assert ROOM > 700_000


@pytest.mark.parametrize(
    ("begun", "downloads", "message"),
    [
        (b"in", (), r"^the script's standard input can't be passed on: you may not connect to pods"),
        (b"", (), r"^the script's standard input can't be passed on: you may not connect to pods"),
        (None, (Download("model", Path("model")),), r"^the script's files can't be passed on: you may not connect"),
    ],
)
def test_what_needs_a_connection_is_refused_before_anything_is_made_where_the_user_may_not_connect(
    monkeypatch: pytest.MonkeyPatch, begun: bytes | None, downloads: tuple[Download, ...], message: str
) -> None:
    monkeypatch.setattr(streams, "begin_stdin", lambda: begun)
    monkeypatch.setattr(access_review, "may_connect", lambda *_: False)
    client: Any = Client()
    with pytest.raises(ClusterError, match=message):
        script_jobs.run(client, deployed.describe(tasks()), Script(path=Path("a.py"), downloads=downloads), b"")
    assert client.created == {}


@pytest.fixture
def unconnected(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The API server of a user who may not connect to pods."""

    def informer(client: object, *_: str) -> contextlib.nullcontext[SimpleNamespace]:
        return contextlib.nullcontext(SimpleNamespace(client=client))

    monkeypatch.setattr(streams, "begin_stdin", lambda: None)
    monkeypatch.setattr(access_review, "may_connect", lambda *_: False)
    monkeypatch.setattr(script_jobs, "Informer", informer)
    monkeypatch.setattr(namespace_rules, "read", lambda client, namespace: {})
    return Client()


def test_a_script_of_a_user_who_may_not_connect_is_followed_by_its_log(
    monkeypatch: pytest.MonkeyPatch, unconnected: Any
) -> None:
    def follow(*arguments: Any) -> Outcome:
        assert arguments[-1] is None, "no stream"
        return Outcome(5)

    monkeypatch.setattr(script_pod, "wait_for_start", lambda *_: {})
    monkeypatch.setattr(script_pod, "follow", follow)
    outcome = script_jobs.run(unconnected, deployed.describe(tasks()), Script(path=Path("a.py")), b"archive")
    assert outcome == Outcome(5)
    (container,) = unconnected.created["Job"]["spec"]["template"]["spec"]["containers"]
    assert channel.CLIENT_VARIABLE not in {variable["name"] for variable in container["env"]}
    assert unconnected.deleted == []


def test_a_script_that_can_not_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch, unconnected: Any) -> None:
    def wait_for_start(*_: object) -> None:
        raise ClusterError("it can't start")

    monkeypatch.setattr(script_pod, "wait_for_start", wait_for_start)
    with pytest.raises(ClusterError, match="it can't start"):
        script_jobs.run(unconnected, deployed.describe(tasks()), Script(path=Path("a.py")), b"archive")
    assert len(unconnected.deleted) == 1
