"""The word of the Job that keeps the limits to the Job that writes the record, with a pretended API server."""

from __future__ import annotations

from typing import Any

import pytest

from tfk8s.core.history.shared import NO_REQUESTS, of_notes
from tfk8s.core.lifetime import RECORD_GRACE, Limits, RemovableObject, removable_objects
from tfk8s.task.lifetime import record_witness
from tfk8s.task.lifetime.budgets import Budgets
from tfk8s.task.lifetime.keeper import Keeper
from tfk8s.task.lifetime.object_server import Answer, Forbidden, NoAnswer

OBJECTS = removable_objects("demo", ["worker"])
RECORD = RemovableObject("batch/v1", "jobs", "demo-lifetime-0123abcd")


class RecordedServer:
    """An API server with a cluster, whose Job of the record needs seconds to end."""

    def __init__(self) -> None:
        self.seconds, self.seconds_to_end = 100.0, 3.0
        self.uids = {item: f"uid of {item.name}" for item in (RECORD, *OBJECTS)}
        self.ending: dict[RemovableObject, float] = {}
        self.annotations: dict[str, str] = {}
        self.deletes: list[tuple[str, float]] = []
        self.refused: dict[str, Exception] = {}  # by the method

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def get(self, item: RemovableObject) -> Answer:
        if item == RECORD and "get" in self.refused:
            raise self.refused["get"]
        if item in self.ending and self.ending[item] <= self.seconds:
            self.uids.pop(item, None)
        metadata = {"uid": self.uids.get(item), "creationTimestamp": "2026-11-28T05:29:54Z"}
        return Answer({"metadata": metadata} if item in self.uids else None, 1795843794.0 + self.seconds)

    def delete(self, item: RemovableObject, uid: str, propagation: str) -> None:
        self.deletes.append((item.name, self.seconds))
        if item == RECORD and "delete" in self.refused:
            raise self.refused["delete"]
        self.ending.setdefault(item, self.seconds + (self.seconds_to_end if item == RECORD else 0.0))

    def patch(self, item: RemovableObject, change: dict[str, Any]) -> bool:
        assert item.name == "demo-lifetime"
        if "patch" in self.refused:
            raise self.refused["patch"]
        self.annotations |= change["metadata"]["annotations"]
        return True

    def witness(self) -> record_witness.RecordWitness:
        environment = {"TFK8S_RECORD_JOB": RECORD.name}
        clock = lambda: self.seconds  # noqa: E731
        found = record_witness.of_environment(self, OBJECTS, environment, clock, self.sleep)  # type: ignore[arg-type]
        assert found
        return found

    def keep(self) -> str:
        clock = lambda: self.seconds  # noqa: E731
        given: tuple[Any, ...] = (Limits(150, None), Budgets(self, []), None, lambda: 0.0, clock, self.sleep)  # type: ignore[arg-type]
        return Keeper(self, OBJECTS, *given, self.witness()).run()  # type: ignore[arg-type]


def test_a_cluster_without_a_record_has_no_witness() -> None:
    server: Any = RecordedServer()
    assert record_witness.of_environment(server, OBJECTS, {}, lambda: 0.0, server.sleep) is None


def test_the_record_ends_with_the_reason_before_the_tasks_end() -> None:
    server = RecordedServer()
    reason = server.keep()
    (end,) = of_notes(server.annotations)
    assert (end["kind"], end["reason"]) == ("end", f"removed {reason}")
    (record, begin), (tasks, then) = server.deletes[:2]
    assert (record, tasks) == (RECORD.name, "demo-worker")
    assert then - begin == 3
    assert set(server.ending) == {RECORD, *OBJECTS}


def test_a_suspension_is_told() -> None:
    server = RecordedServer()
    server.witness().suspended()
    assert [fact["requests"] for fact in of_notes(server.annotations)] == [NO_REQUESTS]


def test_a_pod_that_never_ends_delays_the_limits_and_keeps_them_kept() -> None:
    server = RecordedServer()
    server.seconds_to_end = 1e6
    assert server.keep()
    first = dict(reversed(server.deletes))
    assert RECORD_GRACE < first["demo-worker"] - first[RECORD.name] <= RECORD_GRACE + 6
    assert set(server.ending) == {RECORD, *OBJECTS}


@pytest.mark.parametrize("method", ["patch", "delete", "get"])
@pytest.mark.parametrize("failure", [Forbidden("a webhook says no"), NoAnswer("timed out")])
def test_no_refusal_keeps_the_limits_from_being_kept(method: str, failure: Exception) -> None:
    server = RecordedServer()
    server.refused = {method: failure}
    assert server.keep()
    assert set(server.ending) == {*OBJECTS, *([RECORD] if method == "patch" else ())}
