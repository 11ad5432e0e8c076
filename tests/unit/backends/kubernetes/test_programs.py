"""Programs as Jobs: their pods, their status and their folders."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.api_server import ApiServer
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes import events
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.api_server.field_errors import FieldError, InvalidFields
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.backends.kubernetes.scripts.programs import program_archives
from tfk8s.backends.kubernetes.workloads import (
    bad_nodes,
    changes,
    deployed,
    program_jobs,
    program_status,
    task_pods,
)
from tfk8s.core import naming
from tfk8s.core.programs import Program, RunPolicy
from tfk8s.core.spec import Job, Task
from tfk8s.core.status import Phase
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests, placement, program_job
from tfk8s.render.pods import Object
from tfk8s.task.programs import archive
from tfk8s.task.programs import pod as process_1

WORKER = Job(name="worker", tasks=2, program=Program(("python3", "-m", "trainer")))


def objects(*jobs: Job, **settings: object) -> list[Object]:
    found = render.objects(job_file("demo", *jobs, **{"image": "tf:1", "namespace": "ns", **settings}))
    return [{**item, "metadata": {**item["metadata"], "uid": "u"}} for item in found]


def pod(index: int, suffix: str = "abcde", created: str = "2026-01-01T00:00:00Z", **state: object) -> Object:
    labels = {"batch.kubernetes.io/job-name": "demo-worker", "batch.kubernetes.io/job-completion-index": str(index)}
    metadata = {"name": f"demo-worker-{index}-{suffix}", "labels": labels, "creationTimestamp": created, "uid": suffix}
    statuses = [{"name": "server", "restartCount": 0, "ready": False, "image": "tf:1", "state": state}] if state else []
    phase = {"running": "Running", "terminated": "Failed"}.get(next(iter(state), ""), "Pending")
    spec = {"containers": [{"name": "server", "resources": {}}], "nodeName": "node-1"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, "containerStatuses": statuses}}


def ended(code: int, message: str = "", **more: object) -> Object:
    return pod(1, terminated={"exitCode": code, "message": message, "reason": "Error", **more})


def job(**status: object) -> Object:
    (found,) = (item for item in objects(WORKER) if item["kind"] == "Job")
    return {**found, "status": status}


def condition(kind: str, reason: str = "") -> dict[str, object]:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason}]}


def ended_job(result: str) -> Object:
    """Return a Job that `tfk8s wait` has ended."""
    made = job(conditions=[{"type": "Suspended", "status": "True"}])
    annotations = {**made["metadata"].get("annotations", {}), "tfk8s.dev/run-end": result}
    return {
        **made, "metadata": {**made["metadata"], "annotations": annotations}, "spec": {**made["spec"], "suspend": True},
    }  # fmt: skip


FAILED = condition("Failed", "PodFailurePolicy")
DELETED = pod(1)
DELETED["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


class ReplacingClient:
    """An API server whose Job has fewer pods at each list, and goes with the last; it notes changes."""

    def __init__(self, pods: int) -> None:
        self.pods = [pod(index) for index in range(pods)]
        self.changes: list[str] = []

    def get(self, path: str, query: Object) -> Object:
        assert path == paths.collection("Pod", "ns")
        assert query["labelSelector"] == "batch.kubernetes.io/job-name=demo-worker"
        if self.changes:  # the Job is deleted
            assert query["limit"]
            del self.pods[:1]
        return {"items": self.pods}

    def find(self, path: str) -> Object | None:
        return job() if self.pods else None

    def send(self, method: str, path: str, query: Object) -> None:
        self.changes.append(method)

    def apply(self, path: str, item: Object) -> Object:
        assert not self.pods
        self.changes.append("apply")
        return item


def test_a_job_is_made_again_after_the_end_of_its_pods() -> None:
    client: Any = ReplacingClient(3)
    assert program_jobs.replace(client, "ns", job()) == job()
    assert client.changes == ["DELETE", "apply"]


def test_a_node_that_the_job_file_avoids_is_avoided_for_good(caplog: pytest.LogCaptureFixture) -> None:
    client: Any = ReplacingClient(3)
    client.pods[0]["metadata"]["annotations"] = bad_nodes.lack_of_gpus(client.pods[0])
    (made,) = filter(manifests.is_program, objects(WORKER, avoid=("node-1",)))
    assert program_jobs.replace(client, "ns", made) == made
    assert client.changes == ["DELETE", "apply"]
    assert "starts away" not in caplog.text


class ApplyingClient:
    """An API server that takes each object; it notes them."""

    def __init__(self) -> None:
        self.applied: list[Object] = []

    def apply(self, path: str, item: Object, *, dry_run: bool) -> Object:
        self.applied.append(item)
        return item


def test_up_leaves_a_job_whose_pods_wait_for_a_copy_of_their_files() -> None:
    waiting = dataclasses.replace(WORKER, env={naming.FILES_VARIABLE: '{"0": ["model"]}'})
    (existing,) = (item for item in objects(waiting) if item["kind"] == "Job")
    assert changes.change(existing, job()) is None
    client: Any = ApplyingClient()
    applied = program_jobs.apply(client, "ns", job(), existing, dry_run=True)
    assert applied["spec"]["template"] == existing["spec"]["template"]


@pytest.mark.parametrize("avoid", [(), ("node-1",), ("node-1", "node-3")])
def test_up_leaves_a_job_that_has_started_away_from_a_node(avoid: tuple[str, ...]) -> None:
    """Its terms are a list that one manager of fields owns, so that `up` has to apply all of them, or none."""
    client: Any = ApplyingClient()
    (item,) = filter(manifests.is_program, objects(WORKER, avoid=avoid))
    away = placement.away_from(item["spec"]["template"], ["node-2"])
    existing = {**item, "spec": {**item["spec"], "template": away}}
    assert program_jobs.apply(client, "ns", item, existing, dry_run=True) == existing
    assert program_jobs.content(existing) == program_jobs.content(item)


@pytest.mark.parametrize("avoid", [("node-2",), ("node-3",)])
def test_up_makes_a_job_anew_that_is_to_avoid_another_node(avoid: tuple[str, ...]) -> None:
    client: Any = ApplyingClient()
    (item,) = filter(manifests.is_program, objects(WORKER, avoid=avoid))
    away = placement.away_from(job()["spec"]["template"], ["node-2"])
    existing = {**item, "spec": {**item["spec"], "template": away}}
    assert program_jobs.apply(client, "ns", item, existing, dry_run=True) == item
    assert [made["metadata"]["name"] for made in client.applied] == ["demo-worker-new"]  # a dry run of another Job


@pytest.mark.parametrize(
    ("status", "found", "expected"),
    [
        ({}, None, (Phase.PENDING, "", None, 0)),
        ({}, pod(1, running={"startedAt": "2026-01-01T00:00:00Z"}), (Phase.RUNNING, "", None, 0)),
        ({}, ended(0, "exit code 0, restarts 2"), (Phase.SUCCEEDED, "", 0, 2)),
        ({}, ended(1, "exit code 1, restarts 0"), (Phase.FAILED, "ended with exit code 1", 1, 0)),
        (
            {}, ended(1, "exit code 137, restarts 3"),
            (Phase.FAILED, "killed (exit code 137): by its node, or by someone with rights on it", 137, 3),
        ),
        ({}, ended(138, "exit code 138, restarts 3"), (Phase.FAILED, "another task was lost", 138, 3)),
        ({}, ended(143), (Phase.PENDING, "ended with exit code 143; its Job makes another pod", None, 0)),
        (FAILED, ended(143), (Phase.FAILED, "ended with exit code 143", 143, 0)),
        ({}, DELETED, (Phase.PENDING, "its previous pod is terminating", None, 0)),
        (FAILED, DELETED, (Phase.FAILED, "ended: another program of its job failed", None, 0)),
        (condition("Complete"), None, (Phase.SUCCEEDED, "ended: the run succeeded", None, 0)),
        ({"completedIndexes": "0-2,5"}, None, (Phase.SUCCEEDED, "", 0, 0)),
        (
            condition("Failed", "DeadlineExceeded"), None,
            (Phase.FAILED, "ended: the run took longer than its timeout: raise run.timeout", 124, 0),
        ),
    ],
)  # fmt: skip
def test_status(status: dict[str, object], found: Object | None, expected: tuple[object, ...]) -> None:
    assert program_status.read(job(**status), Task("worker", 1), found, PodEvents()) == expected


def test_status_of_a_program_that_was_ended_with_its_run() -> None:
    running, going = pod(1, running={"startedAt": "2026-01-01T00:00:00Z"}), DELETED
    for result, found, expected in (
        ("Complete", None, (Phase.SUCCEEDED, "ended: the run succeeded", None, 0)),
        ("Complete", going, (Phase.SUCCEEDED, "ended: the run succeeded", None, 0)),
        ("Complete", running, (Phase.RUNNING, "", None, 0)),
        ("Failed", None, (Phase.FAILED, "ended: another program failed", None, 0)),
    ):
        assert program_status.read(ended_job(result), Task("worker", 1), found, PodEvents()) == expected


def test_jobs_end_with_their_run_by_suspension() -> None:
    chief, evaluator = (Job(name=name, program=WORKER.program) for name in ("chief", "evaluator"))
    found = objects(chief, WORKER, evaluator)
    requests = []

    class Api:
        def send(self, *request: object) -> None:
            requests.append(request)

    api: Any = Api()
    program_jobs.end(api, deployed.describe(found), ["worker"], succeeded=True)
    body = {"metadata": {"annotations": {"tfk8s.dev/run-end": "Complete"}}, "spec": {"suspend": True}}
    assert requests == [(
        "PATCH", "/apis/batch/v1/namespaces/ns/jobs/demo-worker", {"fieldManager": "tfk8s.dev/run-end"}, body,
        "application/merge-patch+json",
    )]  # fmt: skip


def test_a_job_that_was_ended_begins_anew_without_its_end() -> None:
    assert manifests.scaled(ended_job("Complete"), {}) == manifests.scaled(job(), {})


def test_program_that_ran_out_of_memory_says_what_to_raise() -> None:
    found = ended(137, reason="OOMKilled")
    found["spec"]["containers"][0]["resources"] = {"limits": {"memory": "1Gi"}}
    assert program_status.read(job(), Task("worker", 1), found, PodEvents()).reason == (
        "killed at its memory limit of 1Gi (OOMKilled): raise jobs.worker.memory; its Job makes another pod"
    )


def test_codes_that_the_job_controller_retries_are_not_the_programs_own() -> None:
    (rule,) = [
        rule["onExitCodes"] for rule in job()["spec"]["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"
    ]
    assert tuple(rule["values"]) == process_1.ENDED_BY_KUBERNETES
    assert not {process_1.container_code(code) for code in range(256)} & set(rule["values"])


def test_newest_pod_of_an_index_counts() -> None:
    cluster = deployed.describe(objects(Job(name="ps"), WORKER))
    server = {**pod(0), "metadata": {"name": "demo-ps-0", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    old, new = pod(1, "first", "2026-01-01T00:00:01Z"), pod(1, "later", "2026-01-01T00:00:02Z")
    assert task_pods.by_task(cluster, [new, server, old]) == {
        Task("ps", 0): server, Task("worker", 0): None, Task("worker", 1): new,
    }  # fmt: skip


def test_names_of_pods_take_no_request_without_programs() -> None:
    cluster = deployed.describe(objects(Job(name="ps"), WORKER))

    class Api:
        requests = 0

        def get(self, *_: object) -> Object:
            self.requests += 1
            return {"items": [pod(1, "later")]}

    api: Any = Api()
    assert task_pods.names(api, cluster, [Task("ps", 0)]) == {Task("ps", 0): "demo-ps-0"}
    assert api.requests == 0
    assert task_pods.names(api, cluster, [Task("ps", 0), Task("worker", 1)]) == {
        Task("ps", 0): "demo-ps-0", Task("worker", 1): "demo-worker-1-later",
    }  # fmt: skip
    assert api.requests == 1


@pytest.mark.parametrize(
    ("jobs", "pods", "result"),
    [
        ([job()], [], True),
        ([job()], [pod(1, running={})], True),
        ([job()], [ended(1, "exit code 1, restarts 0")], False),  # the Job learns of the end a second later
        ([job()], [ended(143)], True),
        ([job(**FAILED)], [pod(1, running={})], False),
        ([], [pod(1, running={})], False),
    ],
)
def test_a_program_may_write_until_its_last_end(jobs: list[Object], pods: list[Object], result: bool) -> None:
    cluster = deployed.describe([job()])

    class Api:
        def get(self, path: str, query: object) -> Object:
            return {"items": {paths.collection("Pod", "ns"): pods, paths.collection("Job", "ns"): jobs}[path]}

    api: Any = Api()
    assert task_pods.LoggedPod(api, cluster, Task("worker", 1)).may_write() is result


@pytest.mark.parametrize(
    ("jobs", "run", "success"),
    [
        ((Job(name="ps"), WORKER), RunPolicy(), ["worker/0", "worker/1"]),
        ((WORKER,), RunPolicy(success="worker/1"), ["worker/1"]),
        ((Job(name="chief", program=WORKER.program), WORKER), RunPolicy(), ["chief/0"]),
        ((Job(name="ps"),), RunPolicy(), []),
    ],
)
def test_success_is_known_from_the_objects(jobs: tuple[Job, ...], run: RunPolicy, success: list[str]) -> None:
    cluster = deployed.describe(objects(*jobs, run=run))
    assert list(map(str, cluster.success)) == success
    assert cluster.has_servers == any(job.name == "ps" for job in jobs)


@pytest.mark.parametrize(
    ("kind", "name", "about"),
    [
        ("Pod", "demo-worker-1-abcde", "worker/1"),
        ("Pod", "demo-ps-0", "ps/0"),
        ("Job", "demo-worker", "Job demo-worker"),
        ("Job", "demo-other", ""),
        ("Pod", "demo-other-1-abcde", ""),
    ],
)
def test_events_of_programs(kind: str, name: str, about: str) -> None:
    assert events.find_subject(kind, name, "demo", {"worker": "worker", "ps": "ps"}) == about


def _refusal(*problems: str) -> ApiError:
    return ApiError(422, "refused", invalid=InvalidFields("demo-worker", tuple(FieldError("a", p) for p in problems)))


@pytest.mark.parametrize(
    ("problems", "is_change"),
    [(["Invalid value: x: field is immutable"], True), ([], False), (["field is immutable", "Required value"], False)],
)
def test_only_immutable_fields_make_a_job_anew(problems: list[str], is_change: bool) -> None:
    assert program_jobs.is_refused_change(job(), _refusal(*problems)) is is_change
    assert not program_jobs.is_refused_change({**job(), "kind": "StatefulSet"}, _refusal(*problems))


# ---- the folders of scripts ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print(1)")
    return tmp_path


def scripts(folder: Path) -> Any:
    script = Job(name="worker", program=Program(("train.py",), str(folder)))
    return job_file("demo", script, Job(name="other", program=WORKER.program))


def folder_secrets(folder: Path) -> dict[str, bytes]:
    secrets = program_archives.secrets("demo", program_archives.pack(scripts(folder)))
    return {item["metadata"]["name"]: base64.b64decode(item["data"]["program.tar.gz"]) for item in secrets}


def test_secret_has_the_folder_and_its_hash(folder: Path) -> None:
    before = folder_secrets(folder)
    (part,) = program_archives.pack(scripts(folder))
    assert before == {f"demo-program-{hashlib.sha256(gzip.decompress(part)).hexdigest()[:10]}": part}
    (folder / "train.py").write_text("print(2)")
    assert before.keys().isdisjoint(folder_secrets(folder))


def test_parts_of_a_large_folder_are_unpacked_in_their_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "vocabulary").write_bytes(content := os.urandom(2_500_000))
    parts = [*folder_secrets(folder).values()]
    assert [len(part) > 1_000_000 for part in parts] == [True, True, False, False]
    mounted, work = folder / "mounted", folder / "work"
    (mounted / "..2026_11_28").mkdir(parents=True)
    (mounted / "..data").symlink_to("..2026_11_28")
    for (index, part), secret in zip(enumerate(parts), render_sources(4), strict=True):
        (mounted / "..data" / (name := secret["items"][0]["path"])).write_bytes(part)
        (mounted / name).symlink_to(f"..data/{name}")
        assert secret["name"] == f"s{index}"
    work.mkdir()
    monkeypatch.chdir(work)
    archive.unpack(mounted)
    assert {path.name: path.read_bytes() for path in work.iterdir()} == {"train.py": b"print(1)", "vocabulary": content}


def render_sources(count: int) -> list[Object]:
    program, _ = program_job.volumes([f"s{index}" for index in range(count)], "2Gi")
    return [source["secret"] for source in program["projected"]["sources"]]


def test_names_of_parts_are_in_their_order() -> None:
    names = [source["items"][0]["path"] for source in render_sources(program_job.MAX_PARTS)]
    assert names == sorted(names)
    assert len({*names}) == len(names)


def test_commands_have_no_secret() -> None:
    assert program_archives.secrets("demo", program_archives.pack(job_file("demo", WORKER))) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: (folder / ".tfk8signore").write_text("*.py"),
            '{0}/.tfk8signore leaves out the script "train.py"',
        ),
        (lambda folder: (folder / "train.py").unlink(), 'there is no script "{0}/train.py"'),
        (
            lambda folder: (folder / "data").write_bytes(os.urandom(16_800_000)),
            'the folder "{0}" has 16805 kB, compressed; the pods of a program get at most 16777 kB',
        ),
    ],
    ids=["ignored", "no script", "too large"],
)
def test_folder_that_can_not_travel(folder: Path, change: Callable[[Path], object], message: str) -> None:
    change(folder)
    with pytest.raises(InvalidInput) as caught:
        program_archives.pack(scripts(folder))
    assert str(caught.value) == message.format(folder)


def jobs_with(*digests: str) -> list[Object]:
    script = Job(name="worker", program=Program(("train.py",), "/f"))
    names = [f"demo-program-{digest}" for digest in digests]
    return render.objects(job_file("demo", script, image="tf:1"), "ns", names)


def test_only_missing_secrets_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server says which of those that a Job needs are there, for a request without data."""
    secrets = program_archives.secrets("demo", [gzip.compress(part) for part in (b"same", b"deleted", b"new")])
    same, deleted, _ = (secret["metadata"]["name"] for secret in secrets)
    before = jobs_with(*(name.removeprefix("demo-program-") for name in (same, deleted)))
    with ApiServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        collection = paths.collection("Secret", "here")
        server.put(f"{collection}/{same}", secrets[0])
        config_map = {"metadata": {"name": "demo", "uid": "u"}}
        program_archives.create(Client(None), "here", secrets, config_map, [None, *before])
        dry_run = f"POST {collection}?dryRun=All"
        assert server.requests == [dry_run, dry_run, f"POST {collection}", f"POST {collection}"]
        for secret in secrets:
            made = server.objects[f"{collection}/{secret['metadata']['name']}"]
            assert made["data"] == secret["data"]


