"""Nodes that a real Karpenter starts, refuses and takes away, in the words of `up`, `status` and `events`."""

from __future__ import annotations

from collections.abc import Callable

from pool import Pool

from tfk8s import polling
from tfk8s.core.job_file.mappings import Topology

Make = Callable[..., Pool]
SPOT = "karpenter.sh/capacity-type"


def test_spot_nodes_of_karpenter_are_started(pool: Make) -> None:
    ours = pool()
    ours.backend.apply(ours.cluster("a", spot="karpenter"))
    ours.until_said("a", f"a node of pool {ours.name} is being started", "worker")
    ours.until_ready("a")
    labels = ours.labels("a")
    assert {pod: found.get(SPOT) for pod, found in labels.items()} == {
        "a-ps-0": None, "a-worker-0": "spot", "a-worker-1": "spot",
    }  # fmt: skip


def test_spot_nodes_of_another_provider_are_named_with_the_cure(pool: Make) -> None:
    ours = pool()
    ours.backend.apply(ours.cluster("a", spot="gke"))
    reason = ours.until_said("a", "incompatible requirements", "worker")
    assert "change jobs.worker.spot; Karpenter starts no node for it: incompatible requirements" in reason
    assert reason.endswith("write spot: karpenter in place of spot: gke")


def test_a_task_that_no_instance_type_can_hold(pool: Make) -> None:
    ours = pool(cores="10000")
    ours.backend.apply(ours.cluster("a", cpu="1000"))
    reason = ours.until_said("a", "Karpenter starts no node for it", "worker")
    assert reason.endswith("Karpenter starts no node for it: no instance type has enough resources"), reason


def test_a_pool_at_its_limit(pool: Make) -> None:
    ours = pool(cores="500m")
    ours.backend.apply(ours.cluster("a"))
    reason = ours.until_said("a", "; raise the limits of the NodePool", "worker")
    assert "Karpenter starts no node for it: all available instance types exceed limits for nodepool" in reason, reason


def test_consolidation_takes_a_node_and_the_task_comes_back(pool: Make) -> None:
    ours = pool("on-demand")
    ours.backend.apply(ours.cluster("a", cpu="1500m"))
    ours.until_ready("a")
    before = ours.labels("a")["a-worker-0"]["kubernetes.io/hostname"]
    ours.backend.scale("a", {"worker": 1})

    def has_moved() -> bool:
        found = ours.labels("a").get("a-worker-0")
        return found is not None and found["kubernetes.io/hostname"] != before

    polling.wait_until(has_moved, "a smaller node", 180)
    events = [event.message for event in ours.backend.events("a", follow=False)]
    assert "Evicted pod: Underutilized" in events, events


def test_all_nodes_of_a_gang_are_started(pool: Make) -> None:
    ours = pool()
    spread = Topology(spread="host", required=True)
    ours.backend.apply(ours.cluster("a", workers=4, gang=True, topology=spread))
    found = ours.until_ready("a")
    assert found.gang == "PodGroup"
    assert len({labels["kubernetes.io/hostname"] for labels in ours.labels("a").values()}) == 5


def test_one_of_two_gangs_of_200_tasks_gets_the_nodes_of_a_pool_for_one(pool: Make) -> None:
    ours = pool(cores="300")
    for name in ("a", "b"):
        ours.backend.apply(ours.cluster(name, workers=200, gang=True))
    placed = []

    def one_runs() -> bool:
        placed.append([sum(pod != f"{name}-ps-0" for pod in ours.labels(name)) for name in ("a", "b")])
        return 200 in placed[-1]

    polling.wait_until(one_runs, lambda: f"a whole gang: {placed[-1]}", 300)
    second = "ab"[placed[-1].index(0)]
    words = "all tasks start together or none"
    found = ours.until(second, lambda found: any(words in task.reason for task in found.tasks))
    assert found.gang == "PodGroup"
    assert all(0 in at_once for at_once in placed), placed
