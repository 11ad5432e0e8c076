"""The program of `tfk8s top`, on control groups and processes that a test writes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tfk8s.backends import meter
from tfk8s.backends.local.supervision import process_meter

V1 = {
    "cpuacct/cpuacct.usage": "2500000000\n", "cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n",
    "memory/memory.usage_in_bytes": "5000\n", "memory/memory.limit_in_bytes": "9000\n",
    "memory/memory.stat": "cache 1\ntotal_inactive_file 1000\n",
}  # fmt: skip
V2 = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\n", "cpu.max": "150000 100000\n",
    "memory.current": "5000\n", "memory.max": "9000\n", "memory.stat": "anon 1\ninactive_file 1000\n",
}  # fmt: skip
UNLIMITED = {
    "cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n",
    "memory/memory.limit_in_bytes": "9223372036854771712\n",
}  # fmt: skip
NETWORK = """\
Inter-|   Receive      |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo:     700       9    0    0    0     0          0         0      700       9    0    0    0     0       0      0
  eth0:    1100      10    0    0    0     0          0         0      400       6    0    0    0     0       0      0
  eth1:      11       1    0    0    0     0          0         0        4       1    0    0    0     0       0      0
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("files", [V1, V2], ids=["v1", "v2"])
def test_a_container_with_limits(tmp_path: Path, files: dict[str, str]) -> None:
    groups = write(tmp_path, files)
    assert (meter.cpu_seconds(groups), meter.cpu_limit(groups)) == (2.5, 1.5)
    assert (meter.memory(groups), meter.memory_limit(groups)) == (4000.0, 9000.0)


@pytest.mark.parametrize("files", [UNLIMITED, {"cpu.max": "max 100000\n", "memory.max": "max\n"}, {}])
def test_a_container_without_limits(tmp_path: Path, files: dict[str, str]) -> None:
    groups = write(tmp_path, files)
    assert (meter.cpu_limit(groups), meter.memory_limit(groups)) == (None, None)


def test_the_network_without_loopback(tmp_path: Path) -> None:
    assert meter.network(write(tmp_path, {"net/dev": NETWORK})) == (1111, 404)
    assert meter.network(tmp_path / "none") == (0, 0)


def test_processes_count_with_those_below(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    lines = {7: (1, ticks), 8: (7, 2 * ticks), 9: (8, 0), 10: (1, 0)}
    stats = {f"{pid}/stat": f"{pid} (a b) S {parent} {'0 ' * 9}{time} 0 0" for pid, (parent, time) in lines.items()}
    found = process_meter.processes(write(tmp_path, {**stats, "9/statm": "100 3 0"}))
    assert found[8] == (7, 2.0)
    assert process_meter.descendants(7, found) == [7, 8, 9]
    assert process_meter.descendants(99, found) == []
    assert process_meter.resident(9, tmp_path) == 3 * os.sysconf("SC_PAGE_SIZE")
    assert process_meter.resident(99, tmp_path) == 0


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for nvidia-smi that prints what a test writes to a file."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(meter, "INTERVAL", 0.01)
    script, answer = tmp_path / "nvidia-smi", tmp_path / "answer"
    script.write_text(f"#!/bin/sh\necho $1 >>{tmp_path}/asked\ncat {answer}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return answer


@pytest.mark.programs
def test_gpus_of_a_container(smi: Path) -> None:
    smi.write_text("100, 1000, 50\n300, 1000, 100\n")
    (found,) = meter.of_container()
    assert (found["gpu_memory"], found["gpu_memory_limit"], found["gpu"]) == (400 << 20, 2000 << 20, 0.75)
    assert (smi.parent / "asked").read_text() == "--query-gpu=memory.used,memory.total,utilization.gpu\n"


@pytest.mark.programs
def test_gpus_of_processes(smi: Path) -> None:
    smi.write_text(f"{os.getpid()}, 64\n1, 32\n{os.getpid()}, 1\n")
    (own, gone) = process_meter.of_processes([os.getpid(), 2**22 + 1])
    assert own["gpu_memory"] == 65 << 20
    assert own["memory"] > 1 << 20
    assert (gone["cpu"], gone["memory"], "gpu_memory" in gone) == (0, 0, False)


@pytest.mark.programs
@pytest.mark.parametrize("text", ["", "[N/A], [N/A], [N/A]\n", "No devices were found\n"])
def test_without_gpus(smi: Path, text: str) -> None:
    smi.write_text(text)
    (found,) = meter.of_container()
    assert "gpu_memory" not in found
    assert found["cpu"] >= 0
