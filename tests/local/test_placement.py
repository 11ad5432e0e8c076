"""The tasks of operations and sessions in an elastic cluster, which are those of servers with a ClusterSpec."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters import is_ready, pids, wait_for
from job_files import job_file

from tfk8s.backends.devices import list_devices, require_servers, view
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.spec import Task
from tfk8s.errors import TaskUnreachable
from tfk8s.sessions.cluster.questions import Questions

Run = Callable[..., tuple[int, str, str]]

HELPERS = """
import json, os, sys, tempfile, tensorflow.compat.v1 as tf, tfk8s
CLUSTER = json.loads(os.environ["TFK8S_CLUSTER"])
def on(task):
    job, _, index = task.partition("/")
    return "grpc://" + CLUSTER[job][int(index)]
def show(session, fetch, *names, feed=None):
    metadata = tf.RunMetadata()
    session.run(fetch, feed, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
    tasks = {node.node_name: "/".join(part.partition(":")[2] for part in device.device.split("/")[1:4:2])
             for device in metadata.step_stats.dev_stats for node in device.node_stats}
    print(*(sorted({task for node, task in tasks.items() if f"/{node}".endswith(f"/{name}")}) for name in names))
ones = tf.ones_initializer()
with tf.device("/job:ps/task:0"): weights = tf.get_variable("weights", [2], initializer=ones)
free = tf.get_variable("free", [2], initializer=ones)
"""
VARIABLES = (
    HELPERS
    + """
with tf.device("/job:worker"): counts = tf.get_variable("counts", [2], initializer=ones)
total = tf.add_n([weights, counts, free, tf.random_uniform([2], 1, 1)], name="total")
for task in ("worker/1", "worker/0"):
    with tf.Session(on(task)) as session:
        session.run(tf.global_variables_initializer())
        show(session, total, "weights", "counts", "free", "total")
        with tf.name_scope(task.replace("/", "")), tf.device(free.device): copy = tf.identity(total)
        saver = tf.train.Saver(name=task.replace("/", "saver"))
        with tempfile.TemporaryDirectory() as folder:
            names = saver.saver_def.save_tensor_name, saver.saver_def.filename_tensor_name
            scope = names[0].partition("/")[0]
            show(session, names[0], f"{scope}/SaveV2", feed={names[1]: f"{folder}/1"})
            path = saver.save(session, f"{folder}/2")
            session.run([weights.assign([5, 5]), free.assign([5, 5])])
            show(session, saver.saver_def.restore_op_name, f"{scope}/RestoreV2", feed={names[1]: path})
        print(session.run(copy).tolist())
print(sorted({node.device for node in tf.train.export_meta_graph().graph_def.node}))
"""
)
FUNCTIONS = (
    HELPERS
    + """
tf.enable_control_flow_v2()
double = lambda: tf.multiply(weights, 2.0, name="double") + tf.sqrt(free)
branch = tf.cond(tf.reduce_sum(free) > 0, double, lambda: weights + 1.0, name="cond")
loop = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.maximum(x, weights, name="most") * free),
                     [0, tf.zeros([2])], name="while")
change = tf.gradients(loop[1], [weights, free])
call = tf.function(lambda x: tf.subtract(x * weights, free, name="subtract"))(tf.constant([2., 3.]))
with tf.Session(os.environ["TFK8S_TARGET"]) as session:
    session.run(tf.global_variables_initializer())
    print(*(values.tolist() for values in session.run([branch, loop[1], *change, call])))
    show(session, [branch, loop[1], call], "weights", "free", "double", "most")
"""
)
SESSIONS = (
    HELPERS
    + """
own = tf.ConfigProto(cluster_def=tf.train.ClusterSpec({"a": CLUSTER["worker"][1:]}).as_cluster_def())
with tf.Session(on("worker/1"), config=own) as session:
    print(sorted(device.name for device in session.list_devices() if device.device_type == "CPU"))
with tf.Session(sys.argv[1]) as session:
    print(sorted(device.name for device in session.list_devices() if device.device_type == "CPU"))
with tf.Graph().as_default():
    one = tf.constant(1) + tf.random_uniform([], 0, 1, tf.int32)
    for target in on("worker/1"), "", on("worker/0"):
        with tf.Session(target, config=tf.ConfigProto()) as session: print(session.run(one))
