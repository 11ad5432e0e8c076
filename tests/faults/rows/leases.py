"""Rows about the `run` that started a cluster on Kubernetes: killed, or asleep with its machine."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator

from harness.command import PATIENCE, Command, Ended
from harness.kube import KubeEnvironment
from harness.row import NOTHING, VERDICT, Row

from tfk8s import polling

LEASE = 8  # seconds; 15 minutes elsewhere
NAP = 2 * LEASE  # of the script
RUN = f"""
import sys
from tfk8s.core import lifetime
lifetime.LEASE = {LEASE}
from tfk8s.__main__ import main
sys.exit(main())
"""


def napping(environment: KubeEnvironment, nap: int, *flags: str) -> Command:
    """Return a `run` whose script naps."""
    environment.remove()
    words = (*flags, "--namespace", environment.namespace, environment.job_file, environment.alone("nap.py"), nap)
    command = environment.start_program(sys.executable, "-c", RUN, "run", *words)
    command.until_says("naps")
    return command


def killed(environment: KubeEnvironment) -> Ended:
    """Kill a `run`; the verdict is the end of its cluster, of which the Job that removed it tells for a while."""
    command = napping(environment, 600)
    command.send(signal.SIGKILL)
    ended = command.end(PATIENCE)
    polling.wait_until(
        lambda: all("-lifetime" in one for one in environment.objects()),
        lambda: f"the cluster to be removed: {environment.objects()}", 2 * PATIENCE,
    )  # fmt: skip
    return Ended(time.monotonic() - command.fault, ended.code, ended.out, ended.err)


def killed_and_kept(environment: KubeEnvironment) -> Ended:
    """Kill a `run --keep`; the verdict is the end of its script."""
    command = napping(environment, 600, "--keep")
    command.send(signal.SIGKILL)
    ended = command.end(PATIENCE)
    polling.wait_until(lambda: not environment.running_scripts(), "the script to end", 2 * PATIENCE)
    return Ended(time.monotonic() - command.fault, ended.code, ended.out, ended.err)


def asleep(environment: KubeEnvironment) -> Ended:
    """Stop a `run` for the time of its lease; the run goes on."""
    command = napping(environment, NAP)
    command.send(signal.SIGSTOP)
    timer = threading.Timer(LEASE, command.process.send_signal, [signal.SIGCONT])
    timer.start()
    return command.end(2 * PATIENCE)


def rows() -> Iterator[Row]:
    script = "while its script runs"
    lost = f"the cluster is removed if this command is gone for {LEASE}s"
    yield Row(
        fault=f"SIGKILL of `run`, which has a lease of {LEASE} s", when=script, run=killed, code=137, words=(lost,),
        left=NOTHING, thorough=True, limit=2 * LEASE + 2 * VERDICT,
    )  # fmt: skip
    yield Row(
        fault="SIGKILL of `run --keep`", when=script, run=killed_and_kept, code=137, thorough=True, limit=8 * VERDICT,
    )  # fmt: skip
    yield Row(
        fault=f"SIGSTOP of `run` for {LEASE} s, the time of its lease, then SIGCONT", when=script, run=asleep,
        left=NOTHING, thorough=True, limit=NAP + 2 * VERDICT,
    )  # fmt: skip