def test_secrets_that_no_job_needs_any_more_are_deleted() -> None:
    class Api:
        sent: list[tuple[str, str, object]] = []  # noqa: RUF012 - one test

        def send(self, method: str, path: str, query: object) -> None:
            self.sent.append((method, path, query))

    api: Any = Api()
    program_archives.delete_obsolete(api, "ns", "demo", [None, *jobs_with("same", "old")], jobs_with("same", "new"))
    program_archives.delete_obsolete(api, "ns", "demo", jobs_with("new"), jobs_with("new"))
    query = {
        "labelSelector": "app.kubernetes.io/name=tfk8s,app.kubernetes.io/instance=demo",
        "fieldSelector": "metadata.name=demo-program-old",
    }
    assert api.sent == [("DELETE", "/api/v1/namespaces/ns/secrets", query)]


def test_the_one_secret_of_a_job_by_a_former_version_is_found() -> None:
    script = Job(name="worker", program=Program(("train.py",), "/f"))
    objects = render.objects(job_file("demo", script, image="tf:1"), "ns", ["demo-program-new"])
    (job,) = filter(manifests.is_program, objects)
    assert program_job.secret_names(job) == {"demo-program-new"}
    (volume,) = (one for one in job["spec"]["template"]["spec"]["volumes"] if one["name"] == "program")
    volume["secret"] = {"secretName": "demo-program-old"}
    del volume["projected"]
    assert program_job.secret_names(job) == {"demo-program-old"}
