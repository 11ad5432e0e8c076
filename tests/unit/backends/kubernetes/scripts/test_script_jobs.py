"""The folder of a script with a pod of its own: in the Secret as long as Kubernetes allows it, then through `exec`."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes.api_server import commands
from tfk8s.backends.kubernetes.scripts import namespace_rules, script_jobs, script_pod
from tfk8s.backends.kubernetes.workloads import deployed
from tfk8s.core.script import Script
from tfk8s.errors import BackendUnreachable, ClusterError
from tfk8s.render import package_files, program_job, script_job

LIMIT = 1_048_576  # Kubernetes' MaxSecretSize
ROOM = LIMIT - len(package_files.zip_of_scripts())


class Client:
    """An API server that keeps what is created."""

    def __init__(self) -> None:
        self.created: dict[str, dict[str, Any]] = {}

    def send(self, method: str, path: str, query: object = None, body: Any = None) -> Any:
        if body:
            self.created[body["kind"]] = body
        return {"metadata": {"uid": "uid"}}


@pytest.mark.parametrize("size", [1, 551_000, 700_000, ROOM, ROOM + 1, LIMIT])
def test_a_secret_is_never_over_its_limit(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    sent: list[bytes] = []
    monkeypatch.setattr(namespace_rules, "read", lambda client, namespace: {})
    monkeypatch.setattr(script_pod, "wait_for_start", lambda *arguments: {"metadata": {"name": "pod"}})
    monkeypatch.setattr(commands, "execute", lambda *arguments, container: sent.extend(arguments[4]))
    client, archive = Client(), os.urandom(size)
    items = [item for item in render.objects(job_file(image="tf:1"), "ns") if item["kind"] == "StatefulSet"]
    cluster = deployed.describe(
        [{**item, "metadata": {"namespace": "ns", "uid": "", **item["metadata"]}} for item in items]
    )
    script_jobs._create(SimpleNamespace(client=client), cluster, Script(path=Path("a.py")), archive)  # type: ignore[arg-type]
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
