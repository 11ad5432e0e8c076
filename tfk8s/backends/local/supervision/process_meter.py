"""A program that measures what processes use, each with its descendants: `process_meter PID...`.

`tfk8s top` runs it in the network of a cluster on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfk8s.backends import meter
from tfk8s.backends.meter import MEBIBYTE, PROC, Usage


def processes(proc: Path = PROC) -> dict[int, tuple[int, float]]:
    """Return the parent and the CPU seconds of each process that this user sees (proc_pid_stat(5))."""
    found, ticks = {}, os.sysconf("SC_CLK_TCK")
    for folder in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            found[int(folder.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / ticks
    return found


def descendants(pid: int, found: Mapping[int, tuple[int, float]]) -> list[int]:
    """Return a process and those below."""
    tree = [pid] if pid in found else []
    for one in tree:  # grows
        tree += [other for other, (parent, _) in found.items() if parent == one]
    return tree


def resident(pid: int, proc: Path = PROC) -> int:
    """Return the resident memory of a process in bytes; 0 if the process has ended."""
    with contextlib.suppress(OSError, IndexError):
        return int((proc / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def of_processes(pids: Sequence[int]) -> list[Usage]:
    """Look at processes twice; return what each uses with those below."""
    began, early = time.monotonic(), processes()
    threading.Event().wait(meter.INTERVAL)
    elapsed, late = time.monotonic() - began, processes()
    of_gpus = meter.smi("--query-compute-apps=pid,used_memory")
    found = []
    for pid in pids:
        tree = descendants(pid, late)
        seconds = sum(late[one][1] - early.get(one, (0, 0.0))[1] for one in tree)
        usage: Usage = {"pid": pid, "cpu": seconds / elapsed, "memory": sum(map(resident, tree))}
        if held := [amount for owner, amount in of_gpus if int(owner) in tree]:
            usage["gpu_memory"] = sum(held) * MEBIBYTE
        found.append(usage)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(of_processes([int(word) for word in sys.argv[1:]])) + "\n")