with tf.Session(os.environ["TFK8S_TARGET"]) as session: session.run(tf.global_variables_initializer())
tf.Session.reset(os.environ["TFK8S_TARGET"])
with tf.Session(os.environ["TFK8S_TARGET"]) as session: print(session.run(tf.report_uninitialized_variables()))
"""
)
FILTERED = """
import os, tensorflow as tf
for filters in [], ["/job:ps"], ["/job:worker/task:0"]:
    with tf.Session(os.environ["TFK8S_TARGET"], config=tf.ConfigProto(device_filters=filters)) as session:
        print(session.run(tf.constant(1) + 1))
"""


@pytest.fixture(scope="module")
def placed(state_home: object, backend: LocalBackend) -> Iterator[str]:
    """A cluster whose tasks all go on running."""
    backend.apply(job_file("placed", worker=2, ps=1, evaluator=1))
    before = pids(wait_for(backend, "placed", is_ready))
    yield "placed"
    assert pids(backend.observe("placed")) == before
    backend.delete("placed")


def test_variables_and_their_files_are_on_the_same_tasks_for_each_master(run: Run, placed: str) -> None:
    code, output, errors = run(placed, VARIABLES, tf1=True)
    of = "['ps/0'] ['{0}'] ['{0}'] ['{0}']\n['{0}']\n['{0}']\n[4.0, 4.0]\n".format
    devices = ["", "/device:CPU:0", "/job:ps/task:0", "/job:worker"]
    assert (code, output) == (0, f"{of('worker/1')}{of('worker/0')}{devices}\n"), errors
    assert "was changed by setting device" not in errors


def test_functions_with_variables_of_a_ps_are_on_the_master(run: Run, placed: str) -> None:
    code, output, errors = run(placed, f"import tensorflow.compat.v1 as t; t.disable_eager_execution()\n{FUNCTIONS}")
    values = "[3.0, 3.0] [1.0, 1.0] [1.0, 1.0] [3.0, 3.0] [1.0, 2.0]"
    assert (code, output) == (0, f"{values}\n['ps/0'] ['worker/0'] ['worker/0'] ['worker/0']\n"), errors


def test_sessions_of_an_own_cluster_and_of_an_evaluator_and_a_reset(
    run: Run, backend: LocalBackend, placed: str
) -> None:
    evaluator = next(task for task in backend.observe(placed).tasks if not task.takes_part)
    code, output, errors = run(placed, SESSIONS, f"grpc://{evaluator.address}", tf1=True)
    own, beside = (f"['/job:{job}/replica:0/task:0/device:CPU:0']\n" for job in ("a", "evaluator"))
    assert (code, output) == (0, f"{own}{beside}1\n1\n1\n[b'weights' b'free']\n"), errors
    listed = {device.name for answer in list_devices(backend, backend.observe(placed)) for device in answer.devices}
    assert "/job:evaluator/replica:0/task:0/device:CPU:0" in listed


def test_masters_go_on_beside_a_task_that_does_not_answer(run: Run, backend: LocalBackend, placed: str) -> None:
    status = backend.observe(placed)
    pid = pids(status)[Task("worker", 1)]
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(TaskUnreachable) as caught:
            require_servers(backend, status, Questions())
        found = run(placed, FILTERED, tf1=True, environment={"TFK8S_WITHOUT": "worker/1"})
    finally:
        os.kill(pid, signal.SIGCONT)
        wait_for(backend, placed, is_ready)
    assert found[:2] == (0, "2\n2\n2\n"), found[2]
    assert str(caught.value) == (
        "worker/0 can't reach worker/1: asked from this machine, worker/1 answers, but worker/0 waits for worker/1"
    )


def test_polls_for_a_task_that_does_not_answer_cost_its_peers_few_threads(backend: LocalBackend, placed: str) -> None:
    status = backend.observe(placed)
    found = pids(status)
    stopped = found[Task("worker", 1)]

    def threads() -> dict[Task, int]:
        return {task: len([*Path(f"/proc/{pid}/task").iterdir()]) for task, pid in found.items()}

    cluster = view(backend, status)
    os.kill(stopped, signal.SIGSTOP)
    try:
        lost = {"worker/0": ["worker/1"], "ps/0": ["worker/1"]}
        assert cluster.unreachable_pairs() == lost
        before = threads()
        for _ in range(3):  # each used to cost each server two threads or more
            assert cluster.unreachable_pairs() == lost
        more = {str(task): count - before[task] for task, count in threads().items() if count > before[task] + 2}
    finally:
        os.kill(stopped, signal.SIGCONT)
        wait_for(backend, placed, is_ready)
    assert more == {}
    assert cluster.unreachable_pairs() == {}
