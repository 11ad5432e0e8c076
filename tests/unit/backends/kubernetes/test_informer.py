"""The cached view of a cluster: its requests, what it knows without them, and why tasks ended."""

from __future__ import annotations

import contextlib
import functools
import json
import queue
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tfk8s import polling, render
from tfk8s.backends.kubernetes import informer
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Query
from tfk8s.backends.kubernetes.api_server.errors import ApiError, NoResponse
from tfk8s.backends.kubernetes.informer import Informer
from tfk8s.core import naming
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.errors import BackendUnreachable
from tfk8s.render import script_job
from tfk8s.sessions.task_monitor import SILENCE
from tfk8s.task.config import TaskConfig, listening_line

JOB_FILE = JobFile(name="demo", image="tf:1", master="chief", namespace="ns", jobs=(Job(name="chief"),))
PODS, JOBS, SETS, EVENTS = (paths.collection(kind, "ns") for kind in ("Pod", "Job", "StatefulSet", "Event"))
CHIEF = Task("chief", 0)
POD = naming.pod("demo", "chief", 0)
LISTENS = listening_line(TaskConfig({"chief": {0: "here:2222"}}, "chief", 0), "2.21.0", "1 CPU")
TIMEOUT = 20.0
START = "2026-01-01T00:00:00Z"
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:01Z"}}
DELETED = "its pod was deleted"
KILLED = "killed (exit code 137): by its node, or by someone with rights on it"
OUT_OF_MEMORY = "killed at its memory limit of 4Gi (OOMKilled): raise jobs.chief.memory"

Object = dict[str, Any]


def pod(version: int, state: Object, *, uid: str = "1", end: str = "", reason: str = "Error") -> Object:
    last = {"terminated": {"containerID": end, "exitCode": 137, "reason": reason}} if end else {}
    container = {"name": "server", "image": "tf:1", "ready": False, "restartCount": 0, "state": state}
    variables = [{"name": "TFK8S_JOB", "value": "chief"}]
    return {
        "metadata": {
            "name": POD, "namespace": "ns", "uid": uid, "resourceVersion": str(version),
            "labels": {"controller-revision-hash": "a"}, "creationTimestamp": START,
        },
        "spec": {
            "nodeName": "n", "restartPolicy": "Always",
            "containers": [{"name": "server", "env": variables, "resources": {"limits": {"memory": "4Gi"}}}],
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": START}],
            "containerStatuses": [{**container, "lastState": last}],
        },
    }  # fmt: skip


def deleted(pod: Object) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": START}}


class Api:
    """An API server's objects. It records requests, and its streams send what a test puts into them."""

    context, namespace = "c", "ns"

    def __init__(self) -> None:
        sets = [made for made in render.objects(JOB_FILE) if made["kind"] == "StatefulSet"]
        for made in sets:
            made["metadata"] |= {"uid": "s", "namespace": "ns", "resourceVersion": "1", "creationTimestamp": START}
        self.objects: dict[str, list[Object]] = {SETS: sets, PODS: [pod(1, {"waiting": {}})]}
        self.requests: list[str] = []
        self.queries: dict[str, Query | None] = {}
        self.watch: queue.Queue[str | None] = queue.Queue()
        self.log: queue.Queue[str | None] = queue.Queue()
        self.quiet: queue.Queue[str | None] = queue.Queue()
        self.refusal: Exception | None = None
        self.refused: dict[str, Exception] = {}

    def get(self, path: str, query: Query | None = None) -> Object:
        self.requests.append(path)
        if path in self.refused:
            raise self.refused[path]
        self.queries[path] = query
        return {"items": self.objects.get(path, []), "metadata": {"resourceVersion": "1"}}

    def text(self, path: str, query: Query | None = None) -> str:
        return ""

    @contextlib.contextmanager
    def lines(self, path: str, query: Query, seconds: float = 0) -> Iterator[Iterator[str | None]]:
        if path == PODS and self.refusal:
            raise self.refusal
        stream = self.watch if path == PODS else self.log if "/log?" in path else self.quiet
        yield iter(functools.partial(stream.get, timeout=TIMEOUT), None)

    def send(self, item: Object, kind: str = "MODIFIED") -> None:
        self.watch.put(json.dumps({"type": kind, "object": item}))


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    yield api
    for stream in (api.watch, api.log, *[api.quiet] * 3):
        stream.put(None)


