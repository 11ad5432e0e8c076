"""What autoscalers say of pods, with messages of real clusters."""

from __future__ import annotations

from typing import Any

import pytest

from tfk8s.backends.kubernetes.pods import pod_events, pod_status
from tfk8s.backends.kubernetes.pods.pod_events import PodEvents
from tfk8s.core.status import Phase

Object = dict[str, Any]
GKE = "gke_project_us-central1-a_tfk8s"
GROUPS = "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a/instanceGroups"
SELECTOR = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/1 nodes are"
BY_SCHEDULER = (
    "no node has the labels it asks for (0/1 nodes are available: 1 node(s) didn't match Pod's node "
    "affinity/selector): change jobs.worker.accelerator or node_selector"
)
STARTS_NONE = "pod didn't trigger scale-up"


def event(
    reason: str, message: str, *, kind: str = "Pod", second: int = 1, source: str = "cluster-autoscaler"
) -> Object:
    warning = reason.startswith("Failed") or reason == "Pending"
    return {
        "involvedObject": {"kind": kind, "name": "statefulset-demo-worker-1a2b3", "uid": f"uid-{kind}"},
        "reason": reason, "message": message, "type": "Warning" if warning else "Normal",
        "lastTimestamp": f"2026-01-01T00:00:{second:02}Z", "source": {"component": source},
    }  # fmt: skip


def pod(*gates: str) -> Object:
    return {
        "metadata": {"uid": "uid-Pod"},
        "spec": {
            "containers": [{"name": "server", "resources": {}}],
            "schedulingGates": [{"name": gate} for gate in gates],
        },
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": SELECTOR}]},
    }


def seen(*events: Object, context: str = GKE) -> PodEvents:
    return pod_events.of(pod(), pod_events.group(events, context))


STARTED = [
    (
        "TriggeredScaleUp", f"pod triggered scale-up: [{{{GROUPS}/gke-tfk8s-l4-8f1c2d3e-grp 0->1 (max: 3)}}]",
        "a node of pool l4 is being started",
    ),
    (
        "TriggeredScaleUp", (f"pod triggered scale-up: [{{{GROUPS}/gk3-tfk8s-nap-1x2y-8f1c2d3e-grp 0->1 (max: 3)}} "
        f"{{{GROUPS}/gke-tfk8s-l4-8f1c2d3f-grp 1->3 (max: 3)}}]"),
        "a node of pool nap-1x2y or l4 is being started",
    ),
    (
        "TriggeredScaleUp",
        "pod triggered scale-up: [{eks-gpu-workers-8ac1d5ba-0a1b-1c2d-2e3f-0123456789ab 0->1 (max: 4)}]",
        "a node of pool gpu-workers is being started",
    ),
    (
        "TriggeredScaleUp", "pod triggered scale-up: [{aks-gpu-12345678-vmss 0->1 (max: 4)}]",
        "a node of pool gpu is being started",
    ),
    (
        "TriggeredScaleUp", "pod triggered scale-up: [{MachineDeployment/default/gpus 0->1 (max: 4)}]",
        "a node of pool gpus is being started",
    ),
    ("TriggeredScaleUp", "pod triggered scale-up", "a node is being started"),
    ("Nominated", "Pod should schedule on: nodeclaim/g5-gpu-fc4pv", "a node of pool g5-gpu is being started"),
    (
        "Nominated", "Pod should schedule on: nodeclaim/default-cvkcv, node/ip-10-199-71-41.ec2.internal",
        "a node of pool default is being started",
    ),
    ("Nominated", "Pod should schedule on: node/ip-10-1-1-1.ec2.internal", "a node is being started"),
]  # fmt: skip


def test_a_node_that_is_being_started() -> None:
    for reason, message, words in STARTED:
        events = seen(event(reason, message))
        assert pod_status.phase_and_reason("worker", pod(), events) == (Phase.PENDING, words), reason
        assert pod_status.waits_for_node(pod(), events), reason


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        (
            "NotTriggerScaleUp", f"{STARTS_NONE}: 1 in backoff after failed scale-up, 2 Insufficient cpu",
            ("the autoscaler failed to start a node, and tries again later (1 in backoff after failed scale-up, "
            "2 Insufficient cpu): the provider has no quota, no machine or no address for it"),
        ),
        (
            "NotTriggerScaleUp",
            (f"(combined from similar events): {STARTS_NONE}: 12 node(s) didn't match Pod's node affinity/selector, "
            "3 max node group size reached"),
            ("the autoscaler may start no more nodes (12 node(s) didn't match Pod's node affinity/selector, 3 max node "
            "group size reached): raise the maximum of the pool"),
        ),
        (
            "NotTriggerScaleUp",
            f"{STARTS_NONE} (it wouldn't fit if a new node is added): 6 Insufficient nvidia.com/gpu",
            f"{BY_SCHEDULER}; the autoscaler starts no node for it (6 Insufficient nvidia.com/gpu)",
        ),
        (
            "FailedScaleUp",
            "Node scale up in zones us-central1-a associated with this pod failed: GCE out of resources.",
            ("the autoscaler could not start a node for it: Node scale up in zones us-central1-a associated with this "
            "pod failed: GCE out of resources."),
        ),
        ("FailedMount", "no such volume", BY_SCHEDULER),
    ],
)  # fmt: skip
def test_a_node_that_is_not_started(reason: str, message: str, words: str) -> None:
    events = seen(event(reason, message))
    assert pod_status.phase_and_reason("worker", pod(), events) == (Phase.PENDING, words)
    assert not pod_status.waits_for_node(pod(), events)


