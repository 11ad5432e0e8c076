"""Sessions that recover from the loss of a task, and retries of scripts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import REPOSITORY, is_ready, pids, running, start_tfk8s, tfk8s, wait_for
from documented_commands import page_output

from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.spec import Task

RECOVER = REPOSITORY / "examples" / "recover"
TRAIN = str(RECOVER / "train.py")
LEARNT = pytest.approx([1, -2, 3, -4], abs=0.002)

RUNS_TWICE = """
import sys, tensorflow as tf
with tf.device("/job:worker/task:1"):
    y = tf.constant(8) + 1
with tf.Session("grpc://localhost:2222") as session:
    session.run(y)
    print("up", flush=True)
    sys.stdin.readline()
    print(session.run(y), flush=True)
"""

WITHOUT = """
import tensorflow as tf, tfk8s
with tf.device("/job:worker/task:0"):
    y = tf.constant(8) + 1
print(tf.Session("grpc://localhost:2222").run(y))
with tfk8s.session() as session:
    print(session.run(y))
with tf.device("/job:worker/task:1"):
    z = tf.constant(8) + 1
with tfk8s.session() as session:
    session.run(z)
"""


@pytest.fixture(scope="module")
def recover() -> Iterator[str]:
    with running(RECOVER / "cluster.yaml"):
        yield "recover"


def weights(output: str) -> list[float]:
    """Return the weights in the last line that the example printed."""
    word, *numbers = output.splitlines()[-1].split()
    assert word == "weights"
    return list(map(float, numbers))


def without_times(text: str) -> str:
    return re.sub(r"\b\d+\.\d s\b", "T", text)


def kill(name: str, task: Task) -> None:
    """Kill a task's server, and wait until it has been started again."""
    backend = LocalBackend()
    (restarts,) = [one.restarts for one in backend.observe(name).tasks if one.task == task]
    os.kill(pids(backend.observe(name))[task], signal.SIGKILL)
    wait_for(
        backend,
        name,
        lambda status: is_ready(status) and any(one.task == task and one.restarts > restarts for one in status.tasks),
    )


def test_training_recovers_from_the_loss_of_each_task(recover: str, tmp_path: Path) -> None:
    victims = {15: Task("worker", 1), 35: Task("ps", 0), 55: Task("master", 0)}
    script = start_tfk8s(
        "submit", "--local", "--tf1", recover, TRAIN, str(tmp_path), *map(str, victims), stdin=subprocess.PIPE
    )
    printed = []
    for step, victim in victims.items():
        while not printed or f"at step {step}: press Enter" not in printed[-1]:
            printed.append(script.stdout.readline())
            assert printed[-1], script.communicate(timeout=60)
        kill(recover, victim)
        script.stdin.write("\n")
        script.stdin.flush()
    out, err = script.communicate(timeout=120)
    assert script.returncode == 0, err
    shown = page_output("examples/recover/README.md", "tfk8s submit --local --tf1 recover examples/recover/train.py")
    assert weights(out) == LEARNT == weights(shown)
    assert set(without_times(shown).splitlines()[:-1]) <= set(without_times("".join(printed) + out + err).splitlines())
    for victim in victims.values():
        assert f"tfk8s: {victim} was restarted (killed by SIGKILL" in err, err
    assert err.count("here is the new session") == 3


def test_retries_repeat_a_script_after_a_loss(recover: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(RUNS_TWICE)
    script = start_tfk8s("submit", "--local", "--tf1", "--retries", "2", recover, str(path), stdin=subprocess.PIPE)
    assert script.stdout.readline() == "up\n"
    kill(recover, Task("worker", 1))
    script.stdin.write("\n")
    script.stdin.flush()
    assert script.stdout.readline() == "up\n"
    out, err = script.communicate("\n", timeout=120)
    assert (script.returncode, out) == (0, "9\n"), err
    assert f'File "{path}", line 9, in <module>\n    print(session.run(y), flush=True)\n' in err
    assert "(TFK8S_DEBUG=1 shows the rest)\n" in err, err
    assert "error: worker/1 was restarted (killed by SIGKILL" in err, err
    assert "it runs again when all tasks answer (retry 1 of 2)\n" in err
    assert "tensorflow/python" not in err


def test_a_script_runs_without_an_excluded_task(recover: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(WITHOUT)
    pid = pids(LocalBackend().observe(recover))[Task("worker", 1)]
    os.kill(pid, signal.SIGSTOP)
    try:
        done = tfk8s("submit", "--local", "--tf1", "--without", "worker/1", recover, path)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (done.returncode, done.stdout) == (2, "9\n9\n"), done.stderr
    assert "pinned to /job:worker/task:1: worker/1 is left out of this session\n" in done.stderr
