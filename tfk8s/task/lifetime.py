"""The program of a cluster's own Job: it removes the cluster at `max_duration` and `idle`, or without a lease.

`idle` may also suspend the cluster before, and with `drain: idle`, it opens and closes disruption budgets. It asks the
tasks which sessions and scripts they have seen, and it needs nobody's machine. Its ServiceAccount may get and delete
the cluster's objects by name, change what a suspension and those budgets need, and nothing else. Standard library only:
this file runs in pods.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from tfk8s.core import naming
from tfk8s.core.lifetime import (
    DRAIN_INTERVAL,
    MAX_INTERVAL,
    Limits,
    RemovableObject,
    Suspension,
    disruption_budgets,
    format_duration,
    removable_objects,
)
from tfk8s.task import activity, idle_suspension
from tfk8s.task.budgets import Budgets
from tfk8s.task.idle_suspension import IdleSuspension, has_ended
from tfk8s.task.object_server import ApiFailure, ObjectServer, TokenRefused
from tfk8s.task.watched_lease import Lease

Result = TypeVar("Result")

_FAILURES = (ApiFailure, OSError, http.client.HTTPException, ValueError)
_ANSWER_TIMEOUT = 2.0
_MAX_QUESTIONS = 8  # at the same time
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
    ) -> None:
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
                _say(f"removing the cluster, {reason}")
                self._until_answered(self._remove_with_account)
                return reason
        return "by somebody else"

    def _until_answered(self, request: Callable[[], Result]) -> Result:
        while True:
            try:
                return request()
            except _FAILURES as error:
                _say(f"error: {error}; trying again")
                self._sleep(_RETRY_INTERVAL)

    def _find(self) -> FoundCluster | None:
        found = self._server.get(self._cluster)
        if found.body is None:
            return None
        metadata = found.body["metadata"]
        created = datetime.fromisoformat(metadata["creationTimestamp"].replace("Z", "+00:00")).timestamp()
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
        except _FAILURES as error:
            _say(f"error: {error}; trying again")
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
                _say(f"the cluster is suspended, idle for {format_duration(idle)}")
        except _FAILURES as error:
            _say(f"error: {error}; trying again")

    def _adjust_budgets(self, quiet: float) -> None:
        """Open or close the budgets. A failed request is repeated at the next look."""
        try:
            if self._budgets.adjust(quiet):
                _say(f"the disruption budgets are {'open' if self._budgets.are_open else 'closed'}")
        except _FAILURES as error:
            _say(f"error: {error}; trying again")

    def _programs_run(self) -> bool:
        """Return whether the Job of a program has not ended, or nothing is known of it."""
        with contextlib.suppress(*_FAILURES):
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


def last_activity(host: str, port: int) -> float:
    """Return the seconds since a session or a script was connected to a task; infinity if none was.

    0 if no task answers: then nothing is known.

    Args:
        host: the name of all tasks, the headless Service. It is also the name of the cluster's other pods.
        port: the port where tasks answer `activity.ask`.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return 0.0
    hosts = sorted({str(address[0]) for *_, address in found})
    with ThreadPoolExecutor(_MAX_QUESTIONS) as pool:
        answers = pool.map(lambda host: (host, activity.ask(host, port, _ANSWER_TIMEOUT)), hosts)
        return youngest_client(dict(answers))


def youngest_client(answers: Mapping[str, Mapping[str, float] | None]) -> float:
    """Return the seconds since the last client was connected that is no task; infinity if none was.

    Tasks connect to each other. A pod that answers is a task. 0 if no task answers: then nothing is known.

    Args:
        answers: the clients of each pod, with the seconds since they were connected; None for pods without an answer.
    """
    tasks = {host: clients for host, clients in answers.items() if clients is not None}
    if not tasks:
        return 0.0
    ages = [age for clients in tasks.values() for client, age in clients.items() if client not in tasks]
    return min(ages, default=float("inf"))


def _say(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}", flush=True)


def _seconds(text: str | None) -> float | None:
    return None if text is None else float(text)


def main() -> int:
    """Remove the cluster that the environment describes, at its limits."""
    # A pod that is deleted or evicted must fail: the Job then has another one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    environment = os.environ
    name, namespace = environment["TFK8S_NAME"], environment["TFK8S_NAMESPACE"]
    names = ("TFK8S_MAX_DURATION", "TFK8S_IDLE", "TFK8S_LEASE", "TFK8S_SUSPEND")
    limits = Limits(*(_seconds(environment.get(variable)) for variable in names))
    host, port = f"{name}.{namespace}.svc", int(environment.get("TFK8S_ACTIVITY_PORT", "0"))
    servers, programs, drained = (
        [*filter(None, environment.get(variable, "").split(","))]
        for variable in ("TFK8S_SERVERS", "TFK8S_PROGRAMS", "TFK8S_DRAIN")
    )
    server = ObjectServer(namespace, environment)
    objects = removable_objects(name, servers, programs, gang="TFK8S_GANG" in environment)
    keeper = Keeper(
        server,
        objects,
        limits,
        Budgets(server, disruption_budgets(name, drained)),
        idle_suspension.of_environment(server, objects, environment),
        lambda: last_activity(host, port) if servers else float("inf"),
        time.monotonic,
        threading.Event().wait,
    )
    _say(f'keeping cluster "{name}": {limits}, disruption budgets of {", ".join(drained) or "no job"}')
    reason = keeper.run()
    with contextlib.suppress(OSError), open(naming.TERMINATION_MESSAGE, "w") as message:
        message.write(reason)
    _say(f"the cluster is removed, {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
