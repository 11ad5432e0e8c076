"""The pod of a session script: its start, its output, and how its end is reported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.stateful_sets import stateful_sets

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server.reflector import ObjectChange
from tfk8s.backends.kubernetes.pods import pod_events
from tfk8s.backends.kubernetes.scripts import script_pod
from tfk8s.backends.kubernetes.scripts.script_start import PodDeleted
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core.script import LogOptions, Outcome
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase, TaskStatus
from tfk8s.errors import ClusterError, ScriptLost, WaitTimeout
from tfk8s.render import script_job
from tfk8s.sessions import error_names
from tfk8s.sessions.pod import end_line

CLUSTER = DeployedCluster(name="demo", namespace="ns", workloads={}, jobs={"chief": (1, 2222)})
NAME = "script-123456"
RUNNING = {"running": {}}
DRAINED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
END = end_line.END.decode()

Object = dict[str, Any]


def pod(state: Object, *conditions: Object, deleted: bool = False) -> Object:
    metadata = {"name": "demo-script-123456-abcde", "uid": "u", "creationTimestamp": "1970-01-01T00:00:10Z"}
    container = {"name": "script", "image": "tf:1", "ready": False, "state": state}
    return {
        "metadata": {**metadata, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})},
        "spec": {"nodeName": "a", "containers": [{"name": "script", "resources": {"limits": {"memory": "4Gi"}}}]},
        "status": {"conditions": list(conditions), "containerStatuses": [container]},
    }


def gone(pod: Object) -> ObjectChange:
    return ObjectChange(deleted=True, object=pod)


def ended(code: int, *conditions: Object, **more: Any) -> Object:
    deleted = more.pop("deleted", False)
    return pod({"terminated": {"exitCode": code, **more}}, *conditions, deleted=deleted)


class ScriptedInformer:
    """Has the versions of a script's pod, one at each poll, and the lines of its log. None is no pod."""

    context, namespace = "c", "ns"

    def __init__(self, *versions: Object | ObjectChange | None, lines: list[str] | None = None) -> None:
        self.versions, self.log = list(versions), lines or []
        self.jobs: list[Object] = []
        self.known_ends: dict[str, str] = {}
        self.client = self
        self.queries: list[Object] = []
        self.events: list[Object] = []

    def get(self, path: str, query: Object) -> Object:
        if path == "/apis/batch/v1/namespaces/ns/jobs":
            return {"items": self.jobs}
        if path.endswith("/workloads"):
            return {"items": []}
        assert (path, query) == ("/api/v1/namespaces/ns/events", pod_events.QUERY)
        return {"items": self.events}

    def last_change(self, job: str) -> ObjectChange | None:
        assert job == "demo-script-123456"
        version = self.versions.pop(0) if len(self.versions) > 1 else self.versions[0]
        return version if isinstance(version, ObjectChange | None) else ObjectChange(deleted=False, object=version)

    def ends(self, timeout: float) -> dict[str, str]:
        return self.known_ends

    @contextlib.contextmanager
    def lines(self, path: str, query: Object) -> Iterator[Iterator[str]]:
        self.queries.append(query)
        yield (f"2026-01-01T00:00:0{number}Z {line}" for number, line in enumerate(self.log))


def job(**spec: Any) -> Object:
    run = script_job.PodSettings(arguments=[], environment={"TFK8S_JOBS": "chief=1"})
    made = script_job.job("demo-script-123456", stateful_sets()[0], run)
    made["metadata"]["uid"] = "j"
    return {**made, "spec": {**made["spec"], **spec}, "status": {}}


def refused(message: str) -> Any:
    """Return an informer of a script whose pod the API server refuses."""
    informer = ScriptedInformer(None)
    informer.jobs = [job()]
    text = f'Error creating: pods "a-" is forbidden: {message}'
    informer.events = [{"involvedObject": {"uid": "j"}, "type": "Warning", "reason": "FailedCreate", "message": text}]
    return informer


def test_a_pod_that_the_api_server_refuses_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    with pytest.raises(ClusterError) as caught:
        script_pod.wait_for_start(refused("maximum cpu usage per Container is 1, but limit is 2"), CLUSTER, NAME)
    assert str(caught.value) == (
        "the script can't start: the namespace's LimitRange refuses its pod (maximum cpu usage per Container is 1, but "
        "limit is 2): change script.cpu or memory in the job file, or --cpu and --memory: the script requests 50m "
        "cpu and 512Mi memory, with limits of 2 cpu and 8Gi memory"
    )


@pytest.mark.parametrize("timeout", [None, 0.02])
def test_a_used_up_quota_has_a_short_time_to_get_room(monkeypatch: pytest.MonkeyPatch, timeout: float | None) -> None:
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    monkeypatch.setattr(script_pod, "QUOTA_TIMEOUT", 0.01)
    informer = refused("exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4")
    with pytest.raises(WaitTimeout) as caught:
        script_pod.wait_for_start(informer, CLUSTER, NAME, timeout)
    waited = f"waited {timeout or 0.01} s for the script to start: "
    assert str(caught.value).startswith(f'{waited}the namespace\'s quota "q" is used up (requested: pods=1, ')