@pytest.fixture
def observer(api: Api) -> Iterator[Informer]:
    with Informer(api, "ns", "demo") as observer:  # type: ignore[arg-type]
        yield observer


def wait_for(observer: Informer, phase: Phase) -> TaskStatus:
    """Wait until the task is in that phase; return its status."""
    return polling.wait_until(
        lambda: next((task for task in observer.status().tasks if task.phase is phase), None), f"{phase}", TIMEOUT
    )


# ---- status --------------------------------------------------------------------------------------------------------


def test_each_list_is_requested_once(api: Api, observer: Informer) -> None:
    assert wait_for(observer, Phase.PENDING).runs_on == f"{POD} on n"
    requests = list(api.requests)
    api.send(pod(2, {"terminated": {"exitCode": 1}}))
    assert "exit code 1" in wait_for(observer, Phase.FAILED).reason
    assert sorted(requests) == sorted((SETS, PODS, JOBS))
    assert api.requests == requests


def test_status_fails_while_the_api_server_is_silent(api: Api) -> None:
    api.refusal = NoResponse("no answer", had_no_effect=False)
    with Informer(api, "ns", "demo") as observer:  # type: ignore[arg-type]
        polling.wait_until(lambda: isinstance(status_or_error(observer), BackendUnreachable), "an error", TIMEOUT)
        api.refusal = None
        polling.wait_until(lambda: isinstance(status_or_error(observer), ClusterStatus), "a status", TIMEOUT)


def status_or_error(observer: Informer) -> ClusterStatus | BackendUnreachable:
    try:
        return observer.status()
    except BackendUnreachable as error:
        return error


def test_failed_probes_are_no_warnings(api: Api, observer: Informer) -> None:
    api.send(pod(2, {"waiting": {"reason": "ContainerCreating"}}))
    polling.wait_until(lambda: observer.status() and EVENTS in api.requests, "a request for events", TIMEOUT)
    query = api.queries[EVENTS]
    assert query is not None
    assert "reason!=Unhealthy" in str(query["fieldSelector"]).split(",")


def test_server_is_ready_when_its_log_reports_the_port(api: Api, observer: Informer) -> None:
    api.send(pod(2, RUNNING))
    wait_for(observer, Phase.STARTING)
    api.log.put("WARNING: all log messages before …")
    api.log.put(LISTENS)
    wait_for(observer, Phase.READY)


def test_a_log_stream_that_ends_is_opened_again(api: Api, observer: Informer) -> None:
    api.send(pod(2, RUNNING))
    wait_for(observer, Phase.STARTING)
    api.log.put(None)
    api.log.put(LISTENS)
    wait_for(observer, Phase.READY)


def test_the_log_of_a_server_that_was_ready_before_is_not_read(api: Api, observer: Informer) -> None:
    late = pod(2, RUNNING)
    late["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:01:00Z"
    api.log.put(LISTENS)
    api.send(late)
    wait_for(observer, Phase.STARTING)
    assert api.log.qsize() == 1


def test_pods_are_listed_again_where_they_can_t_be_watched(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "RELIST_INTERVAL", 0)
    api.refusal = ApiError(403, "may not watch")
    with Informer(api, "ns", "demo") as observer:  # type: ignore[arg-type]
        api.objects[PODS] = [pod(2, {"terminated": {"exitCode": 1}})]
        wait_for(observer, Phase.FAILED)


def test_a_refused_list_is_not_requested_at_each_poll(api: Api, observer: Informer) -> None:
    workloads = paths.collection("Workload", "ns")
    api.refused[workloads] = ApiError(403, "may not list workloads")
    for _ in range(3):
        with pytest.raises(ApiError, match="may not list"):
            observer.get(workloads)
    assert api.requests.count(workloads) == 1
    api.refused[workloads] = ApiError(500, "try again")
    for _ in range(2):
        with pytest.raises(ApiError, match="try again"):
            observer.get(workloads, {"labelSelector": "a"})
    assert api.requests.count(workloads) == 3


def test_watches_stop_at_the_end(api: Api) -> None:
    seen: list[object] = []
    cache = informer.ObjectCache(api, PODS, {}, seen.append)  # type: ignore[arg-type]
    cache.start()
    api.send(pod(2, RUNNING))
    polling.wait_until(lambda: seen, "the change", TIMEOUT)
    cache.close()
    api.send(pod(3, RUNNING))
    polling.wait_until(api.watch.empty, "the thread to read the change", TIMEOUT)
    assert len(seen) == 1


# ---- the ends of tasks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda: deleted(pod(2, RUNNING)), DELETED),
        (lambda: pod(2, RUNNING, end="c1"), KILLED),
        (lambda: pod(2, RUNNING, end="c1", reason="OOMKilled"), OUT_OF_MEMORY),
    ],
)
def test_the_end_of_a_task_is_explained(
    api: Api, observer: Informer, change: Callable[[], Object], reason: str
) -> None:
    api.send(change())
    assert observer.why_lost(CHIEF, "Connection refused") == reason


