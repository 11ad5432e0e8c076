"""Sessions bring the ClusterSpec: clusters change their size while sessions and variables stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from clusters import is_ready, pids, start_tfk8s, wait_for
from job_files import job_file
from scaling import scale_under_a_session

from tfk8s.backends.local.backend import LocalBackend
from tfk8s.cluster.connection import ClusterConnection
from tfk8s.core.spec import Task
from tfk8s.errors import InvalidInput


def test_variables_and_sessions_stay_while_workers_come_and_go(
    backend: LocalBackend, cluster: str, tmp_path: Path
) -> None:
    before = pids(backend.observe(cluster))
    scale_under_a_session(
        backend, cluster, 10, tmp_path, lambda script: start_tfk8s("submit", "--local", "--tf1", cluster, script)
    )
    assert pids(backend.observe(cluster))[Task("worker", 1)] != before[Task("worker", 1)]


PLAIN = """
import sys
import numpy, tensorflow
tf = tensorflow.compat.v1
tf.disable_eager_execution()
with tf.device("/job:worker/task:0"):
    here = tf.reduce_sum(tf.constant(numpy.arange(1_000_000)))
with tf.device("/job:worker/task:1"):
    there = tf.constant(1)
session = tf.Session(sys.argv[1])
print(*session.run([here, there]), flush=True)
input()
print(session.run(here))
try:
    session.run(there)
except tf.errors.OpError as error:
    print(type(error).__name__)
with tf.Graph().as_default(), tf.Session(sys.argv[1]) as later:
    print(later.run(tf.constant(2)), sorted({device.name.partition("/device")[0] for device in later.list_devices()}))
"""


def test_open_sessions_go_on_without_the_task_that_goes(backend: LocalBackend, cluster: str, tmp_path: Path) -> None:
    """A script, and a program that knows nothing of tfk8s, with a graph larger than HTTP/2's first window."""
    script, plain = tmp_path / "loop.py", tmp_path / "plain.py"
    script.write_text(
        "import os, tensorflow as tf, tfk8s\n"
        "with tf.device('/job:worker/task:0'): here = tf.constant(1)\n"
        "with tf.device('/job:worker/task:1'): there = tf.constant(1)\n"
        "with tfk8s.session() as session:\n"
        "    session.run(here)\n"
        "    print('open', flush=True)\n"
        "    input()\n"
        "    print(session.run(here), flush=True)\n"
        "    session.run(there)\n"
    )
    plain.write_text(PLAIN)
    pipes = {"stdin": -1, "stdout": -1, "stderr": -1, "text": True}
    with (
        ClusterConnection(backend, cluster).forward(0, ()) as forward,
        start_tfk8s("submit", "--local", "--tf1", cluster, str(script), stdin=-1) as process,
        subprocess.Popen([sys.executable, plain, forward.target], **pipes) as other,
    ):
        assert process.stdout is not None
        assert other.stdout is not None
        assert process.stdout.readline() == "open\n"
        assert other.stdout.readline() == "499999500000 1\n", other.communicate()[1]
        backend.scale(cluster, {"worker": 1})
        wait_for(backend, cluster, is_ready)
        output, errors = process.communicate("\n", timeout=60)
        assert output == "1\n"
        assert process.returncode == 3
        assert "worker/1 was lost: removed by `tfk8s scale`" in errors
        output, errors = other.communicate("\n", timeout=60)
    tasks = ["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"]
    assert output.splitlines() == ["499999500000", "UnavailableError", f"2 {tasks}"], errors


def test_up_applies_other_numbers_of_tasks(backend: LocalBackend, cluster: str) -> None:
    before = pids(backend.observe(cluster))
    more = job_file(cluster, worker=3, ps=2)
    assert str(backend.plan(more).refusal) == ""
    assert backend.apply(more)
    wait_for(backend, cluster, is_ready)
    assert before.items() <= pids(backend.observe(cluster)).items()
    with pytest.raises(InvalidInput) as caught:
        backend.apply(job_file(cluster, worker=3, ps=1))
    assert str(caught.value) == "ps/1 may hold variables, which would be lost"
    assert caught.value.help == f"save them; then run: tfk8s scale --local {cluster} ps=1 --yes"