def test_a_pending_script_names_its_own_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_pod, "START_TIMEOUT", 0.0)
    condition = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Insufficient cpu."}
    unscheduled = pod({"waiting": {}}, condition)
    unscheduled["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "50m"}
    with pytest.raises(WaitTimeout, match=r"no node has 50m cpu free \(.*\): lower script.cpu, or add nodes"):
        script_pod.wait_for_start(ScriptedInformer(unscheduled), CLUSTER, NAME)  # type: ignore[arg-type]


def follow(informer: ScriptedInformer, **options: Any) -> Outcome:
    return script_pod.follow(informer, CLUSTER, NAME, LogOptions(**options))  # type: ignore[arg-type]


def test_waiting_for_the_start_names_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    informer = ScriptedInformer(
        None,
        {**pod(RUNNING), "spec": {}, "status": {"phase": "Pending"}},
        pod({"waiting": {"reason": "ContainerCreating"}}),
        pod({"waiting": {"reason": "ErrImagePull", "message": "no such host"}}),
        pod(RUNNING),
    )
    informer.jobs = [job(suspend=True)]
    script_pod.wait_for_start(informer, CLUSTER, NAME)  # type: ignore[arg-type]
    assert caplog.messages == [
        'waiting for the script to start: queue "gold" has not admitted it yet',
        "waiting for the script to start: its pod waits for the scheduler",
        "waiting for the script to start: its container is being created on a, which may have to pull the image",
        (
            'waiting for the script to start: image "tf:1" can\'t be pulled: no such host; '
            "change jobs.chief.image (or image, for all jobs), or make it available to the nodes"
        ),
    ]


def test_the_wait_for_the_pod_ends_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    with pytest.raises(PodDeleted) as caught:
        script_pod.wait_for_start(ScriptedInformer(None), CLUSTER, NAME)  # type: ignore[arg-type]
    assert str(caught.value) == "the script can't start: its Job was deleted"


def test_a_script_waits_for_the_node_that_an_autoscaler_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    monkeypatch.setattr(script_pod, "START_TIMEOUT", 0.0)
    unscheduled = pod({"waiting": {}}, {"type": "PodScheduled", "status": "False", "message": "0/1 nodes"})
    informer = ScriptedInformer(unscheduled, pod(RUNNING))
    message = "pod triggered scale-up: [{aks-l4-12345678-vmss 0->1 (max: 4)}]"
    informer.events = [{"involvedObject": {"uid": "u"}, "reason": "TriggeredScaleUp", "message": message}]
    script_pod.wait_for_start(informer, CLUSTER, NAME)  # type: ignore[arg-type]
    assert caplog.messages == ["waiting for the script to start: a node of pool l4 is being started"]


ENDLESS = [
    (
        [pod({"waiting": {}}), gone(pod({"waiting": {}}))], PodDeleted,
        "the script can't start: its pod was deleted",
    ),
    ([pod({"waiting": {}}, deleted=True)], PodDeleted, "the script can't start: its pod was deleted"),
    (
        [pod({"waiting": {"reason": "InvalidImageName"}})], ClusterError,
        ('the script can\'t start: "tf:1" is not the name of an image: change jobs.chief.image '
        "(or image, for all jobs)"),
    ),
    (
        [pod({"waiting": {}}, DRAINED)], ScriptLost,
        "the script was lost with its pod: evicted from its node a, as by `kubectl drain`",
    ),
    (
        [pod(RUNNING), ended(130, DRAINED, deleted=True)], ScriptLost,
        "the script was lost with its pod: evicted from its node a, as by `kubectl drain`",
    ),
    ([pod(RUNNING), ended(130, deleted=True)], PodDeleted, "the script was ended: its pod was deleted"),
    (
        [pod(RUNNING), gone(pod(RUNNING))], ClusterError,
        "the script's pod demo-script-123456-abcde is gone: it was deleted",
    ),
    (
        [pod(RUNNING), ended(137, reason="OOMKilled")], ClusterError,
        "the script was killed at its memory limit of 4Gi",
    ),
]  # fmt: skip


def test_a_script_that_does_not_end_by_itself() -> None:
    for versions, error, message in ENDLESS:
        with pytest.raises(ClusterError) as caught:
            follow(ScriptedInformer(*versions))
        assert (type(caught.value), str(caught.value)) == (error, message), versions


def test_a_script_that_ends_while_its_pod_is_removed_has_succeeded() -> None:
    assert follow(ScriptedInformer(pod(RUNNING), ended(0, DRAINED, deleted=True))) == Outcome(0)


class PlayedStream:
    """Stands for the stream to a script's pod: notes what is asked of it."""

    def __init__(self, *, can_interrupt: bool = False, confirmed: int | None = 0) -> None:
        self.can_interrupt, self.confirmed = can_interrupt, confirmed
        self.calls: list[str] = []

    def confirms(self, code: int) -> bool:
        self.calls.append(f"confirms {code}")
        return code == self.confirmed

    def interrupt(self) -> bool:
        self.calls.append("interrupt")
        return self.can_interrupt

    def report(self, outcome: Outcome) -> Outcome:
        self.calls.append(f"report {outcome.code}")
        return outcome


@pytest.mark.parametrize(("confirmed", "code"), [(5, 5), (None, 7)])
def test_an_end_that_the_stream_confirms_needs_no_kubelet(
    capsys: pytest.CaptureFixture[str], confirmed: int | None, code: int
) -> None:
    stream, end = PlayedStream(confirmed=confirmed), f"{END}5 "
    informer = ScriptedInformer(*[pod(RUNNING)] * 2, ended(7), lines=["one", end, end])
    outcome = script_pod.follow(informer, CLUSTER, NAME, LogOptions(follow=True), stream)  # type: ignore[arg-type]
    assert outcome == Outcome(code)
    assert stream.calls == ["confirms 5"]
    assert capsys.readouterr() == ("one\n", "")


class InterruptedInformer(ScriptedInformer):
    """Gets Ctrl-C after the first line of the log."""

    @contextlib.contextmanager
    def lines(self, path: str, query: Object) -> Iterator[Iterator[str]]:
        with super().lines(path, query) as lines:
            yield self._interrupted(lines)

    def _interrupted(self, lines: Iterator[str]) -> Iterator[str]:
        for number, line in enumerate(lines):
            if number == 1 and len(self.queries) == 1:
                raise KeyboardInterrupt
            yield line


@pytest.mark.parametrize(
    ("can_interrupt", "calls", "out"),
    [(True, ["interrupt", "confirms 130", "report 130"], "one\ntwo\n"), (False, ["interrupt"], "one\n")],
)
def test_files_are_copied_after_ctrl_c(
    capsys: pytest.CaptureFixture[str], can_interrupt: bool, calls: list[str], out: str
) -> None:
    stream, end = PlayedStream(can_interrupt=can_interrupt, confirmed=130), f"{END}130 "
    informer = InterruptedInformer(pod(RUNNING), pod(RUNNING), ended(130), lines=["one", "two", end, end])
    with pytest.raises(KeyboardInterrupt):
        script_pod.follow(informer, CLUSTER, NAME, LogOptions(follow=True), stream)  # type: ignore[arg-type]
    assert (stream.calls, capsys.readouterr().out) == (calls, out)


@pytest.mark.parametrize(("version", "tail", "lines"), [(pod(RUNNING), 5, 5), (ended(0), None, None), (ended(0), 5, 7)])
def test_the_tail_of_an_ended_script_includes_the_ends_of_its_streams(
    version: Object, tail: int | None, lines: int | None
) -> None:
    informer = ScriptedInformer(version, ended(0))
    follow(informer, tail=tail)
    assert informer.queries[0].get("tailLines") == lines


def test_output_goes_to_its_streams(capsys: pytest.CaptureFixture[str]) -> None:
    follow(ScriptedInformer(ended(0), lines=["one", "\x1etwo", f"three{END}0 "]))
    assert capsys.readouterr() == ("one\nthree\n", "two\n")
    follow(ScriptedInformer(ended(0), lines=["\x1etwo", f"three{END}0 ", f"{END}0 "]), timestamps=True)
    assert capsys.readouterr() == ("2026-01-01T00:00:01Z three\n", "2026-01-01T00:00:00Z two\n")


def test_brief_leaves_out_what_tensorflow_writes_for_itself(capsys: pytest.CaptureFixture[str]) -> None:
    own = "\x1eW0000 00:00:1795579734.3  12037 dataset.cc:997] not optimized"
    follow(ScriptedInformer(ended(0), lines=["one", own, f"three{END}0 "]), brief=True)
    assert capsys.readouterr() == ("one\nthree\n", "")


def test_lost_tasks_are_explained_without_waiting_for_kubelet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def status(index: int, phase: Phase, since: float, reason: str) -> TaskStatus:
        return TaskStatus(task=Task("worker", index), phase=phase, address="", since=since, reason=reason)

    tasks = (
        status(0, Phase.PENDING, 5, "no node has 4 GPUs free"),
        status(1, Phase.READY, 5, "killed long ago"),
        status(2, Phase.READY, 15, "killed a moment ago"),
        status(3, Phase.READY, 15, "ended with exit code 137"),
        status(4, Phase.STARTING, 5, "killed long ago"),  # a server that is stopped now
    )
    monkeypatch.setattr(script_pod.status, "read", lambda *_: SimpleNamespace(tasks=tasks))
    end = f"{END}3 {error_names.A_TASK_FAILED}"
    informer = ScriptedInformer(pod(RUNNING), lines=[end, end])  # its pod runs on
    informer.known_ends = {"demo-worker-3": "evicted"}
    assert follow(informer) == Outcome(3, task_failed=True)
    assert capsys.readouterr().err == (
        "tfk8s: worker/0: no node has 4 GPUs free\ntfk8s: worker/2: killed a moment ago\ntfk8s: worker/3: evicted\n"
    )
