"""Nodes that may be at fault, from the pods of a job and from events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.backends.kubernetes.api_server.errors import from_response
from tfk8s.backends.kubernetes.workloads import bad_nodes
from tfk8s.backends.kubernetes.workloads.bad_nodes import Fault
from tfk8s.core.programs import end_message
from tfk8s.render import placement
from tfk8s.render.pods import Object

NOW = time.time()  # of all tests: events are made when pytest collects, which may be long before a test runs
RUNS: Object = {"running": {}}
CRASHED: Object = {"terminated": {"exitCode": 1, "reason": "Error"}}
KILLED: Object = {"terminated": {"exitCode": 137, "reason": "Error"}}
REFUSED: Object = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
EVICTED: Object = {"phase": "Failed", "reason": "Evicted"}
DRAINED: Object = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}


def pod(
    index: int, node: str = "", state: Object | None = None, *, age: int = 0, restarts: int = 0, **status: object
) -> Object:  # fmt: skip
    """Return a pod of a program; `age` is the number of pods of the task after it."""
    labels = {
        "app.kubernetes.io/component": "worker", "batch.kubernetes.io/job-name": "demo-worker",
        "batch.kubernetes.io/job-completion-index": str(index),
    }  # fmt: skip
    created = f"2026-01-01T00:{10 - age:02d}:00Z"
    phase = "Running" if state == RUNS else "Failed"
    own = {"name": "server", "state": state, "ready": state == RUNS, "restartCount": restarts}
    return {
        "metadata": {"name": f"p{index}{age}", "uid": f"{index}{age}", "labels": labels, "creationTimestamp": created},
        "spec": {"containers": []} | ({"nodeName": node} if node else {}),
        "status": {"phase": phase, "containerStatuses": [own] if state else [], **status},
    }


def waiting(reason: str, **last: object) -> Object:
    return {"waiting": {"reason": reason}, **last}


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (pod(1, "bad", KILLED), "ended with exit code 137"),
        (pod(1, "bad", **REFUSED), "was refused (UnexpectedAdmissionError)"),
        (pod(1, "bad", waiting("RunContainerError"), phase="Pending"), "could not start (RunContainerError)"),
        (pod(1, "bad", CRASHED, restarts=2, phase="Running"), "ended with exit code 1"),
        (pod(1, "bad", CRASHED, restarts=1, phase="Running"), ""),  # a graph may end a server
        (pod(1, "bad", {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), ""),
        (pod(1, "bad", {"terminated": {"exitCode": 143, "reason": "Error"}}), ""),
        (pod(1, "bad", {"terminated": {"exitCode": 1, "message": end_message(1, 0)}}), ""),  # the program's own end
        (pod(1, "bad", KILLED, **DRAINED), ""),
        (pod(1, "bad", **EVICTED), ""),
        (pod(1, "bad", phase="Failed", reason="Preempting"), ""),
        (pod(1, "bad", waiting("ImagePullBackOff"), phase="Pending"), ""),
        (pod(1, "", **REFUSED), ""),
    ],
)
def test_a_failure_that_others_do_not_have(failed: Object, reason: str) -> None:
    expected = {"demo-worker-1": Fault("bad", reason)} if reason else {}
    assert bad_nodes.find([failed, pod(0, "good", RUNS)]) == expected
    assert bad_nodes.find([failed]) == {}  # perhaps it fails everywhere
    assert bad_nodes.find([failed, pod(0, "bad", RUNS)]) == {}


def test_a_task_that_failed_on_a_node_and_runs_on_another() -> None:
    pods = [pod(0, "bad", KILLED, age=2), pod(0, "worse", **EVICTED, age=1), pod(0, "good", RUNS)]
    assert bad_nodes.find(pods) == {"demo-worker-0": Fault("bad", "ended with exit code 137")}
    pods[2] |= placement.away_from(pods[2], ["bad"])  # its start has avoided the node
    assert bad_nodes.find(pods) == {}
    pods[2] = pod(0, "good", RUNS)
    pods[2]["spec"] |= placement.away_from({"metadata": {}, "spec": {}}, ["bad"])["spec"]  # by the job file
    assert bad_nodes.find(pods) == {}
    deleted = pod(0, "bad", KILLED, age=1)
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert bad_nodes.find([deleted, pod(0, "good", RUNS)]) == {}


def test_a_pod_without_its_gpus() -> None:
    lacking = pod(0, "bad", RUNS)
    lacking["metadata"]["annotations"] = bad_nodes.lack_of_gpus(lacking)
    assert bad_nodes.find([lacking, pod(1, "good", RUNS)]) == {"demo-worker-0": Fault("bad", "sees no GPUs")}
    lacking["status"]["containerStatuses"][0]["restartCount"] += 1  # it may see them now
    assert bad_nodes.find([lacking, pod(1, "good", RUNS)]) == {}
    assert bad_nodes.find([pod(1, "bad", KILLED), lacking]) == {}


STATES = st.sampled_from([RUNS, CRASHED, KILLED, None])
STATUSES: st.SearchStrategy[Object] = st.sampled_from([{}, REFUSED, EVICTED, DRAINED])
PODS = st.lists(
    st.builds(
        lambda index, age, node, state, status: pod(index, node, state, age=age, restarts=3, **status),
        st.integers(0, 2), st.integers(0, 3), st.sampled_from(["a", "b", "c", ""]), STATES, STATUSES,
    ),
    max_size=8,
)  # fmt: skip


@given(PODS)
def test_no_node_is_blamed_that_runs_a_pod_or_that_only_loses_pods(pods: Sequence[Object]) -> None:
    found = bad_nodes.find(pods)
    assert found == bad_nodes.find(list(reversed(pods))) or len({item["metadata"]["uid"] for item in pods}) < len(pods)
    for fault in found.values():
        there = [item for item in pods if item["spec"].get("nodeName") == fault.node]
        assert not any(item["status"]["phase"] == "Running" for item in there)
        taken = (item["status"].get("reason") == "Evicted" or "conditions" in item["status"] for item in there)
        assert not all(taken)
        assert any(item["status"]["phase"] == "Running" for item in pods)


class Events:
    """An API server with events, which some users may not list."""

    def __init__(self, *events: Object, code: int = 0) -> None:
        self._events, self._code, self.requests = events, code, 0

    def read(self) -> Sequence[Object]:
        self.requests += 1
        if self._code:
            raise from_response(self._code, b"{}", "test")
        return self._events


def moment(ago: float) -> str:
    return datetime.fromtimestamp(NOW - ago, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def server(ago: float, node: str = "good") -> Object:
    made = pod(0, node, RUNS)
    labels = {"app.kubernetes.io/component": "worker", "statefulset.kubernetes.io/pod-name": "demo-worker-0"}
    made["metadata"] |= {"name": "demo-worker-0", "labels": labels, "creationTimestamp": moment(ago)}
    return made


def event(reason: str, message: str, *, host: str = "bad", uid: str = "before", ago: float = 100.0) -> Object:
    return {
        "metadata": {"creationTimestamp": moment(ago)}, "reason": reason, "message": message,
        "involvedObject": {"kind": "Pod", "name": "demo-worker-0", "uid": uid},
        "source": {"component": "kubelet", "host": host},
    }  # fmt: skip


BACK_OFF = event("BackOff", "Back-off restarting failed container server in pod demo-worker-0")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (BACK_OFF, "ended again and again"),
        (event("UnexpectedAdmissionError", "Allocate failed"), "was refused (UnexpectedAdmissionError)"),
        (event("Failed", "Error: failed to create containerd task: oh"), "could not start (Failed)"),
        (event("Failed", "Error: ImagePullBackOff"), ""),
        (event("Failed", 'Failed to pull image "x"'), ""),
        (event("Evicted", "The node was low on resource: memory"), ""),
        (event("BackOff", "Back-off pulling image"), ""),
        ({**BACK_OFF, "source": {"host": "\x1b[31mbad"}}, ""),
        (event("BackOff", BACK_OFF["message"], uid="00"), ""),  # the pod that runs now
        (event("BackOff", BACK_OFF["message"], ago=1), ""),
        (event("BackOff", BACK_OFF["message"], host="good"), ""),
    ],
)
def test_a_server_that_failed_on_a_node_and_runs_on_another(made: Object, reason: str) -> None:
    workload = {"metadata": {"creationTimestamp": moment(1000)}}
    expected = {"demo-worker-0": Fault("bad", reason)} if reason else {}
    assert bad_nodes.read([server(50)], [workload], Events(made).read) == expected
    assert bad_nodes.read([server(50)], [workload], Events(code=403).read) == {}


@pytest.mark.parametrize("ago", [970, 990, 10_000])
def test_only_a_pod_that_was_created_again_needs_a_request(ago: float) -> None:
    events = Events(BACK_OFF)
    begin = {"metadata": {"creationTimestamp": moment(max(1000, ago + 500 * (ago > 5000)))}}
    assert bad_nodes.read([server(ago)], [begin], events.read) == {}
    assert events.requests == 0
