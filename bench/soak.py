"""Whether a cluster's processes grow with the sessions that they have served.

    python bench/soak.py [SESSIONS] [AT_ONCE]

One cluster of four tasks on this machine runs scripts, each with a session that takes two steps over all tasks: first
some to warm up, then SESSIONS (200) one after another, then twice AT_ONCE (16) at the same time. Printed for each
process, after the warm-up and at the end: memory of its own (RssAnon; libraries, which others may share, are not in
it), descriptors and threads. Exits with 1 where descriptors or threads have grown, or memory by more than a tenth and
20 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tfk8s.backends.local import state

NAME = "soak"
JOB_FILE = f"apiVersion: tfk8s.dev/v1\nname: {NAME}\njobs: {{chief: 1, ps: 1, worker: 2}}\n"
SCRIPT = """
import os
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
with tf.device("/job:ps/task:0"):
    total = tf.get_variable("total", initializer=0.0)
parts = []
for task in range(2):
    with tf.device(f"/job:worker/task:{task}"):
        parts.append(tf.reduce_sum(tf.random.uniform([1000])))
step = tf.assign_add(total, tf.add_n(parts))
with tf.Session(os.environ["TFK8S_TARGET"]) as session:
    session.run(tf.global_variables_initializer())
    session.run(step)
    session.run(step)
"""
WARM_UP = 20
TFK8S = (sys.executable, "-m", "tfk8s")


@dataclass(frozen=True)
class Size:
    """How large a process is: memory in MB, descriptors, threads."""

    memory: float
    descriptors: int
    threads: int


def size(pid: int) -> Size:
    """Return how large a process is now."""
    proc = Path(f"/proc/{pid}")
    anonymous = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("RssAnon:"))
    memory = int(anonymous.split()[1]) / 1000
    return Size(memory, len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir())))


def processes() -> dict[str, int]:
    """Return the cluster's processes: its tasks, its supervisor and the process that forks scripts."""
    status = json.loads(subprocess.run([*TFK8S, "status", "--local", NAME, "-o", "json"], capture_output=True).stdout)
    found = {task["task"]: int(task["where"].removeprefix("pid ")) for task in status["tasks"]}
    supervisor = state.folder(NAME).supervisor()
    assert supervisor is not None
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    (forks,) = {int(child) for child in children} - set(found.values())
    return {**found, "supervisor": supervisor, "fork server": forks}


def submit(script: Path) -> subprocess.Popen[bytes]:
    """Start a script with one session."""
    command = [*TFK8S, "submit", "--local", NAME, str(script)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def sessions(script: Path, count: int, at_once: int = 1) -> float:
    """Run so many sessions; return how long they took."""
    start = time.perf_counter()
    for _ in range(0, count, at_once):
        for process in [submit(script) for _ in range(at_once)]:
            if process.wait(120) != 0:
                raise SystemExit(f"a script ended with {process.returncode}")
    return time.perf_counter() - start


def settled(pids: dict[str, int]) -> dict[str, Size]:
    """Return how large the processes are once their threads are as few as they get: servers keep some for seconds."""
    sizes = {name: size(pid) for name, pid in pids.items()}
    for _ in range(10):
        time.sleep(1)
        now = {name: size(pid) for name, pid in pids.items()}
        if all(now[name].threads >= sizes[name].threads for name in pids):
            return now
        sizes = now
    return sizes


def grown(before: Size, after: Size) -> bool:
    """Return whether a process leaks."""
    memory = after.memory - before.memory > max(20, before.memory / 10)
    return memory or after.descriptors > before.descriptors or after.threads > before.threads


def main() -> int:
    """Measure, print, and return the exit code."""
    count, at_once = (int(word) for word in [*sys.argv[1:], *("200", "16")[len(sys.argv) - 1 :]])
    folder = Path(os.environ.setdefault("XDG_STATE_HOME", tempfile.mkdtemp(prefix="tfk8s-soak-")))
    (folder / "job.yaml").write_text(JOB_FILE)
    script = folder / "session.py"
    script.write_text(SCRIPT)
    subprocess.run([*TFK8S, "up", "--local", str(folder / "job.yaml")], check=True, stderr=subprocess.DEVNULL)
    try:
        sessions(script, WARM_UP)
        sessions(script, at_once, at_once)
        pids = processes()
        before = settled(pids)
        one_by_one = sessions(script, count)
        together = sessions(script, 2 * at_once, at_once)
        after = settled(pids)
        assert processes() == pids, "a process was started again"
    finally:
        subprocess.run([*TFK8S, "down", "--local", NAME], check=True)
    print(f"{count} sessions one after another: {one_by_one:.0f} s; 2 × {at_once} at once: {together:.0f} s")
    print(f"{'process':12} {'memory, MB':>20} {'descriptors':>14} {'threads':>12}")
    for name in pids:
        old, new = before[name], after[name]
        print(
            f"{name:12} {old.memory:9.1f} → {new.memory:8.1f} {old.descriptors:6} → {new.descriptors:5} "
            f"{old.threads:5} → {new.threads:4}" + ("  grows" if grown(old, new) else "")
        )
    return int(any(grown(before[name], after[name]) for name in pids))


if __name__ == "__main__":
    sys.exit(main())
