"""Rows about packets that get lost in the network of a cluster on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from harness.command import PATIENCE, Ended
from harness.local import LocalEnvironment
from harness.row import VERDICT, Row
from rows.scripts import COORDINATING, COUNTED


def drops_packets(environment: LocalEnvironment) -> Ended:
    """Drop the packets of a worker of a ParameterServerStrategy, which goes on without the worker."""
    if os.geteuid() != 0 or shutil.which("iptables") is None:
        pytest.skip("only root drops packets, with iptables")
    script = environment.submit("coordinator.py")
    script.until_says("schedules")
    inside = ("nsenter", "--target", str(environment.pid("worker/1")), "--net", "iptables")
    (address,) = (one.address for one in environment.status().tasks if str(one.task) == "worker/1")
    script.now()
    try:
        for side in ("--dport", "--sport"):
            rule = ("--append", "INPUT", "--protocol", "tcp", side, address.rpartition(":")[2], "--jump", "DROP")
            subprocess.run([*inside, *rule], check=True)
        ended = script.end(4 * PATIENCE)
    finally:
        subprocess.run([*inside, "--flush", "INPUT"], check=True)
    assert COUNTED.search(ended.out), ended
    return ended


def rows() -> Iterator[Row]:
    yield Row(
        fault="packets of worker/1 dropped", when=COORDINATING, run=drops_packets, words=("Connection timed out",),
        thorough=True, limit=12 * VERDICT,
    )  # fmt: skip
