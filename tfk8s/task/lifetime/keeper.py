"""The keeper of a cluster's limits: it removes the cluster at `max_duration` and `idle`, or without a lease.

`idle` may also suspend the cluster before, and with `drain: idle`, it opens and closes disruption budgets. It asks the
tasks which sessions and scripts they have seen, and it needs nobody's machine. Its ServiceAccount may get and delete
the cluster's objects by name, change what a suspension and those budgets need, and nothing else. Standard library only:
this file runs in pods.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from tfk8s.core.lifetime import (
    DRAIN_INTERVAL,
    MAX_INTERVAL,
    Limits,
    RemovableObject,
    Suspension,
    format_duration,
)
from tfk8s.task.lifetime.budgets import Budgets
from tfk8s.task.lifetime.idle_suspension import IdleSuspension, has_ended
from tfk8s.task.lifetime.object_server import FAILURES, ObjectServer, TokenRefused
from tfk8s.task.lifetime.output import say
from tfk8s.task.lifetime.watched_lease import Lease

Result = TypeVar("Result")

_RETRY_INTERVAL = 10.0
_END_TIMEOUT = 120.0  # for pods, besides their grace period
_END_INTERVAL = 1.0

_FOREGROUND = "Foreground"  # the object goes after the pods that it owns
_BACKGROUND = "Background"


class FoundCluster(NamedTuple):
    """A cluster in Kubernetes.

    Attributes:
        uid: of its ConfigMap.
        created: the time of its first `up`, in seconds since the epoch.
        clock_offset: the API server's time less the own clock's.
    """

    uid: str
    created: float
    clock_offset: float


class Witness(Protocol):
    """Is told of what the keeper does to a cluster. Raises no error."""

    def suspended(self) -> None:
        """Note that the keeper has suspended the cluster."""
        ...

    def end(self, reason: str) -> None:
        """Note that the keeper is going to remove the cluster, for a reason."""
        ...

    def remove_job(self) -> None:
        """Remove the Job that writes the record, if it is still there."""
        ...


class Keeper:
    """Removes a cluster at its limits, and suspends the cluster before if `idle` says so.

    Args:
        objects: the cluster's objects, in the order in which they are removed.
        limits: the cluster's.
        budgets: the disruption budgets of `drain: idle`.
        suspension: suspends the cluster; None without such a limit.
        ask: returns the seconds since a session or script was connected; infinity if none was, and 0 if nothing is
            known.
        clock: returns a time in seconds that only grows.
        sleep: waits for seconds.
        witness: is told of what the keeper does; None without a record.
    """

    def __init__(
        self,
        server: ObjectServer,
        objects: Sequence[RemovableObject],
        limits: Limits,
        budgets: Budgets,
        suspension: IdleSuspension | None,
        ask: Callable[[], float],
        clock: Callable[[], float],
        sleep: Callable[[float], object],
        witness: Witness | None = None,
    ) -> None:
        self._witness = witness
        self._server, self._objects, self._limits, self._budgets = server, objects, limits, budgets
        self._suspension, self._quiet_since = suspension, clock()
        self._wish: Suspension | None = None
        self._ask, self._clock, self._sleep = ask, clock, sleep
        self._deletes_account = False  # the request may have succeeded without an answer
        self._cluster = next(item for item in objects if item.resource == "configmaps")
        self._account = next(item for item in objects if item.resource == "serviceaccounts")

    def run(self) -> str:
        """Wait for a limit, remove the cluster, and return the reason.

        A request that fails is repeated until it succeeds.
        """
        while cluster := self._until_answered(self._find):
            reason = self._wait(cluster)
            current = self._until_answered(self._find)
            if current and current.uid == cluster.uid:  # else another cluster has the name now
                say(f"removing the cluster, {reason}")
                if self._witness:
                    self._witness.end(f"removed {reason}")
                self._until_answered(self._remove_with_account)
                return reason
        return "by somebody else"

    def _until_answered(self, request: Callable[[], Result]) -> Result:
        while True:
            try:
                return request()
            except FAILURES as error:
                say(f"error: {error}; trying again")
                self._sleep(_RETRY_INTERVAL)

    def _find(self) -> FoundCluster | None:
        found = self._server.get(self._cluster)
        if found.body is None:
            return None
        metadata = found.body["metadata"]
        created = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
        return FoundCluster(metadata["uid"], created, found.time - self._clock())

    def _wait(self, cluster: FoundCluster) -> str:
        """Wait for a limit; return the reason."""
        self._quiet_since, lease = self._clock(), Lease(self._server, self._account, self._clock)
        while True:
            is_awake = self._is_awake()
            now = self._clock() + cluster.clock_offset
            quiet = self._quiet(now)
            silence = 0.0 if self._limits.lease is None else lease.silence()
            if reason := self._limits.why_over(now - cluster.created, quiet, silence):
                return reason
            if is_awake and self._limits.is_sleep_due(quiet):
                self._suspend(now)
            self._adjust_budgets(quiet)
            longest = DRAIN_INTERVAL if self._budgets.are_kept else MAX_INTERVAL
            self._sleep(min(longest, self._limits.seconds_to_wait(now - cluster.created, quiet, silence)))

    def _is_awake(self) -> bool:
        """Return whether the cluster could be suspended, and is not. The last wish counts while nothing is known."""
        if self._suspension is None:
            return False
        try:
            self._wish = self._suspension.find()
        except FAILURES as error:
            say(f"error: {error}; trying again")
            return False
        return self._wish is None

    def _quiet(self, now: float) -> float:
        """Return the seconds for which nobody has used the cluster; `now` is in seconds since the epoch."""
        if self._wish is not None:
            self._quiet_since = self._clock()  # a cluster that is resumed begins a new count
            return self._wish.quiet(now)
        if self._limits.watch_use or self._budgets.are_kept:
            self._quiet_since = max(self._quiet_since, self._clock() - (0.0 if self._programs_run() else self._ask()))
        return self._clock() - self._quiet_since

    def _suspend(self, now: float) -> None:
        """Suspend the cluster. A failed request is repeated at the next look."""
        assert self._suspension is not None
        idle = self._limits.suspend or 0.0
        try:
            if self._suspension.begin(now, idle):
                say(f"the cluster is suspended, idle for {format_duration(idle)}")
                if self._witness:
                    self._witness.suspended()
        except FAILURES as error:
            say(f"error: {error}; trying again")

    def _adjust_budgets(self, quiet: float) -> None:
        """Open or close the budgets. A failed request is repeated at the next look."""
        try:
            if self._budgets.adjust(quiet):
                say(f"the disruption budgets are {'open' if self._budgets.are_open else 'closed'}")
        except FAILURES as error:
            say(f"error: {error}; trying again")

    def _programs_run(self) -> bool:
        """Return whether the Job of a program has not ended, or nothing is known of it."""
        with contextlib.suppress(*FAILURES):
            jobs = [self._server.get(item).body for item in self._objects if item.resource == "jobs"]
            return not all(map(has_ended, filter(None, jobs)))
        return True

    def _remove_with_account(self) -> None:
        try:
            self._remove()
        except TokenRefused:
            if not self._deletes_account:
                raise

    def _remove(self) -> None:
        found = [(item, self._server.get(item).body) for item in self._objects]
        uids = {item: body["metadata"]["uid"] for item, body in found if body is not None}
        grace = max((_grace(body) for _, body in found if body is not None), default=0)
        sets = [item for item in uids if item.resource in ("statefulsets", "jobs")]
        for item in sets:
            self._server.delete(item, uids[item], _FOREGROUND)
        deadline = self._clock() + _END_TIMEOUT + grace
        while any(map(self._exists, sets)) and self._clock() < deadline:
            self._sleep(_END_INTERVAL)
        if self._witness:
            self._witness.remove_job()
        for item in uids:
            if item not in sets:
                self._deletes_account |= item.resource == "serviceaccounts"  # the last
                self._server.delete(item, uids[item], _BACKGROUND)

    def _exists(self, item: RemovableObject) -> bool:
        return self._server.get(item).body is not None


def _grace(item: Mapping[str, Any]) -> int:
    """Return the seconds that the pods of a StatefulSet or a Job have to end; 0 for other objects."""
    pod = item.get("spec", {}).get("template", {}).get("spec", {})
    return int(pod.get("terminationGracePeriodSeconds", 0))
