"""Measures four workers of a program, relative to four processes that are started by hand.

    python bench/programs.py [RUNS]

The program makes one step with MultiWorkerMirroredStrategy. The time counts from the start of the command, or of the
first process, until the last worker has made the step. The memory (PSS, shared pages counted once) is that of all
processes then, with those of tfk8s itself. Both ways take turns, so that a change of the machine's speed affects both.
The output has medians, the median ratio of the pairs, and the project's bound.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tfk8s.backends.local import network_namespace

WORKERS = 4
TFK8S = [sys.executable, "-m", "tfk8s"]
STEP_LINE = "first step"
PROGRAM = f"""
import time
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weights = tf.Variable(tf.ones([64, 64]))

def replica(values):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((values @ weights) ** 2)
    (gradient,) = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, [weights]))
    weights.assign_sub(0.1 * gradient)
    return loss

@tf.function
def step(values):
    return strategy.reduce("MEAN", strategy.run(replica, args=(values,)), axis=None)

step(tf.ones([8, 64])).numpy()
print("{STEP_LINE}", flush=True)
time.sleep(600)
"""


def pss(pid: int | str) -> float:
    """Return the memory of a process in MB, with shared pages counted in proportion."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1]) / 1000
    return 0.0


def descendants(pid: int) -> Iterator[int]:
    """Yield a process and all processes below it."""
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from descendants(int(child))


def wait_for_steps(lines: Iterator[str], count: int) -> None:
    """Read lines until that many workers have made their step."""
    for line in lines:
        count -= STEP_LINE in line
        if not count:
            return
    raise SystemExit("a program ended before its first step")


def by_tfk8s(folder: Path) -> tuple[float, float]:
    """Return the seconds and the memory of `tfk8s run`."""
    job_file = folder / "job.yaml"
    jobs = {"worker": {"tasks": WORKERS, "program": ["program.py"]}}
    job_file.write_text(json.dumps({"apiVersion": "tfk8s.dev/v1", "name": "bench", "jobs": jobs}))
    start = time.perf_counter()
    command = subprocess.Popen(
        [*TFK8S, "run", "--local", job_file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    wait_for_steps(iter(command.stdout), WORKERS)
    seconds = time.perf_counter() - start
    supervisor = json.loads((folder / "tfk8s" / "bench" / "supervisor.json").read_text())["pid"]
    memory = sum(map(pss, (command.pid, *descendants(supervisor))))
    command.send_signal(signal.SIGINT)
    command.communicate()
    return seconds, memory


def by_hand(folder: Path) -> tuple[float, float]:
    """Return the seconds and the memory of separate processes, in a network of their own as tfk8s' are."""
    command = [sys.executable, __file__, "--by-hand", folder]
    seconds, memory = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return seconds, memory


def start_by_hand(folder: Path) -> tuple[float, float]:
    """Start a process for each worker; return the seconds and the memory."""
    network_namespace.enter()
    reader, writer = os.pipe()
    cluster = {"worker": [f"localhost:{2222 + index}" for index in range(WORKERS)]}
    start = time.perf_counter()
    processes = []
    for index in range(WORKERS):
        config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        environment = {**os.environ, "TF_CONFIG": config, "TF_CPP_MIN_LOG_LEVEL": "1"}
        command = [sys.executable, folder / "program.py"]
        processes.append(subprocess.Popen(command, stdout=writer, stderr=subprocess.DEVNULL, env=environment))
    os.close(writer)
    with open(reader) as lines:
        wait_for_steps(lines, WORKERS)
        seconds = time.perf_counter() - start
        memory = sum(pss(process.pid) for process in processes)
        for process in processes:
            process.kill()
            process.wait()
    return seconds, memory


def report(what: str, unit: str, tfk8s: list[float], hand: list[float], bound: float) -> None:
    """Print the medians, the median ratio and its bound."""
    ratio = statistics.median(ours / theirs for ours, theirs in zip(tfk8s, hand, strict=True))
    ours, theirs = statistics.median(tfk8s), statistics.median(hand)
    print(f"{what}: tfk8s {ours:.1f} {unit}, by hand {theirs:.1f} {unit}: {ratio:.2f} × (bound: {bound} ×)")


def main() -> None:
    """Measure, and print the ratios."""
    if sys.argv[1:2] == ["--by-hand"]:
        print(json.dumps(start_by_hand(Path(sys.argv[2]))))
        return
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        (Path(folder) / "program.py").write_text(PROGRAM)
        pairs = [(by_tfk8s(Path(folder)), by_hand(Path(folder))) for _ in range(runs)]
    for number, (what, unit, bound) in enumerate((("first step", "s", 0.5), ("memory", "MB", 0.6))):
        report(what, unit, [ours[number] for ours, _ in pairs], [theirs[number] for _, theirs in pairs], bound)


if __name__ == "__main__":
    main()
