"""A program that measures what its container uses.

`tfk8s top` runs this file beside the processes, and a task's metrics use its functions. It reads the control group
(versions 1 and 2, docs.kernel.org/admin-guide) and the network of the pod. `nvidia-smi` tells of GPUs.

Standard library only, and nothing of tfk8s: the text of this file is sent to containers that may lack the file.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

INTERVAL = 1.0  # between the two looks, in seconds
PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # version 1 writes a number near 2^63
_SMI = "nvidia-smi"
_SMI_TIMEOUT = 5.0
MEBIBYTE = 1 << 20

Usage = dict[str, Any]


def _number(path: Path, key: str = "") -> float | None:
    """Return the number in a file, or that of a line that begins with a key; None if there is none."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = [line.split() for line in path.read_text().splitlines()]
        return next((float(line[-1]) for line in words if not key or line[0] == key), None)
    return None


def _first(*numbers: float | None) -> float | None:
    return next((number for number in numbers if number is not None), None)


def cpu_seconds(groups: Path = _GROUPS) -> float:
    """Return the CPU time of a container so far, in seconds."""
    microseconds = _number(groups / "cpu.stat", "usage_usec")
    if microseconds is not None:
        return microseconds / 1e6
    return (_number(groups / "cpuacct" / "cpuacct.usage") or 0.0) / 1e9


def cpu_limit(groups: Path = _GROUPS) -> float | None:
    """Return the limit of a container in cores; None without a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (groups / "cpu.max").read_text().split()
        return None if quota == "max" else float(quota) / float(period)
    first, second = (_number(groups / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return first / second if first and second and first > 0 else None


def memory(groups: Path = _GROUPS) -> float:
    """Return the memory of a container that can't be given back, in bytes: the working set, as kubelet has it."""
    old = groups / "memory"
    used = _first(_number(groups / "memory.current"), _number(old / "memory.usage_in_bytes")) or 0.0
    inactive = _first(
        _number(groups / "memory.stat", "inactive_file"), _number(old / "memory.stat", "total_inactive_file")
    )
    return max(0.0, used - (inactive or 0.0))


def memory_limit(groups: Path = _GROUPS) -> float | None:
    """Return the limit of a container in bytes; None without a limit."""
    limit = _first(_number(groups / "memory.max"), _number(groups / "memory" / "memory.limit_in_bytes"))
    return None if limit is None or limit >= _UNLIMITED else limit


def network(proc: Path = PROC) -> tuple[int, int]:
    """Return the bytes that all interfaces but loopback have received and sent so far (proc_pid_net(5))."""
    received = sent = 0
    with contextlib.suppress(OSError):
        for line in (proc / "net" / "dev").read_text().splitlines()[2:]:
            name, _, counts = line.partition(":")
            words = counts.split()
            if name.strip() != "lo":
                received, sent = received + int(words[0]), sent + int(words[8])
    return received, sent


def smi(query: str) -> list[list[float]]:
    """Return the numbers that nvidia-smi prints, a list for each line; none without GPUs."""
    command = [_SMI, query, "--format=csv,noheader,nounits"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT, check=True)
        return [[float(word) for word in line.split(",")] for line in ended.stdout.splitlines()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def gpus() -> Usage:
    """Return the memory and the busy share of the GPUs that the container sees; empty without GPUs."""
    if not (found := smi("--query-gpu=memory.used,memory.total,utilization.gpu")):
        return {}
    used, total, busy = (sum(column) for column in zip(*found, strict=True))
    return {"gpu_memory": used * MEBIBYTE, "gpu_memory_limit": total * MEBIBYTE, "gpu": busy / 100 / len(found)}


def of_container() -> list[Usage]:
    """Look at the container twice; return what it uses."""
    began, seconds, traffic = time.monotonic(), cpu_seconds(), network()
    time.sleep(INTERVAL)
    elapsed = time.monotonic() - began
    received, sent = ((late - early) / elapsed for early, late in zip(traffic, network(), strict=True))
    found: Usage = {
        "pid": 0, "cpu": (cpu_seconds() - seconds) / elapsed, "cpu_limit": cpu_limit(), "memory": memory(),
        "memory_limit": memory_limit(), "received": received, "sent": sent,
    }  # fmt: skip
    return [found | gpus()]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(of_container()) + "\n")
