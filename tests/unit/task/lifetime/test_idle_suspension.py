"""An idle cluster that its own Job suspends, with an API server and a clock that a test moves."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tfk8s.core.lifetime import (
    SUSPENDED,
    Limits,
    RemovableObject,
    Suspension,
    queue_workload,
    removable_objects,
)
from tfk8s.task.lifetime.budgets import Budgets
from tfk8s.task.lifetime.idle_suspension import IdleSuspension
from tfk8s.task.lifetime.keeper import Keeper
from tfk8s.task.lifetime.object_server import Answer, ApiFailure

OBJECTS = removable_objects("demo", ["chief", "ps"], ["worker"])
OWN = RemovableObject("batch/v1", "jobs", "demo-lifetime-1a2b3c4d")
CREATED = 1_700_000_000.0
PS, WORKER = OBJECTS[1], OBJECTS[2]
LIMITS = Limits(None, 10_000, suspend=100)
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


class SleepyCluster:
    """A cluster of two jobs with servers and one whose programs have ended; nobody uses the cluster."""

    def __init__(self) -> None:
        self.seconds = 0.0
        created = datetime.fromtimestamp(CREATED, UTC).isoformat()
        self.objects: dict[RemovableObject, dict[str, Any]] = {
            item: {"metadata": {"uid": item.name, "creationTimestamp": created}, "spec": {}} for item in (*OBJECTS, OWN)
        }
        for item, replicas in ((OBJECTS[0], 1), (PS, 2)):
            self.objects[item]["spec"]["replicas"] = replicas
        self.objects[WORKER]["status"] = COMPLETE
        self.log: list[str] = []
        self.refused = ""  # the end of a name
        self.at: dict[float, Callable[[], object]] = {}  # what somebody does at a time
        self.last_use = -math.inf
        self.queued = False

    @property
    def replicas(self) -> list[int]:
        return [body["spec"]["replicas"] for body in self.objects.values() if "replicas" in body["spec"]]

    @property
    def wish(self) -> Suspension | None:
        text = self.objects[OWN]["metadata"].get("annotations", {}).get(SUSPENDED)
        return Suspension.parse(text) if text else None

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        for moment in [moment for moment in self.at if moment <= self.seconds]:
            self.at.pop(moment)()

    def ask(self) -> float:
        return self.seconds - self.last_use if any(self.replicas) else 0.0

    def get(self, item: RemovableObject) -> Answer:
        return Answer(copy.deepcopy(self.objects.get(item)), CREATED + self.seconds)

    def delete(self, item: RemovableObject, uid: str, propagation: str) -> None:
        del self.objects[item]

    def patch(self, item: RemovableObject, change: dict[str, Any], subresource: str = "") -> bool:
        name = "/".join(filter(None, (item.name, subresource)))
        if self.refused and name.endswith(self.refused):
            raise ApiFailure("forbidden")
        self.log.append(f"{self.seconds:g}: {name}")
        if item not in self.objects:
            return False
        for part, fields in change.items():
            self.objects[item].setdefault(part, {}).update(fields)
        return True

    def keep(self, limits: Limits = LIMITS, objects: list[RemovableObject] = OBJECTS) -> str:
        server: Any = self
        suspension = IdleSuspension(server, objects, OWN.name, queued=self.queued)
        clock = lambda: self.seconds  # noqa: E731
        return Keeper(server, objects, limits, Budgets(server, []), suspension, self.ask, clock, self.sleep).run()

    def resume(self) -> None:
        self.objects[PS]["spec"]["replicas"] = 2
        del self.objects[OWN]["metadata"]["annotations"]


@pytest.fixture
def cluster() -> SleepyCluster:
    return SleepyCluster()


REMOVED = "after 10000s without a session and a script (idle)"


def test_the_wish_comes_first_and_the_removal_counts_from_the_last_use(cluster: SleepyCluster) -> None:
    seen: list[Any] = []
    cluster.at[5000] = lambda: seen.append((cluster.replicas, cluster.wish))
    assert cluster.keep() == REMOVED
    assert cluster.log == ["100: demo-lifetime-1a2b3c4d", "100: demo-chief/scale", "100: demo-ps/scale"]
    assert seen == [([0, 0], Suspension(CREATED + 100, "tfk8s", {"chief": 1, "ps": 2}, 100))]
    assert 10_000 <= cluster.seconds < 10_060 + 2


def test_the_quota_goes_back_when_the_pods_have_ended(cluster: SleepyCluster) -> None:
    workload = queue_workload("demo")
    cluster.queued = True
    cluster.objects[workload] = {"metadata": {"uid": "1"}, "spec": {}}
    cluster.objects[PS]["status"] = {"replicas": 1}
    cluster.at[1000] = lambda: cluster.objects[PS].pop("status")
    seen = []
    for moment in (999, 1130):
        cluster.at[moment] = lambda: seen.append(workload in cluster.objects)
    assert cluster.keep() == REMOVED
    assert seen == [True, False]


def test_a_use_postpones_the_suspension(cluster: SleepyCluster) -> None:
    cluster.last_use = 70
    cluster.keep()
    assert cluster.log[0] == "170: demo-lifetime-1a2b3c4d"
    assert 10_070 <= cluster.seconds < 10_132


def test_a_program_that_runs_again_meanwhile_is_suspended_too(cluster: SleepyCluster) -> None:
    def get(item: RemovableObject) -> Answer:
        if item == WORKER in cluster.objects and cluster.wish:  # `restart` has made it again
            cluster.objects[WORKER]["status"] = {}
        return Answer(copy.deepcopy(cluster.objects.get(item)), CREATED + cluster.seconds)

    cluster.get = get  # type: ignore[method-assign]
    assert cluster.keep() == REMOVED
    assert "100: demo-worker" in cluster.log


def test_programs_that_run_are_use(cluster: SleepyCluster) -> None:
    cluster.objects[WORKER]["status"] = {}
    assert cluster.keep(LIMITS._replace(max_duration=5000)) == "5000s after its first `up` (max_duration)"
    assert cluster.log == []


def test_a_cluster_that_is_resumed_begins_a_new_count(cluster: SleepyCluster) -> None:
    cluster.at[1000] = cluster.resume
    cluster.keep()
    wishes = [line for line in cluster.log if "lifetime" in line]
    assert len(wishes) == 2
    assert 1040 <= float(wishes[1].partition(":")[0]) <= 1170
    assert 11_000 - 100 <= cluster.seconds <= 11_170


def test_what_fails_in_between_is_done_at_the_next_look(cluster: SleepyCluster) -> None:
    cluster.refused = "demo-ps/scale"
    cluster.at[300] = lambda: setattr(cluster, "refused", "")
    assert cluster.keep() == REMOVED
    assert cluster.log[:2] == ["100: demo-lifetime-1a2b3c4d", "100: demo-chief/scale"]
    assert cluster.replicas == []
    assert any(line.endswith("demo-ps/scale") and float(line.partition(":")[0]) >= 300 for line in cluster.log)
    assert sum("lifetime" in line for line in cluster.log) == 1


def test_the_next_pod_of_the_job_counts_on_and_finishes(cluster: SleepyCluster) -> None:
    """A pod was killed after the wish, 9,000 s ago."""
    wish = Suspension(CREATED - 9000, "tfk8s", {"chief": 1, "ps": 2}, 100)
    cluster.objects[OWN]["metadata"]["annotations"] = {SUSPENDED: wish.to_text()}
    assert cluster.keep() == REMOVED
    assert cluster.log == ["0: demo-chief/scale", "0: demo-ps/scale"]
    assert 900 <= cluster.seconds < 962


def test_the_wish_of_a_person_counts_from_then_on(cluster: SleepyCluster) -> None:
    cluster.objects[PS]["metadata"]["annotations"] = {SUSPENDED: Suspension(CREATED + 20, "jo", {"ps": 2}).to_text()}
    assert cluster.keep() == REMOVED
    assert cluster.log == []
    assert 10_020 <= cluster.seconds < 10_082


def test_without_a_removal_the_cluster_sleeps_until_its_duration(cluster: SleepyCluster) -> None:
    assert cluster.keep(Limits(9000, None, suspend=100)) == "150m after its first `up` (max_duration)"
    assert len(cluster.log) == 3


def test_nonsense_of_somebody_else_is_no_wish(cluster: SleepyCluster) -> None:
    cluster.objects[PS]["metadata"]["annotations"] = {SUSPENDED: "["}
    cluster.keep()
    assert len(cluster.log) == 3


def test_a_cluster_without_servers_has_nothing_to_suspend(cluster: SleepyCluster) -> None:
    objects = removable_objects("demo", [], ["worker"])
    cluster.objects = {item: body for item, body in cluster.objects.items() if item in (*objects, OWN)}
    cluster.ask = lambda: math.inf  # type: ignore[method-assign]
    assert cluster.keep(objects=objects) == REMOVED
    assert cluster.log == []


def test_nothing_ends_without_the_wish(cluster: SleepyCluster) -> None:
    cluster.refused = OWN.name
    assert cluster.keep() == REMOVED
    assert cluster.log == []
