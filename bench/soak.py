"""Measures the growth of a cluster's processes over many sessions.

    python bench/soak.py [SESSIONS] [AT_ONCE]

A cluster of four tasks on this machine runs scripts. Each script has a session with two steps over all tasks. After a
warm-up, SESSIONS (200) scripts run one after another, then twice AT_ONCE (16) scripts run at the same time. The output
has the memory, the descriptors and the threads of each process, after the warm-up and at the end. The memory is
RssAnon, which excludes shared libraries. The exit code is 1 if a process has grown more than servers usually vary.

Then the same number of sessions run on four servers of TensorFlow's `tf.distribute.Server`, without tfk8s. Their growth
is the growth of TensorFlow itself.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from measure import TFK8S, in_another_network, local_cluster, own_state, plain_servers, seconds, supervisor, tfk8s

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
MAX_GROWTH = 5  # of descriptors and threads, which vary from second to second
TASKS = {"chief": 1, "ps": 1, "worker": 2}


@dataclass(frozen=True)
class Size:
    """The size of a process: memory in MB, descriptors and threads."""

    memory: float
    descriptors: int
    threads: int


def size(pid: int) -> Size:
    """Return the current size of a process."""
    proc = Path(f"/proc/{pid}")
    anonymous = next(line for line in (proc / "status").read_text().splitlines() if line.startswith("RssAnon:"))
    memory = int(anonymous.split()[1]) / 1000
    return Size(memory, len(list((proc / "fd").iterdir())), len(list((proc / "task").iterdir())))


def processes() -> dict[str, int]:
    """Return the process ids of the tasks, the supervisor and the fork server."""
    status = json.loads(tfk8s("status", "--local", NAME, "-o", "json"))
    tasks = {task["task"]: int(task["where"].removeprefix("pid ")) for task in status["tasks"]}
    parent = supervisor(NAME)
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    (fork_server,) = {int(child) for child in children} - set(tasks.values())
    return {**tasks, "supervisor": parent, "fork server": fork_server}


def submit(script: Path) -> subprocess.Popen[bytes]:
    """Start a script with one session."""
    command = [*TFK8S, "submit", "--local", NAME, str(script)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def sessions(script: Path, count: int, at_once: int = 1) -> None:
    """Run sessions."""
    for _ in range(0, count, at_once):
        for process in [submit(script) for _ in range(at_once)]:
            if process.wait(120) != 0:
                raise SystemExit(f"a script ended with {process.returncode}")


def settled_sizes(pids: dict[str, int]) -> dict[str, Size]:
    """Return the sizes once the number of threads stops falling, because servers keep some threads for seconds."""
    sizes = {name: size(pid) for name, pid in pids.items()}
    for _ in range(10):
        time.sleep(1)
        now = {name: size(pid) for name, pid in pids.items()}
        if all(now[name].threads >= sizes[name].threads for name in pids):
            return now
        sizes = now
    return sizes


def has_grown(before: Size, after: Size) -> bool:
    """Return whether a process has grown more than usual."""
    memory = after.memory - before.memory > max(20, before.memory / 10)
    return memory or after.descriptors > before.descriptors + MAX_GROWTH or after.threads > before.threads + MAX_GROWTH


def show(before: dict[str, Size], after: dict[str, Size]) -> None:
    """Print the sizes of processes before and after."""
    print(f"{'process':12} {'memory, MB':>20} {'descriptors':>14} {'threads':>12}")
    for name, old in before.items():
        new = after[name]
        print(
            f"{name:12} {old.memory:9.1f} → {new.memory:8.1f} {old.descriptors:6} → {new.descriptors:5} "
            f"{old.threads:5} → {new.threads:4}" + ("  grows" if has_grown(old, new) else "")
        )


# ---- TensorFlow alone ----------------------------------------------------------------------------------------------


def sizes_without_tfk8s(warm_up: int, count: int) -> tuple[dict[str, Size], dict[str, Size]]:
    """Return the sizes of plain servers after the warm-up, and after more sessions."""
    with plain_servers(TASKS) as pids:
        os.environ["TFK8S_TARGET"] = "grpc://localhost:2222"
        run_sessions(warm_up)
        before = settled_sizes(pids)
        run_sessions(count)
        return before, settled_sizes(pids)


def run_sessions(count: int) -> None:
    """Run the script several times in this process."""
    import tensorflow as tf

    for _ in range(count):
        with tf.Graph().as_default():
            exec(SCRIPT, {})  # noqa: S102 - the script is above


def main() -> int:
    """Measure, print the results, and return the exit code."""
    count, at_once = (int(word) for word in [*sys.argv[1:], *("200", "16")[len(sys.argv) - 1 :]])
    with own_state() as folder:
        job_file, script = folder / "job.yaml", folder / "session.py"
        job_file.write_text(JOB_FILE)
        script.write_text(SCRIPT)
        with local_cluster(NAME, job_file):
            sessions(script, WARM_UP)
            sessions(script, at_once, at_once)
            pids = processes()
            before = settled_sizes(pids)
            serial_seconds = seconds(lambda: sessions(script, count))
            parallel_seconds = seconds(lambda: sessions(script, 2 * at_once, at_once))
            after = settled_sizes(pids)
            assert processes() == pids, "a process restarted"
    print(
        f"{count} sessions one after another: {serial_seconds:.0f} s; 2 × {at_once} at once: {parallel_seconds:.0f} s"
    )
    show(before, after)
    print(f"the same {count + 2 * at_once} sessions on servers without tfk8s", flush=True)
    show(*in_another_network(functools.partial(sizes_without_tfk8s, WARM_UP + at_once, count + 2 * at_once)))
    return int(any(has_grown(before[name], after[name]) for name in pids))


if __name__ == "__main__":
    sys.exit(main())
