"""Rules about the end of a cluster and its suspension: `max_duration`, `idle`, leases, drains, the objects removed.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeGuard

from tfk8s.core import naming

_MIN_INTERVAL, MAX_INTERVAL = 1.0, 60.0  # seconds between two polls of a cluster
DRAIN_INTERVAL = 5.0  # the same with `drain: idle`: a new session is protected as soon
_QUIET_BEFORE_DRAIN = 30.0  # seconds without a session: a pause between two scripts is none
_LOOKS = 10  # in the time of `idle`, and of a lease
LEASE = 900  # seconds that a cluster outlives the `run` that started the cluster
NOTICE = 600.0  # seconds before `max_duration` in which commands tell of it
RENEWALS = 15  # in the time of a lease
RENEWED = "tfk8s.dev/renewed"  # the annotation of the ServiceAccount that each renewal changes
HOLDER = "run.tfk8s.dev/"  # begins the annotation that each `run` has there while it holds the lease
SUSPENDED = "tfk8s.dev/suspended"  # the annotation of a workload with its cluster's Suspension, the wish of all
RECORD_GRACE = 30  # seconds for the last look at a cluster with a record, which `task.lifetime.record` ends after 20
RECORD_TIMEOUT = RECORD_GRACE + 5.0  # for the pod that writes the record to end: kubelet kills the pod
BY_IDLE = "tfk8s"  # has suspended a cluster after `idle`
_MAX_TIME = 1e11  # seconds since the epoch, in the year 5138
_MAX_NAME = 64  # characters of a person's name
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


class Limits(NamedTuple):
    """The limits of a cluster's life, in seconds; None is no limit.

    Attributes:
        max_duration: from the cluster's first `up`.
        idle: without a session and a session script.
        lease: without a renewal by the `run` that started the cluster.
        suspend: without a session and a session script, until the cluster is suspended. The other limits remove it.
    """

    max_duration: float | None
    idle: float | None
    lease: float | None = None
    suspend: float | None = None

    def why_over(self, age: float, quiet: float, silence: float = 0.0) -> str:
        """Return the reason to remove a cluster, or "" if no limit is reached.

        Args:
            age: the seconds since the cluster's first `up`.
            quiet: the seconds without a session and a session script.
            silence: the seconds without a renewal.
        """
        if self.max_duration is not None and age >= self.max_duration:
            return f"{format_duration(self.max_duration)} after its first `up` (max_duration)"
        if self.idle is not None and quiet >= self.idle:
            return f"after {format_duration(self.idle)} without a session and a script (idle)"
        if self.lease is not None and silence >= self._longest_silence:
            return f"after its `run` had been gone for {format_duration(self.lease)} (lease)"
        return ""

    def is_sleep_due(self, quiet: float) -> bool:
        """Return whether a cluster is to be suspended that is not. A `run` with a lease removes its cluster instead.

        Args:
            quiet: the seconds without a session and a session script.
        """
        return self.suspend is not None and self.lease is None and quiet >= self.suspend

    @property
    def watch_use(self) -> bool:
        """True if a limit depends on sessions and session scripts."""
        return self.first_idle is not None

    @property
    def first_idle(self) -> float | None:
        """The seconds without a session and a session script until the first action; None without such a limit."""
        return self.idle if self.suspend is None else self.suspend

    @property
    def _longest_silence(self) -> float:
        """The seconds of a lease, with a pause between renewals before them, and one after them.

        So a machine may sleep for the whole lease.
        """
        return (self.lease or 0.0) * (RENEWALS + 2) / RENEWALS

    def seconds_to_wait(self, age: float, quiet: float, silence: float = 0.0) -> float:
        """Return the seconds until the next poll of a cluster."""
        left = [MAX_INTERVAL]
        if self.max_duration is not None:
            left.append(self.max_duration - age)
        for limit in (self.idle, self.suspend):
            if limit is not None and quiet < limit:  # else the cluster is suspended
                left += [limit / _LOOKS, limit - quiet]
        if self.lease is not None:
            left += [self.lease / _LOOKS, self._longest_silence - silence]
        return max(_MIN_INTERVAL, min(left))


NO_LIMITS = Limits(None, None)


def may_drain(quiet: float) -> bool:
    """Return whether drains may evict the tasks of a cluster with `drain: idle`.

    Args:
        quiet: the seconds without a session and a session script.
    """
    return quiet >= _QUIET_BEFORE_DRAIN


def format_duration(seconds: float) -> str:
    """Return a duration as a job file has it: 1800 is "30m"."""
    whole = int(seconds)
    for size, unit in _UNITS:
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


class Suspension(NamedTuple):
    """The wish that a cluster is suspended, which `resume` takes back. The wish is recorded before anything ends.

    Attributes:
        since: the time of the wish, in seconds since the epoch.
        by: the name of the person who wished so.
        tasks: on Kubernetes, the numbers of tasks to bring back, by the DNS names of jobs with servers.
        idle: the seconds without use before the wish, if the limit `idle` has suspended the cluster; else 0.
    """

    since: float
    by: str
    tasks: Mapping[str, int] = {}
    idle: float = 0.0

    def quiet(self, now: float) -> float:
        """Return the seconds for which nobody has used the cluster; `now` is in seconds since the epoch."""
        return max(0.0, now - self.since) + self.idle

    def to_text(self) -> str:
        """Return the wish as JSON."""
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Suspension:
        """Return the wish from the text of `to_text`.

        Raises:
            ValueError: somebody else has written the text.
        """
        match json.loads(text):
            case {"since": since, "by": str() as by, "tasks": dict() as tasks, **rest} if (
                _is_time(since) and all(map(_is_count, tasks.values())) and _is_time(idle := rest.get("idle", 0.0))
            ):
                return cls(float(since), by[:_MAX_NAME], tasks, float(idle))
        raise ValueError(f"{text!r} is no suspension")


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and 0 <= value < _MAX_TIME


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value > 0


class RemovableObject(NamedTuple):
    """A Kubernetes object of a cluster.

    Attributes:
        api: the group and the version, such as "apps/v1".
        resource: the plural of the kind, such as "statefulsets".
        name: the name of the object.
    """

    api: str
    resource: str
    name: str

    @property
    def group(self) -> str:
        """The API group; "" is the core group."""
        return self.api.rpartition("/")[0]


def disruption_budgets(cluster: str, jobs: Iterable[str]) -> list[RemovableObject]:
    """Return the disruption budgets of a cluster's jobs."""
    return [RemovableObject("policy/v1", "poddisruptionbudgets", naming.stateful_set(cluster, job)) for job in jobs]


