"""Looking at a cluster again and again: what is asked for, how often, and what is known without asking."""

import json
import queue

import pytest

from tfk8s import polling, render
from tfk8s.backends.kubernetes import informer, paths
from tfk8s.backends.kubernetes.errors import ApiError, Unanswered
from tfk8s.core import naming
from tfk8s.core.spec import Job, JobFile
from tfk8s.core.status import Phase
from tfk8s.errors import BackendUnreachable
from tfk8s.task.config import TaskConfig, listening_line

JOB_FILE = JobFile(name="demo", image="tf:1", master="chief", namespace="ns", jobs=(Job(name="chief"),))
PODS = paths.collection("Pod", "ns")
POD = naming.pod("demo", "chief", 0)
LISTENS = listening_line(TaskConfig({"chief": {0: "here:2222"}}, "chief", 0), "2.21.0", "1 CPU")
PATIENCE = 20.0


def pod(version, **state):
    start = "2026-01-01T00:00:00Z"
    container = {"name": "server", "image": "tf:1", "ready": False, "restartCount": 0, "state": state}
    return {
        "metadata": {
            "name": POD, "namespace": "ns", "uid": "1", "resourceVersion": str(version),
            "labels": {"controller-revision-hash": "a"}, "creationTimestamp": start,
        },
        "spec": {"nodeName": "n", "containers": [{"name": "server"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": start}],
            "containerStatuses": [container],
        },
    }  # fmt: skip


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:01Z"}}


class Api:
    """An API server's objects; counts what is asked, and has streams whose lines a test says."""

    context, namespace = "c", "ns"

    def __init__(self):
        sets = [made for made in render.objects(JOB_FILE) if made["kind"] == "StatefulSet"]
        for made in sets:
            made["metadata"] |= {"uid": "s", "namespace": "ns", "resourceVersion": "1"}
            made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        self.objects = {paths.collection("StatefulSet", "ns"): sets, PODS: [pod(1, waiting={})]}
        self.asked, self.queries = [], {}
        self.watched, self.log, self.quiet = queue.Queue(), queue.Queue(), queue.Queue()
        self.refusal = None

    def url(self, path, query=None):
        return f"{path}?{query}"

    def get(self, path, query=None):
        self.asked.append(path)
        self.queries[path] = query
        return {"items": self.objects.get(path, []), "metadata": {"resourceVersion": "1"}}

    def text(self, path, query=None):
        return ""

    def lines(self, path, query, seconds=0):
        if path == PODS and self.refusal:
            raise self.refusal
        stream = self.watched if path == PODS else self.log if path.endswith("/log") else self.quiet
        while (line := stream.get(timeout=PATIENCE)) is not None:
            yield line

    def tells(self, thing):
        self.watched.put(json.dumps({"type": "MODIFIED", "object": thing}))


@pytest.fixture
def api():
    api = Api()
    yield api
    for stream in (api.watched, api.log, *[api.quiet] * 3):
        stream.put(None)


def until(look, phase):
    """Look until the task is in that phase; return its status."""
    return polling.wait_until(
        lambda: next((task for task in look().tasks if task.phase is phase), None), f"the task to be {phase}", PATIENCE
    )


def test_a_look_asks_for_what_no_look_before_it_asked_for(api):
    with informer.follow(api, "ns", "demo") as look:
        assert until(look, Phase.PENDING).where == f"{POD} on n"
        asked = list(api.asked)
        api.tells(pod(2, terminated={"exitCode": 1}))
        assert "exit code 1" in until(look, Phase.FAILED).reason
        assert sorted(asked) == sorted(paths.collection(kind, "ns") for kind in ("StatefulSet", "Pod", "Job"))
        assert api.asked == asked


def test_while_the_api_server_is_silent_looks_say_so(api):
    api.refusal = Unanswered("no answer", unheard=False)
    with informer.follow(api, "ns", "demo") as look:
        polling.wait_until(lambda: says_no_answer(look), "a look that says so", PATIENCE)
        api.refusal = None
        polling.wait_until(lambda: not says_no_answer(look), "a look that says no such thing", PATIENCE)


def says_no_answer(look):
    try:
        look()
    except BackendUnreachable:
        return True
    return False


def test_a_probe_that_fails_while_a_server_starts_is_no_complaint(api):
    with informer.follow(api, "ns", "demo") as look:
        api.tells(pod(2, waiting={"reason": "ContainerCreating"}))
        events = paths.collection("Event", "ns")
        polling.wait_until(lambda: look() and events in api.asked, "a look that asks for events", PATIENCE)
    assert "reason!=Unhealthy" in api.queries[events]["fieldSelector"].split(",")


def test_a_server_is_up_when_its_log_says_so(api):
    with informer.follow(api, "ns", "demo") as look:
        api.tells(pod(2, **RUNNING))
        until(look, Phase.STARTING)
        api.log.put("WARNING: all log messages before …")
        api.log.put(LISTENS)
        until(look, Phase.READY)


def test_a_log_that_ends_is_asked_for_anew(api):
    with informer.follow(api, "ns", "demo") as look:
        api.tells(pod(2, **RUNNING))
        until(look, Phase.STARTING)
        api.log.put(None)
        api.log.put(LISTENS)
        until(look, Phase.READY)


def test_a_server_that_was_ready_and_is_no_longer_is_not_up_for_what_it_wrote(api):
    late = pod(2, **RUNNING)
    late["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:01:00Z"
    api.log.put(LISTENS)
    with informer.follow(api, "ns", "demo") as look:
        api.tells(late)
        until(look, Phase.STARTING)
        assert api.log.qsize() == 1  # nobody read it


def test_who_may_not_watch_pods_lists_them(api):
    api.refusal = ApiError(403, "may not watch")
    with informer.follow(api, "ns", "demo") as look:
        api.objects[PODS] = [pod(2, terminated={"exitCode": 1})]
        until(look, Phase.FAILED)