def test_each_end_is_returned_once(api: Api, observer: Informer) -> None:
    for item in [pod(2, RUNNING, end="c1")] * 2 + [deleted(pod(3, RUNNING, end="c1"))] * 2:
        api.send(item)
    api.send(deleted(pod(4, RUNNING, end="c1")), "DELETED")
    api.send(pod(5, RUNNING, uid="2"))
    polling.wait_until(lambda: observer.last_change("none") is None and api.watch.empty(), "all changes", TIMEOUT)
    assert observer.why_lost(CHIEF, "Connection refused") == DELETED  # the latest
    assert observer.why_lost(CHIEF, SILENCE) == SILENCE


def test_an_end_before_the_observation_is_no_reason(api: Api) -> None:
    api.objects[PODS] = [pod(1, RUNNING, end="c0")]
    api.objects[PODS][0]["status"]["containerStatuses"][0]["ready"] = True
    with Informer(api, "ns", "demo") as observer:  # type: ignore[arg-type]
        for version in (2, 3):
            api.send(pod(version, RUNNING, end="c0"))
        polling.wait_until(api.watch.empty, "the change", TIMEOUT)
        assert observer.ends(0) == {}
        assert observer.why_lost(CHIEF, SILENCE) == SILENCE


def test_why_a_task_is_pending_explains_its_loss(api: Api, observer: Informer) -> None:
    item = pod(2, {"waiting": {}})
    item["status"]["conditions"].append({"type": "PodScheduled", "status": "False", "message": "0/1 nodes"})
    api.objects[PODS] = [item]
    assert observer.why_lost(CHIEF, SILENCE) == "no node takes it: 0/1 nodes"


def test_a_silent_server_has_not_ended(observer: Informer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "TIMING", replace(informer.TIMING, kubelet_delay=600.0))  # nothing waits for it
    assert observer.why_lost(CHIEF, SILENCE) == SILENCE


@pytest.mark.parametrize("ready", [True, False])
def test_an_end_just_before_is_not_why_a_server_is_silent(api: Api, ready: bool) -> None:
    now = datetime.now(UTC).isoformat()
    api.objects[PODS] = [pod(1, {"running": {"startedAt": now}}, end="c0")]
    api.objects[PODS][0]["status"]["containerStatuses"][0]["ready"] = ready
    with Informer(api, "ns", "demo") as observer:  # type: ignore[arg-type]
        assert observer.why_lost(CHIEF, SILENCE) == SILENCE


def test_ends_are_returned_by_pod(api: Api, observer: Informer) -> None:
    api.send(pod(2, RUNNING, end="c1"))
    assert observer.ends(TIMEOUT) == {POD: KILLED}


def test_the_last_version_of_a_deleted_pod_is_known(api: Api, observer: Informer) -> None:
    item = pod(2, RUNNING, uid="2")
    item["metadata"]["labels"][script_job.JOB_NAME] = "demo-script-1"
    for container in (item["spec"]["containers"][0], item["status"]["containerStatuses"][0]):
        container["name"] = naming.SCRIPT_CONTAINER  # its variable TFK8S_JOB is that of `run --each`
    assert observer.last_change("demo-script-1") is None
    api.send(item, "ADDED")
    change = polling.wait_until(lambda: observer.last_change("demo-script-1"), "the pod", TIMEOUT)
    assert (change.deleted, change.object) == (False, item)
    api.send(deleted(item), "DELETED")
    polling.wait_until(lambda: (observer.last_change("demo-script-1") or change).deleted, "its deletion", TIMEOUT)
    assert observer.ends(0) == {}, "a script is no task"