def queue_workload(cluster: str) -> RemovableObject:
    """Return the Workload that Kueue makes of a cluster in a queue: it has the quota of the cluster."""
    return RemovableObject("kueue.x-k8s.io/v1beta2", "workloads", cluster)


def removable_objects(
    cluster: str, servers: Iterable[str], programs: Iterable[str] = (), *, gang: bool = False
) -> list[RemovableObject]:
    """Return the objects of a cluster in the order in which its Job removes them.

    Running pods come first, the NetworkPolicy that isolates them later. The ServiceAccount is the last, because it has
    the right to remove; it owns the Role and the RoleBinding. The ConfigMap owns the Secrets of programs.

    Args:
        servers: the names of the jobs with servers.
        programs: the names of the jobs with programs.
        gang: whether the cluster has a PodGroup.
    """
    budgets = disruption_budgets(cluster, servers)
    return [
        *(RemovableObject("apps/v1", "statefulsets", budget.name) for budget in budgets),
        *(RemovableObject("batch/v1", "jobs", naming.stateful_set(cluster, job)) for job in programs),
        *budgets,
        *([RemovableObject("scheduling.k8s.io/v1beta1", "podgroups", cluster)] if gang else ()),
        RemovableObject("v1", "services", naming.master_service(cluster)),
        RemovableObject("v1", "services", cluster),
        RemovableObject("networking.k8s.io/v1", "networkpolicies", cluster),
        RemovableObject("v1", "configmaps", cluster),
        RemovableObject("networking.k8s.io/v1", "networkpolicies", naming.lifetime(cluster)),
        RemovableObject("v1", "serviceaccounts", naming.lifetime(cluster)),
    ]
