"""The work of tasks and scripts in words, and what a call waits for."""

from __future__ import annotations

from typing import Any

import pytest

from tfk8s.backends import stacks
from tfk8s.backends.stacks import Stacks
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus


def document(state: str = "S", *, computes: bool = False, **more: Any) -> dict[str, Any]:
    return {"pid": 7, "state": state, "computes": computes, "python": None, "problem": "", **more}


@pytest.mark.parametrize(
    ("process", "activity"),
    [
        (document(), "waits"),
        (document(computes=True), "computes"),
        (document("T"), "stopped by a signal"),
        (document("D", computes=True), "waits for a disk or a device"),
        (document(""), "ended"),
    ],
)  # fmt: skip
def test_activity(process: dict[str, Any], activity: str) -> None:
    assert stacks.parse("worker/1", [process]).activity == activity


TASKS = {
    "ps/0": stacks.parse("ps/0", [document(computes=True)]),
    "ps/1": stacks.parse("ps/1", [document()]),
    "worker/0": stacks.parse("worker/0", [document()]),
    "worker/1": stacks.parse("worker/1", [document("T")]),
}


def task(job: str, phase: Phase, reason: str = "") -> TaskStatus:
    return TaskStatus(task=Task(job, 0), phase=phase, address="", reason=reason)


STATUS = ClusterStatus(
    name="mnist", backend="local", location="", target="", master=Task("chief", 0),
    tasks=(
        task("chief", Phase.FAILED, "killed by SIGKILL; restarts in 1 s"), task("evaluator", Phase.UNKNOWN),
        task("ps", Phase.READY, "ended with exit code 1 before"),
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({}, "in TensorFlow's f.run"),
        ({"needs": []}, "in TensorFlow's f.run; the call needs no task"),
        (
            {"seconds": 41.23, "needs": ["ps/0", "worker/0", "worker/1"], "is_same": True},
            "in TensorFlow's f.run for 41.2 s; waits for worker/1 (stopped by a signal)",
        ),
        (
            {"seconds": 192.0, "needs": ["ps/0", "worker/0"]},
            "in TensorFlow's f.run for 3m12s; waits for ps/0 (computes)",
        ),
        (
            {"needs": ["ps/1"]},
            "in TensorFlow's f.run; needs ps/1; no task computes: all wait for a queue, a lock, data or the network",
        ),
        ({"needs": ["worker/0", "worker/9"]}, "in TensorFlow's f.run; needs worker/0, worker/9"),
        ({"needs": ["chief/0", "ps/0"]}, "in TensorFlow's f.run; waits for chief/0 (killed by SIGKILL)"),
        ({"needs": ["evaluator/0", "ps/0"]}, "in TensorFlow's f.run; waits for evaluator/0 (unknown)"),
        (
            {"seconds": 0.1, "needs": ["worker/1"], "is_same": False},
            "in TensorFlow's f.run, again and again: the script moves",
        ),
    ],
)
def test_call_in_words(call: dict[str, Any], text: str) -> None:
    thread = {"name": "MainThread", "is_main": True, "frames": [], "call": {"name": "f.run", **call}}
    (parsed,) = stacks.parse("pid 7", [document(python=[thread])]).calls
    assert stacks.explainer(STATUS, TASKS.values())(parsed) == text


def test_needed_by_names_whose_calls_need_each_task() -> None:
    def script(name: str, *needs: list[str] | None) -> Stacks:
        calls = [{"name": "session.run", "needs": one} for one in needs]
        threads = [{"name": "t", "is_main": False, "frames": [], "call": call} for call in [*calls, None]]
        return stacks.parse(name, [document(python=threads)])

    found = [
        *TASKS.values(), script("pid 9", ["ps/0"], ["ps/1", "ps/0"], None), Stacks("pid 8", problem="gone"),
        script("pid 7", ["ps/0"]),
    ]  # fmt: skip
    assert stacks.needed_by(found) == {"ps/0": ["pid 9", "pid 7"], "ps/1": ["pid 9"]}
