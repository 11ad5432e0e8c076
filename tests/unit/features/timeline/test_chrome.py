"""The Chrome trace of a recording."""

from __future__ import annotations

import json
from typing import Any

from traced import MIB, operation, step, training_step

from tfk8s.features.timeline.chrome import chrome_trace
from tfk8s.features.timeline.steps import Recording


def events(*steps: Any) -> list[dict[str, Any]]:
    text, count = chrome_trace(Recording(steps))
    assert count == len(steps)
    return json.loads(text)["traceEvents"]


def test_tasks_are_processes_and_devices_threads() -> None:
    found = events(training_step())
    names = {event["pid"]: event["args"]["name"] for event in found if event["name"] == "process_name"}
    order = {
        names[event["pid"]]: event["args"]["sort_index"] for event in found if event["name"] == "process_sort_index"
    }
    assert sorted(order, key=order.__getitem__) == ["script", "ps/0", "worker/0", "worker/1"]
    threads = {(names[event["pid"]], event["args"]["name"]) for event in found if event["name"] == "thread_name"}
    assert threads >= {("script", "session.run"), ("worker/1", "CPU:0"), ("worker/1", "received"), ("ps/0", "CPU:0")}


def test_operations_and_transfers_with_their_times() -> None:
    found = events(training_step(), step(operation("ps/0", "loss", 3, 7, kind="AddN"), began=5000))
    (second,) = [event for event in found if event["name"] == "loss" and event["ph"] == "X" and event["ts"] == 5003]
    assert (second["dur"], second["cat"]) == (4, "AddN")
    sent = [event for event in found if event["ph"] == "X" and event["name"] == "w1"]
    assert [(event["ts"], event["dur"], event["args"]) for event in sent] == [
        (85, 215, {"from": "ps/0", "bytes": 16 * MIB, "size": "16 MiB"}),
        (85, 615, {"from": "ps/0", "bytes": 16 * MIB, "size": "16 MiB"}),
    ]
    flows = [(event["ph"], event["id"]) for event in found if event["ph"] in "sf"]
    assert sorted(flows) == [*(("f", n) for n in range(1, 5)), *(("s", n) for n in range(1, 5))]


def test_operations_at_the_same_time_are_in_different_threads() -> None:
    found = events(step(operation("a/0", "x", 0, 10), operation("a/0", "y", 5, 15), operation("a/0", "z", 10, 20)))
    threads = {event["name"]: event["tid"] for event in found if event.get("cat") == "operation"}
    assert threads["x"] == threads["z"] != threads["y"]


def test_a_trace_has_a_limit_and_at_least_a_step() -> None:
    text, count = chrome_trace(Recording((training_step(), training_step())), max_events=10)
    assert count == 1
    assert [event["name"] for event in json.loads(text)["traceEvents"]].count("loss") == 2  # the call, its operation
