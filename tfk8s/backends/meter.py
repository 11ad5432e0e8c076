"""A program that measures what a container or processes use: `meter [PID]...`.

`tfk8s top` runs this file beside the processes. Without process ids, it reads the control group of its container
(versions 1 and 2, docs.kernel.org/admin-guide) and the network of the pod; else each process with its descendants, from
/proc. `nvidia-smi`, where there is one, tells of GPUs.

Standard library only, and nothing of tfk8s: the text of this file is sent to containers that may lack the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

INTERVAL = 1.0  # between the two looks, in seconds
_PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60  # version 1 writes a number near 2^63
_SMI = "nvidia-smi"
_SMI_TIMEOUT = 5.0
_MEBIBYTE = 1 << 20

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


def network(proc: Path = _PROC) -> tuple[int, int]:
    """Return the bytes that all interfaces but loopback have received and sent so far (proc_pid_net(5))."""
    received = sent = 0
    with contextlib.suppress(OSError):
        for line in (proc / "net" / "dev").read_text().splitlines()[2:]:
            name, _, counts = line.partition(":")
            words = counts.split()
            if name.strip() != "lo":
                received, sent = received + int(words[0]), sent + int(words[8])
    return received, sent


def processes(proc: Path = _PROC) -> dict[int, tuple[int, float]]:
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


def resident(pid: int, proc: Path = _PROC) -> int:
    """Return the resident memory of a process in bytes; 0 if the process has ended."""
    with contextlib.suppress(OSError, IndexError):
        return int((proc / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _smi(query: str) -> list[list[float]]:
    """Return the numbers that nvidia-smi prints, a list for each line; none without GPUs."""
    command = [_SMI, query, "--format=csv,noheader,nounits"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_TIMEOUT, check=True)
        return [[float(word) for word in line.split(",")] for line in ended.stdout.splitlines()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


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
    if gpus := _smi("--query-gpu=memory.used,memory.total,utilization.gpu"):
        used, total, busy = (sum(column) for column in zip(*gpus, strict=True))
        found |= {
            "gpu_memory": used * _MEBIBYTE, "gpu_memory_limit": total * _MEBIBYTE, "gpu": busy / 100 / len(gpus)
        }  # fmt: skip
    return [found]


def of_processes(pids: Sequence[int]) -> list[Usage]:
    """Look at processes twice; return what each uses with those below."""
    began, early = time.monotonic(), processes()
    time.sleep(INTERVAL)
    elapsed, late = time.monotonic() - began, processes()
    gpus = _smi("--query-compute-apps=pid,used_memory")
    found = []
    for pid in pids:
        tree = descendants(pid, late)
        seconds = sum(late[one][1] - early.get(one, (0, 0.0))[1] for one in tree)
        usage: Usage = {"pid": pid, "cpu": seconds / elapsed, "memory": sum(map(resident, tree))}
        if held := [amount for owner, amount in gpus if int(owner) in tree]:
            usage["gpu_memory"] = sum(held) * _MEBIBYTE
        found.append(usage)
    return found


if __name__ == "__main__":
    chosen = [int(word) for word in sys.argv[1:]]
    sys.stdout.write(json.dumps(of_processes(chosen) if chosen else of_container()) + "\n")