REQUIREMENTS = "requirements=karpenter.sh/capacity-type In [spot], kubernetes.io/os In [linux]"
RESOURCES = 'resources={"cpu":"16","memory":"512Mi","pods":"3"}'


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ('incompatible with nodepool "default"', 'incompatible with nodepool "default"'),
        (
            f"no instance type has enough resources, {REQUIREMENTS}, {RESOURCES}",
            "no instance type has enough resources",
        ),
        (
            f"a, {REQUIREMENTS}, {RESOURCES} (CPU request >= 1 Million, m vs M typo?); b, {REQUIREMENTS}, {RESOURCES}",
            "a (CPU request >= 1 Million, m vs M typo?); b",
        ),
        (
            "all available instance types exceed limits for nodepool (NodePool=default)",
            ("all available instance types exceed limits for nodepool (NodePool=default); raise the limits of the "
            "NodePool"),
        ),
        (
            'incompatible requirements, label "cloud.google.com/gke-spot" does not have known values',
            ('incompatible requirements, label "cloud.google.com/gke-spot" does not have known values; write '
            "spot: karpenter in place of spot: gke"),
        ),
        (
            ("incompatible requirements, key karpenter.sh/capacity-type, karpenter.sh/capacity-type In [spot] not in "
            "karpenter.sh/capacity-type In [on-demand]"),
            ("incompatible requirements, key karpenter.sh/capacity-type, karpenter.sh/capacity-type In [spot] not in "
            "karpenter.sh/capacity-type In [on-demand]"),
        ),
    ],
)  # fmt: skip
def test_karpenter_that_has_no_node(message: str, words: str) -> None:
    events = seen(event("FailedScheduling", f"Failed to schedule pod, {message}", source="karpenter"))
    assert pod_status.phase_and_reason("worker", pod(), events)[1] == (
        f"{BY_SCHEDULER}; Karpenter starts no node for it: {words}"
    )


def test_another_schedulers_events_are_not_read() -> None:
    assert seen(event("FailedScheduling", SELECTOR, source="gke.io/optimize-utilization-scheduler")) == PodEvents()


def test_the_latest_event_counts() -> None:
    first = event("TriggeredScaleUp", "pod triggered scale-up: [{g 0->1 (max: 1)}]", second=1)
    second = event("NotTriggerScaleUp", f"{STARTS_NONE}: 1 in backoff after failed scale-up", second=2)
    assert not pod_status.waits_for_node(pod(), seen(second, first))
    third = {**first, "lastTimestamp": "2026-01-01T00:00:03Z"}
    assert pod_status.waits_for_node(pod(), seen(third, second))


def test_a_group_of_a_renamed_context_keeps_the_clusters_name() -> None:
    message = f"pod triggered scale-up: [{{{GROUPS}/gke-tfk8s-l4-8f1c2d3e-grp 0->1 (max: 3)}}]"
    node = seen(event("TriggeredScaleUp", message), context="mine").node
    assert node is not None
    assert node.reason == "a node of pool tfk8s-l4 is being started"


def test_warnings_are_kept_in_the_order_of_time() -> None:
    events = seen(event("FailedMount", "second", second=2), event("FailedMount", "first", second=1))
    assert events == PodEvents(["first", "second"])


def test_an_eviction_by_kueue_is_told_until_the_next_admission() -> None:
    """Kueue 0.19 makes the Workload of a group anew, without the condition, if all pods end at once."""
    found = event("EvictedDueToPreempted", "Preempted to accommodate a workload", kind="Workload")
    admitted = event("Admitted", "Admitted by ClusterQueue gold", kind="Workload", second=2)
    gated = pod("kueue.x-k8s.io/admission")
    gated["metadata"]["labels"] = {
        "kueue.x-k8s.io/queue-name": "gold", "kueue.x-k8s.io/pod-group-name": "statefulset-demo-worker-1a2b3",
    }  # fmt: skip
    words = "it was evicted (Preempted): Preempted to accommodate a workload"
    for events, said, expected in (
        ([found], {}, f": {words}"),
        ([found], {"uid-Pod": "no quota"}, f": no quota; {words}"),
        ([found], {"uid-Pod": f"no quota; {words}"}, f": no quota; {words}"),
        ([found, admitted], {}, " yet"),
    ):
        told = pod_events.of(gated, pod_events.group(events, GKE, said))
        reason = pod_status.phase_and_reason("worker", gated, told)[1]
        assert reason == f'queue "gold" has not admitted it{expected}'
