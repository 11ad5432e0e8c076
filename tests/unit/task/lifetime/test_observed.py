"""A cluster's pods, Jobs and events as the pod of its own Job sees them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.naming import SERVER_CONTAINER
from tfk8s.task.lifetime.record import observed

READY = {"name": SERVER_CONTAINER, "ready": True, "restartCount": 0, "state": {"running": {}}}
Pod = dict[str, Any]


def pod(**status: Any) -> Pod:
    return {
        "metadata": {
            "name": "demo-my-ps-1234-2", "creationTimestamp": "2026-11-28T05:29:54Z",
            "labels": {"apps.kubernetes.io/pod-index": "2"},
        },
        "spec": {
            "containers": [
                {"name": "proxy"}, {"name": SERVER_CONTAINER, "env": [{"name": "TFK8S_JOB", "value": "My_ps"}]},
            ],
        },
        "status": {"phase": "Running", "containerStatuses": [{**READY}], **status},
    }  # fmt: skip


def program(**status: Any) -> Pod:
    made = pod(**status)
    made["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": "2"}
    return made


def ended(code: int, message: str = "", phase: str = "Failed", **more: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}}
    return {"phase": phase, "containerStatuses": [{**READY, "ready": False, "state": state, **more}]}


UNSCHEDULED = {
    "phase": "Pending", "containerStatuses": [],
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}],
}  # fmt: skip
PULLING = {
    "phase": "Pending",
    "containerStatuses": [
        {**READY, "ready": False, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
    ],
}
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
RESTARTED = {"containerStatuses": [{**READY, "restartCount": 3, "lastState": KILLED}]}


@pytest.mark.parametrize(
    ("made", "phase", "restarts", "code", "reason"),
    [
        (pod(), "Ready", 0, None, ""),
        (pod(containerStatuses=[{**READY, "ready": False}]), "Starting", 0, None, ""),
        (pod(**UNSCHEDULED), "Pending", 0, None, "Unschedulable: 0/1 nodes"),
        (pod(**PULLING), "Pending", 0, None, "ImagePullBackOff: no"),
        (pod(**RESTARTED), "Ready", 3, None, "OOMKilled"),
        (program(), "Running", 0, None, ""),
        (program(**ended(0, phase="Succeeded")), "Succeeded", 0, 0, ""),
        (program(**ended(1, "exit code 3, restarts 2")), "Failed", 2, 3, "Error: exit code 3, restarts 2"),
        (program(phase="Failed", reason="Evicted", message="low on memory", containerStatuses=[]), "Failed", 0, None,
         "Evicted: low on memory"),
    ],
)  # fmt: skip
def test_state_of_a_task(made: Pod, phase: str, restarts: int, code: int | None, reason: str) -> None:
    found = observed.observe(made)
    assert found
    assert (found.log, found.task) == ("My_ps-2", "My_ps/2")
    assert (found.phase, found.restarts, found.exit_code, found.reason) == (phase, restarts, code, reason)


def test_pod_of_a_script_and_others() -> None:
    script = pod()
    script["spec"]["containers"][1] = {"name": "script"}
    script["metadata"]["labels"] = {"batch.kubernetes.io/job-name": "demo-script-4e9c21"}
    found = observed.observe(script)
    assert found
    assert (found.log, found.task, found.container) == ("script-4e9c21", "", "script")
    script["metadata"]["labels"] = {"batch.kubernetes.io/job-name": "demo-warm-8c980692-8213"}
    assert observed.observe(script) is None


PATHS = [
    ("metadata", "name"), ("metadata", "labels"), ("metadata", "creationTimestamp"), ("spec", "containers"),
    ("status", "phase"), ("status", "containerStatuses"), ("status", "conditions"),
    ("status", "containerStatuses", 0, "state"), ("status", "containerStatuses", 0, "restartCount"),
]  # fmt: skip


@given(
    st.sampled_from(PATHS),
    st.none()
    | st.integers()
    | st.text(max_size=5)
    | st.lists(st.integers())
    | st.just({"terminated": {"exitCode": "x"}}),
)
def test_pod_of_another_form_is_no_error(path: tuple[Any, ...], value: object) -> None:
    made = copy.deepcopy(program(**ended(1)))
    part: Any = made
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    observed.observe(made)


def test_newest_pod_of_a_program_counts() -> None:
    old, new = program(), program(**ended(0, phase="Succeeded"))
    new["metadata"] = {**new["metadata"], "name": "demo-my-ps-1234-2-b", "creationTimestamp": "2026-11-28T05:29:55Z"}
    found = observed.newest(one for one in map(observed.observe, (new, old)) if one)
    assert [one.name for one in found.values()] == ["demo-my-ps-1234-2-b"]


def job(kind: str = "", run_end: str = "") -> Pod:
    conditions = [{"type": kind, "status": "True"}] if kind else []
    return {"metadata": {"annotations": {"tfk8s.dev/run-end": run_end}}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("jobs", "code"),
    [
        ([], None),
        ([job()], None),
        ([job("Complete"), job()], None),
        ([job("Complete"), job(run_end="Complete")], 0),
        ([job(), job("Failed")], 3),
        ([job("Complete"), job(run_end="Failed")], 3),
    ],
)
def test_result_of_a_run(jobs: list[Pod], code: int | None) -> None:
    pods = [one for one in map(observed.observe, [program(**ended(1, "exit code 3, restarts 0"))]) if one]
    assert observed.result(jobs, pods) == code


def event(name: str, kind: str = "Pod", **more: Any) -> dict[str, Any] | None:
    plain = {
        "metadata": {"uid": "u", "creationTimestamp": "2026-11-28T05:29:54Z"}, "type": "Warning", "reason": "Failed",
        "involvedObject": {"kind": kind, "name": name}, "message": "no token=abc123 \n", "count": 2, **more,
    }  # fmt: skip
    return observed.event(plain, {"demo-ps-0": "ps/0"}, {"demo", "demo-ps"})


def test_events_of_the_cluster_alone() -> None:
    found = event("demo-ps-0")
    assert found
    assert (found["about"], found["count"], found["warning"], found["message"]) == ("ps/0", 2, True, "no token=…")
    assert (event("demo-ps", "StatefulSet") or {})["about"] == "StatefulSet demo-ps"
    assert event("demo-2-ps-0") is None
    assert event("demo-ps-0", reason="Unhealthy", message="Startup probe failed: refused") is None
    assert event("demo-ps-0", lastTimestamp="nonsense") is None
    assert event("demo-ps-0", involvedObject="nonsense") is None
