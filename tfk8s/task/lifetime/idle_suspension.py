"""The suspension of an idle cluster by the cluster's own Job. Standard library only: this file runs in pods."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from tfk8s.core import naming
from tfk8s.core.lifetime import BY_IDLE, SUSPENDED, RemovableObject, Suspension, queue_workload
from tfk8s.task.lifetime.object_server import ObjectServer

_ENDED = ("Complete", "Failed")


class IdleSuspension:
    """Suspends a cluster as `tfk8s suspend` does, and sees whether somebody has suspended the cluster.

    An annotation of the cluster's own Job is the wish, since this Job may not change StatefulSets. The Job records the
    wish before the Job ends anything. `resume` and `up` take the wish back.

    Args:
        objects: the cluster's.
        own_job: the name of the Job of this pod.
        queued: whether the cluster is in a queue of Kueue.
    """

    def __init__(
        self, server: ObjectServer, objects: Sequence[RemovableObject], own_job: str, *, queued: bool = False
    ) -> None:
        self._server, self._own, self._queued = server, RemovableObject("batch/v1", "jobs", own_job), queued
        self._workloads = [item for item in objects if item.resource in ("statefulsets", "jobs")]
        self._cluster = next(item.name for item in objects if item.resource == "configmaps")
        self._is_half_done = True  # perhaps: an earlier pod of the Job may have ended in between

    def find(self) -> Suspension | None:
        """Return the wish that the cluster is suspended, the Job's own or that of a command; None without.

        What the Job has begun, it finishes.

        Raises:
            ApiFailure, ValueError: the API server refuses, or does not answer.
        """
        own = self._server.get(self._own).body
        wish = _wish(own)
        if wish is None:
            self._is_half_done = False
            return next(filter(None, (_wish(self._server.get(item).body) for item in self._workloads)), None)
        if self._is_half_done:
            self._end_tasks()
        return wish

    def begin(self, now: float, idle: float) -> bool:
        """Suspend the cluster, unless it has no servers: its programs have ended, since nobody uses the cluster.

        Returns:
            Whether the cluster has servers.

        Args:
            now: the time in seconds since the epoch.
            idle: the seconds for which nobody has used the cluster.

        Raises:
            ApiFailure, ValueError: as `find`, which finishes what has begun.
        """
        counts = {
            item.name.removeprefix(f"{self._cluster}-"): count
            for item in self._workloads
            if item.resource == "statefulsets" and (count := self._tasks(item))
        }
        wish = Suspension(now, BY_IDLE, counts, idle)
        self._is_half_done = True
        if counts and self._server.patch(self._own, {"metadata": {"annotations": {SUSPENDED: wish.to_text()}}}):
            self._end_tasks()
        return bool(counts)

    def _tasks(self, item: RemovableObject) -> int:
        return int((self._server.get(item).body or {}).get("spec", {}).get("replicas", 0))

    def _end_tasks(self) -> None:
        for item in self._workloads:
            if item.resource == "statefulsets":
                self._server.patch(item, {"spec": {"replicas": 0}}, "scale")
            elif (job := self._server.get(item).body) and not has_ended(job):
                self._server.patch(item, {"spec": {"suspend": True}})
        self._is_half_done = self._queued and not self._gives_back()

    def _gives_back(self) -> bool:
        """Give the quota of a cluster in a queue back, and return True, if its pods have ended.

        Kueue does so itself once there is no pod. A pod whose program has ended stays, and with it all of the quota.
        While other pods end, Kueue would make the Workload again.
        """
        if any(map(_has_pods, (self._server.get(item).body for item in self._workloads))):
            return False
        workload = queue_workload(self._cluster)
        if found := self._server.get(workload).body:
            self._server.delete(workload, found["metadata"]["uid"], "Background")
        return True


def of_environment(
    server: ObjectServer, objects: Sequence[RemovableObject], environment: Mapping[str, str]
) -> IdleSuspension | None:
    """Return the suspension that the variables of the Job's pod ask for; None without a time for it."""
    own_job = environment.get("TFK8S_LIFETIME_JOB")
    return IdleSuspension(server, objects, own_job, queued="TFK8S_QUEUE" in environment) if own_job else None


def has_ended(job: Mapping[str, Any]) -> bool:
    """Return whether the Job of a program has ended, or `tfk8s wait` has ended the Job."""
    ended = {item["type"] for item in job.get("status", {}).get("conditions", ()) if item["status"] == "True"}
    return not ended.isdisjoint(_ENDED) or naming.RUN_END in job["metadata"].get("annotations", {})


def _has_pods(body: Mapping[str, Any] | None) -> bool:
    """Return whether a StatefulSet, or the Job of a program, has pods that have not ended."""
    status = (body or {}).get("status", {})
    return any(status.get(key) for key in ("replicas", "active", "terminating"))


def _wish(body: Mapping[str, Any] | None) -> Suspension | None:
    """Return the wish on an object; None without a wish, or for the nonsense of somebody else."""
    with contextlib.suppress(ValueError, RecursionError):
        text = (body or {}).get("metadata", {}).get("annotations", {}).get(SUSPENDED)
        return Suspension.parse(text) if text else None
    return None
