"""Rows about programs that save at SIGTERM, when Kubernetes takes the pod of a worker away.

The checkpoint of PreemptionCheckpointHandler arrives before SIGKILL, and all workers go on from that step. So the run
has the result of an undisturbed run, and computes no step twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.command import PATIENCE, Ended
from harness.kube import NOW, KubeEnvironment
from harness.row import NOTHING, VERDICT, Row
from rows import mirrored, removals
from rows.mirrored import Fault

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths

EXAMPLE = Path(__file__).parents[3] / "examples" / "preemption" / "train.py"
WHEN = "`run`, while PreemptionCheckpointHandler watches"
STEPS, WEIGHTS = mirrored.STEPS, mirrored.WEIGHTS  # the program trains on the same batches
GRACE, SPOT = 30, 15  # seconds; the kubelet of a spot node of GKE gives pods 15 before the machine goes


def saves_through(task: str, fault: Fault) -> Callable[[KubeEnvironment], Ended]:
    """Take the pod of a worker away while two workers train; check that they go on from the step of SIGTERM.

    The workers of `preempted` have the lowest priority; those of other rows would be preempted by anybody's pods, too.
    """

    def run(environment: KubeEnvironment) -> Ended:
        worker = {"priority_class": removals.priority(environment, "low", -1000)} if fault is preempted else {}
        ended = mirrored.train(environment, EXAMPLE, STEPS, task, fault, grace=f"{GRACE}s", worker=worker)
        starts = {int(step) for step in re.findall(r"2 workers, from step (\d+)", ended.out)}
        assert len(starts) == 2, ended
        assert min(starts) == 0, ended
        # Every 50th step has an ordinary checkpoint, too.
        assert max(starts) % 50 or "ended with exit code 42 and runs again" in ended.out, ended
        mirrored.require_weights(ended, STEPS, WEIGHTS)
        return ended

    return run


def spot(environment: KubeEnvironment, pod: str) -> None:
    """Delete a pod with the time that a spot node has."""
    environment.client.send("DELETE", paths.pod(environment.namespace, pod), {"gracePeriodSeconds": SPOT})


def preempted(environment: KubeEnvironment, _: str) -> None:
    """Preempt one of the workers by a pod of higher priority; remove that pod when the worker has found no place."""
    removals.crowd(environment, removals.priority(environment, "less-low", -500), 300 << 20)
    mirrored.until_a_pod_waits(environment)
    crowd = paths.pod(environment.namespace, "crowd")
    polling.wait_until(lambda: environment.client.get(crowd)["spec"].get("nodeName"), "its turn", PATIENCE)
    environment.client.send("DELETE", crowd, NOW)


def drained(environment: KubeEnvironment, _: str) -> None:
    """Drain the only node, which has both workers; allow pods on it again when their next pods have found no place."""
    environment.cordon()
    for pod in environment.pods():
        mirrored.evicted(environment, pod)
    polling.wait_until(
        lambda: (pods := environment.pods().values()) and not any("nodeName" in pod["spec"] for pod in pods),
        "both pods to wait", PATIENCE,
    )  # fmt: skip
    environment.uncordon()


def rows() -> Iterator[Row]:
    success = 'the run of cluster "faults" has succeeded'
    for fault, task, run, is_thorough in (
        ("pod of worker/1 evicted", "worker/1", mirrored.evicted, True),
        ("node of both workers drained, and back later", "worker/0", drained, True),
        ("a worker preempted by a pod of higher priority", "worker/1", preempted, False),
        (f"spot node of worker/0, the chief, ends in {SPOT} s", "worker/0", spot, False),
    ):
        yield Row(
            fault=fault, when=WHEN, run=saves_through(task, run), words=(success,), left=NOTHING, thorough=is_thorough,
            limit=8 * VERDICT,
        )  # fmt: skip
