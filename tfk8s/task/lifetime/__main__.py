"""The program of a cluster's own Jobs, from the variables of the pod. Standard library only: this file runs in pods."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

from tfk8s.core import naming
from tfk8s.core.lifetime import Limits, disruption_budgets, removable_objects
from tfk8s.task.lifetime import idle_suspension, last_use, record_witness
from tfk8s.task.lifetime.budgets import Budgets
from tfk8s.task.lifetime.keeper import Keeper
from tfk8s.task.lifetime.object_server import ObjectServer
from tfk8s.task.lifetime.output import say


def _seconds(text: str | None) -> float | None:
    return None if text is None else float(text)


def main() -> int:
    """Remove the cluster that the environment describes, at its limits; or keep its record, if the variables say so."""
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
    if "TFK8S_HISTORY" in environment:
        from tfk8s.task.lifetime.record import record_pod  # the pod of the limits does without its modules

        return record_pod.keep(server, objects, environment, say)
    clock, sleep = time.monotonic, threading.Event().wait
    keeper = Keeper(
        server,
        objects,
        limits,
        Budgets(server, disruption_budgets(name, drained)),
        idle_suspension.of_environment(server, objects, environment),
        lambda: last_use.last_activity(host, port) if servers else float("inf"),
        clock,
        sleep,
        record_witness.of_environment(server, objects, environment, clock, sleep),
    )
    say(f'keeping cluster "{name}": {limits}, disruption budgets of {", ".join(drained) or "no job"}')
    reason = keeper.run()
    with contextlib.suppress(OSError), open(naming.TERMINATION_MESSAGE, "w") as message:
        message.write(reason)
    say(f"the cluster is removed, {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
