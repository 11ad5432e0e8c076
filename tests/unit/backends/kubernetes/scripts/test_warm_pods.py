"""Warm pods: how `submit` finds and starts them, which scripts they take, and their status."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from fakes.stateful_sets import stateful_sets

from tfk8s.backends.kubernetes import backend, status
from tfk8s.backends.kubernetes.api_server import errors
from tfk8s.backends.kubernetes.api_server.reflector import ObjectChange
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.backends.kubernetes.scripts import (
    script_archive,
    script_jobs,
    script_pod,
    script_start,
    warm_pods,
    warm_scripts,
)
from tfk8s.backends.kubernetes.scripts.stream.warm_stream import WarmScript
from tfk8s.backends.kubernetes.workloads import deployed, warm_status
from tfk8s.core.progress import StepProgress
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import Download, Outcome, Script, ScriptResources
from tfk8s.errors import BackendUnreachable, ScriptLost
from tfk8s.render import script_job, warm_job
from tfk8s.render.pods import Object

CREATED = "2026-01-01T00:00:00Z"
SCRIPT = Script(path=Path("train.py"))


class StubClient:
    """An API server that creates Jobs, for a user with some verbs for connections to pods."""

    context = "lab"

    def __init__(self, user: str | None = "ann", *, verbs: str = "get create", log: str = "") -> None:
        self._user, self._verbs, self._log = user, verbs.split(), log
        self.jobs: list[Object] = []
        self.deleted: list[str] = []
        self.secrets: set[str] = set()
        self.sent_secrets = 0

    def send(self, method: str, path: str, *_: object, body: Any = None) -> Object:
        kind = path.rpartition("/")[2]
        if method == "DELETE":
            self.deleted.append(kind)
        if kind == "selfsubjectreviews" and self._user is None:
            raise errors.from_response(403, b"{}", "lab")
        if kind == "secrets":
            self.sent_secrets += 1
            if body["metadata"]["name"] in self.secrets:
                raise errors.from_response(409, b"{}", "lab")
            self.secrets.add(body["metadata"]["name"])
        if kind == "selfsubjectreviews":
            return {"status": {"userInfo": {"username": self._user}}}
        if kind == "selfsubjectaccessreviews":
            asked = body["spec"]["resourceAttributes"]
            assert (asked["resource"], asked["subresource"]) == ("pods", "portforward")
            return {"status": {"allowed": asked["verb"] in self._verbs}}
        if kind == "jobs":
            own = {"uid": f"{len(self.jobs)}", "creationTimestamp": f"2026-01-01T00:00:{len(self.jobs):02}Z"}
            body = {**body, "metadata": {**body["metadata"], **own}}
            body["status"] = {}
            self.jobs.append(body)
        return dict(body or {})

    def get(self, *_: object) -> Object:
        return {"items": self.jobs}

    def text(self, *_: object) -> str:
        return self._log


def cluster(*jobs: Object, **annotations: str) -> deployed.DeployedCluster:
    sets = stateful_sets()
    for item in sets:
        item["metadata"]["creationTimestamp"] = CREATED
        item["metadata"]["annotations"].update({f"tfk8s.dev/{name}": value for name, value in annotations.items()})
    return deployed.describe([*sets, *({**job, "kind": "Job"} for job in jobs)])


def start(client: StubClient, *jobs: Object) -> Object | None:
    return warm_pods.start(client, cluster(*jobs))  # type: ignore[arg-type]


def test_a_user_has_one_warm_pod() -> None:
    ann, bob = StubClient("ann"), StubClient("bob")
    (mine, other) = start(ann), start(bob)
    assert mine
    assert other
    assert warm_job.name(mine) != warm_job.name(other)
    assert start(ann, other, mine) == {**mine, "kind": "Job"}
    assert len(ann.jobs) == 1
    ended = {**mine, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    ann.jobs.clear()
    another = start(ann, other, ended)
    assert another == ann.jobs[0]


def test_two_commands_at_once_use_the_same_warm_pod() -> None:
    client = StubClient()
    first = start(client)
    again = start(client)  # the list of its cluster is older than the first Job
    assert again
    assert first
    assert {again["metadata"]["name"]} | set(client.deleted) == {job["metadata"]["name"] for job in client.jobs}


@pytest.mark.parametrize("client", [StubClient(verbs="create"), StubClient(verbs="get"), StubClient(user=None)])
def test_a_user_without_a_name_or_a_right_to_connect_starts_none(client: StubClient) -> None:
    assert start(client) is None
    assert client.jobs == []


def test_a_warm_pod_that_does_not_start_gets_its_files_again_and_goes() -> None:
    client = StubClient()
    job = start(client)
    assert job
    client.secrets.clear()  # as if the command that made the Job had crashed
    pending = {"metadata": {"name": "pod", "uid": "2"}, "status": {"phase": "Pending"}}

    def get(path: str, _: object) -> Object:
        if path.endswith("/pods") and client.secrets:
            raise BackendUnreachable("silence")  # ends the wait
        return {"items": [pending]}

    client.get = get  # type: ignore[method-assign, assignment]
    with pytest.raises(BackendUnreachable):
        warm_pods.get(client, cluster(job))  # type: ignore[arg-type]
    assert client.secrets
    assert client.deleted == [job["metadata"]["name"]]


@pytest.mark.parametrize("is_made_by_another", [True, False])
def test_a_command_that_waits_survives_the_end_of_another_that_waits(
    monkeypatch: pytest.MonkeyPatch, *, is_made_by_another: bool
) -> None:
    client = StubClient()
    before = [made] if is_made_by_another and (made := start(client)) else []
    waited: list[str] = []

    def wait_for_start(_: object, __: object, name: str, ___: object) -> Object:
        waited.append(name)
        if len(waited) == 1:  # the other gets Ctrl-C, and deletes the Job
            client.jobs.clear()
            raise script_start.PodDeleted("the script can't start: its pod was deleted")
        return warm_pod()

    monkeypatch.setattr(client, "get", lambda path, _: {"items": client.jobs if path.endswith("/jobs") else []})
    monkeypatch.setattr(warm_pods, "Informer", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(script_pod, "wait_for_start", wait_for_start)
    assert warm_pods.get(client, cluster(*before)) == warm_pod()  # type: ignore[arg-type]
    assert waited[1:] == [warm_job.name(job) for job in client.jobs]
    assert client.sent_secrets == (3 if is_made_by_another else 2)
    assert client.deleted == []


def test_a_pod_that_was_deleted_without_its_job_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    client = StubClient()

    def wait_for_start(*_: object) -> Object:
        raise script_start.PodDeleted("the script can't start: its pod was deleted")

    monkeypatch.setattr(client, "get", lambda path, _: {"items": client.jobs if path.endswith("/jobs") else []})
    monkeypatch.setattr(warm_pods, "Informer", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(script_pod, "wait_for_start", wait_for_start)
    with pytest.raises(script_start.PodDeleted):
        warm_pods.get(client, cluster())  # type: ignore[arg-type]
    assert client.deleted == [job["metadata"]["name"] for job in client.jobs]


@pytest.mark.parametrize(
    ("script", "warm", "fits"),
    [
        (SCRIPT, {}, True),
        (SCRIPT, {"warm": "true"}, True),
        (SCRIPT, {"warm": "false"}, False),
        (Script(path=Path("a.py"), tf1=True, isolate=True, environment={"RATE": "1"}), {}, True),
        (Script(path=Path("a.py"), fresh=True), {}, False),
        (Script(path=Path("a.py"), resources=ScriptResources(gpus=1)), {}, False),
        (Script(path=Path("a.py"), resources=ScriptResources(memory=Quantity.parse("1Gi"))), {}, False),
        (SCRIPT, {"script-resources": "cpu=2,memory=4Gi"}, True),
        (SCRIPT, {"script-resources": "gpus=1"}, False),
        (Script(path=Path("a.py"), resources=ScriptResources(gpus=0)), {"script-resources": "gpus=1"}, True),
        (Script(path=Path("a.py"), requirements=Path("r.txt")), {}, False),
        (Script(path=Path("a.py"), downloads=[Download("model", Path("model"))]), {}, True),
        (Script(path=Path("a.py"), environment={"OMP_NUM_THREADS": "1"}), {}, False),
    ],
)  # fmt: skip
def test_scripts_that_need_more_than_a_fork_get_a_pod(script: Script, warm: dict[str, str], fits: bool) -> None:
    assert warm_scripts.fits(cluster(**warm), script) is fits


def test_a_script_that_the_warm_pod_refuses_is_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setattr(backend, "Client", lambda _: StubClient())
    monkeypatch.setattr(deployed, "find", lambda *_: cluster())
    monkeypatch.setattr(script_archive, "pack", lambda *arguments: given.append(arguments) or b"folder")
    monkeypatch.setattr(warm_scripts, "run", lambda *arguments: given.append(arguments[-1]))
    monkeypatch.setattr(script_jobs, "run", lambda *arguments: given.append(arguments[-1]) or Outcome(0))
    assert backend.KubernetesBackend(namespace="ns").scripts.run("demo", SCRIPT) == Outcome(0)
    assert given == [(SCRIPT.path, None), b"folder", b"folder"]


def warm_pod(**state: object) -> Object:
    status = {"name": "script", "state": state or {"running": {}}, "restartCount": 0, "image": "tf:1"}
    return {
        "metadata": {"name": "demo-warm-1", "namespace": "ns", "labels": {}, "creationTimestamp": CREATED},
        "spec": {"nodeName": "node", "containers": [{"name": "script", "resources": {}}]},
        "status": {
            "phase": "Running", "containerStatuses": [status], "conditions": [{"type": "Ready", "status": "True"}],
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "watched", "lost"),
    [
        ([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}], True, ScriptLost),
        ([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}], False, None),
        ([], True, None),
    ],
)
def test_a_script_whose_warm_pod_is_gone_was_lost_if_kubernetes_removed_the_pod(
    conditions: list[Object], watched: bool, lost: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = warm_pod()
    pod["metadata"]["labels"][script_job.JOB_NAME] = "demo-warm"
    last = {**pod, "status": {**pod["status"], "conditions": conditions}}

    class Watch(contextlib.nullcontext[Any]):
        def __enter__(self) -> Watch:
            return self

        def last_change(self, job: str) -> ObjectChange | None:
            assert job == "demo-warm"
            return ObjectChange(deleted=True, object=last) if watched else None

    class Gone(WarmScript):
        def __init__(self, *_: object) -> None:
            raise script_start.PodDeleted("the script was ended: its pod was deleted")

    monkeypatch.setattr(warm_pods, "get", lambda *_: pod)
    monkeypatch.setattr(warm_scripts, "EndWatch", lambda *_: Watch())
    monkeypatch.setattr(warm_scripts, "WarmScript", Gone)
    monkeypatch.setattr(script_jobs, "require_cluster", lambda *_: None)
    with pytest.raises(lost or script_start.PodDeleted):
        warm_scripts.run(StubClient(), cluster(), SCRIPT, b"")  # type: ignore[arg-type]


def test_the_log_of_a_warm_pod_lists_its_scripts() -> None:
    script = {"name": "script-1", "command": "a.py", "since": 1.0, "progress": "tfk8s: step 1/4 (25%)"}
    log = "\n".join([json.dumps({"scripts": []}), json.dumps({"scripts": [script]}), "WARNING: of TensorFlow"])
    found = warm_status.read_scripts(StubClient(log=log), [warm_pod()])  # type: ignore[arg-type]
    assert found == {"demo-warm-1": [script]}
    job = start(StubClient())
    assert job
    running, pod = warm_status.status("chief", (job, warm_pod()), found["demo-warm-1"], PodEvents())
    assert (running.name, running.phase, running.command) == ("script-1", "Running", "a.py")
    assert running.progress == StepProgress(step=1, total=4)
    assert (pod.name, pod.phase, pod.reason) == (warm_job.name(job), "Ready", "")
    (waiting,) = warm_status.status("chief", (job, None), (), PodEvents())
    assert waiting.phase == "Starting"


SHOWN = {"name": "script-1", "command": "a.py", "since": 1.0, "progress": ""}


@pytest.mark.parametrize(
    "scripts",
    [
        '[{"na', "5", "null", "[1]", "[[]]", "[{}]", '{"a": 1}', f"[{'[' * 100_000}",
        *(json.dumps([{**SHOWN, key: value}]) for key in SHOWN for value in (None, [], {})),
        *(json.dumps([{**SHOWN, "since": value}]) for value in ("1", -1, 10**20, float("nan"), float("inf"))),
        json.dumps([{**SHOWN, "since": 0}]).replace("0", "9" * 5000),
    ],
)  # fmt: skip
def test_a_list_of_scripts_that_no_warm_pod_wrote_is_empty(scripts: str) -> None:
    log = f'{{"scripts": {scripts}}}'
    assert warm_status.read_scripts(StubClient(log=log), [warm_pod()]) == {}  # type: ignore[arg-type]


QUOTA = "exceeded quota: q, requested: cpu=1, used: cpu=2, limited: cpu=2"
SECURITY = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'


@pytest.mark.parametrize(
    ("refusal", "phase", "reason"),
    [
        (QUOTA, "Starting", 'the namespace\'s quota "q" is used up'),
        (SECURITY, "Failed", 'the namespace\'s pod security "restricted:latest" refuses its pod'),
        ("", "Starting", ""),
    ],
    ids=["quota", "PodSecurity", "none"],
)
def test_the_status_says_why_a_warm_pod_is_not_created(refusal: str, phase: str, reason: str) -> None:
    job = start(StubClient())
    assert job
    events = [{"involvedObject": {"uid": job["metadata"]["uid"]}, "type": "Warning", "message": refusal}]
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [
        {"name": "tensorflow", "state": {"running": {"startedAt": CREATED}}, "ready": True, "restartCount": 0},
    ]}  # fmt: skip

    class Reader(StubClient):
        def get(self, path: str, *_: object) -> Object:  # type: ignore[override]
            if path.endswith("/events"):
                return {"items": events if refusal else []}
            return {"items": [task_pod(item, number, ready) for item in stateful_sets() for number in range(2)]}

    (found,) = status.read(Reader(), cluster(job)).scripts
    assert (found.phase, found.reason.partition(" (")[0].partition(": run")[0]) == (phase, reason)


def task_pod(stateful_set: Object, index: int, state: Object) -> Object:
    name = f"{stateful_set['metadata']['name']}-{index}"
    template = stateful_set["spec"]["template"]
    labels = {**template["metadata"]["labels"], "apps.kubernetes.io/pod-index": str(index)}
    metadata = {"name": name, "uid": name, "namespace": "ns", "labels": labels, "creationTimestamp": CREATED}
    return {"metadata": metadata, "spec": template["spec"], "status": state}


def test_a_warm_pod_waits_for_its_queue_and_says_that_its_pod_was_deleted() -> None:
    job = start(StubClient())
    assert job
    suspended = {**job, "spec": {**job["spec"], "suspend": True}}
    (waiting,) = warm_status.status("chief", (suspended, None), (), PodEvents())
    assert (waiting.phase, waiting.reason) == ("Starting", 'queue "gold" has not admitted it yet')
    failed = {**job, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    (gone,) = warm_status.status("chief", (failed, None), (), PodEvents())
    assert (gone.phase, gone.reason) == ("Failed", "its pod was deleted")


def test_the_end_of_a_warm_pod() -> None:
    job = start(StubClient())
    assert job
    for code, phase in ((0, "Succeeded"), (1, "Failed")):
        end = {"exitCode": code, "finishedAt": CREATED}
        (found,) = warm_status.status("chief", (job, warm_pod(terminated=end)), (), PodEvents())
        assert (found.phase, found.exit_code, found.reason) == (phase, code, "")
