"""Sessions bring the ClusterSpec of elastic clusters."""

from __future__ import annotations

from collections.abc import Callable

from clusters import is_ready, wait_for
from job_files import job_file

from tfk8s.backends.local import LocalBackend
from tfk8s.core.spec import JobFile

Run = Callable[..., tuple[int, str, str]]
Up = Callable[[JobFile], str]


def test_operations_without_a_device_are_on_the_master(run: Run, up: Up, backend: LocalBackend) -> None:
    name = up(job_file("placed", worker=1, ps=1))
    wait_for(backend, name, is_ready)
    text = (
        "import os, tensorflow as tf\n"
        "free = tf.get_variable('free', [2], initializer=tf.zeros_initializer()) + tf.random_uniform([2])\n"
        "with tf.device('/job:ps/task:0'): weights = tf.get_variable('weights', [2])\n"
        "change = weights.assign_add([1., 1.])\n"
        "def places(fetch):\n"
        "    metadata = tf.RunMetadata()\n"
        "    session.run(fetch, options=tf.RunOptions(trace_level=3), run_metadata=metadata)\n"
        "    return sorted(d.device for d in metadata.step_stats.dev_stats if len(d.node_stats) > 1)\n"
        "with tf.Session(os.environ['TFK8S_TARGET']) as session:\n"
        "    session.run(tf.global_variables_initializer())\n"
        "    print(places(free), places(change))\n"
        "print({node.device for node in tf.get_default_graph().as_graph_def().node})\n"
    )
    worker, ps = (f"/job:{job}/replica:0/task:0/device:CPU:0" for job in ("worker", "ps"))
    code, output, errors = run(name, text, tf1=True)
    assert (code, output.splitlines()[0]) == (0, f"{[worker]} {[ps]}"), errors
    assert "worker" not in output.splitlines()[1]
