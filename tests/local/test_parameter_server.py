"""Programs for TensorFlow 2's strategies; lost tasks are in tests/faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clusters import is_ready, pids, tfk8s, wait_for
from job_files import job_file

from tfk8s import polling
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.spec import Task

COORDINATOR = Path(__file__).parents[1] / "faults" / "scripts" / "coordinator.py"
SIZE = 200_000_000

STRATEGY = """
import os, sys
import tensorflow as tf
strategy = tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
"""
LARGE = f"""{STRATEGY}
with strategy.scope():
    large = tf.Variable(lambda: tf.ones([{SIZE // 4}]))
with tf.device(large.device):  # a value that goes over the network leaves buffers in the heaps of malloc
    start = tf.reduce_sum(large[:8])
print(start.numpy(), flush=True)
if sys.argv[1:]:
    raise {{"exit": SystemExit(5), "Ctrl-C": KeyboardInterrupt, "error": ValueError}}[sys.argv[1]]
"""
KERAS = f"""{STRATEGY}
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(tf.data.Dataset.from_tensors((tf.ones([4, 2]), tf.ones([4, 1]))), verbose=0)
"""
OWN_CLUSTER = f"""
import json, os
cluster = {{"chief": ["localhost:2990"], "ps": ["localhost:2991"], "worker": ["localhost:2224"]}}
os.environ["TF_CONFIG"] = json.dumps({{"cluster": cluster, "task": {{"type": "chief", "index": 0}}}})
{STRATEGY}
"""
CHECKPOINT = f"""{STRATEGY}
with strategy.scope():
    variable = tf.Variable([1.0, 2.0])
path = tf.train.Checkpoint(variable=variable).save(sys.argv[1])
variable.assign([0.0, 0.0])
tf.train.Checkpoint(variable=variable).restore(path)
print(variable.numpy())
"""
AS_WORKER = f"""
import json, os
config = json.loads(os.environ["TF_CONFIG"])
os.environ["TF_CONFIG"] = json.dumps({{**config, "task": {{"type": "worker", "index": 1}}}})
{STRATEGY}
"""

# TensorFlow's tutorial: servers for a cluster of the script's own, at ports that are free.
IN_PROCESS = """
import socket
import tensorflow as tf

def pick():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]

def create_in_process_cluster(num_workers, num_ps):
    spec = {job: ["localhost:%s" % pick() for _ in range(n)] for job, n in (("worker", num_workers), ("ps", num_ps))}
    cluster_spec = tf.train.ClusterSpec(spec)
    config = tf.compat.v1.ConfigProto()
    for i in range(num_workers):
        tf.distribute.Server(cluster_spec, job_name="worker", task_index=i, config=config, protocol="grpc")
    for i in range(num_ps):
        tf.distribute.Server(cluster_spec, job_name="ps", task_index=i, protocol="grpc")
    return tf.distribute.cluster_resolver.SimpleClusterResolver(cluster_spec, rpc_layer="grpc")

strategy = tf.distribute.ParameterServerStrategy(create_in_process_cluster(2, 1))
with strategy.scope():
    v = tf.Variable(1.0)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
@tf.function
def step():
    return v + 1.0
print(v.device, coordinator.fetch(coordinator.schedule(step)))
"""


@pytest.fixture(scope="module")
def pss(backend: LocalBackend) -> Iterator[str]:
    """A cluster of a chief with a server, a ps and two workers.

    With oneDNN, which TensorFlow uses on CPUs with AVX512-VNNI, a server keeps freed memory for later tensors.
    """
    backend.apply(job_file("pss", chief=1, ps=1, worker=2, env={"TF_ENABLE_ONEDNN_OPTS": "0"}))
    wait_for(backend, "pss", is_ready)
    yield "pss"
    backend.delete("pss")


def test_two_coordinators_share_the_tasks(pss: str) -> None:
    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda _: tfk8s("submit", "--local", pss, COORDINATOR, timeout=120), range(2)))
    for one in done:
        assert (one.returncode, one.stdout) == (0, "schedules\ncounted 240 of 240\n"), one.stderr


def test_tasks_forget_what_a_script_made(pss: str, backend: LocalBackend, run: Callable[..., object]) -> None:
    pid = pids(backend.observe(pss))[Task("ps", 0)]

    def memory() -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))

    ends = {"": 0, "exit": 5, "Ctrl-C": 130, "error": 1}
    before = memory()
    for how, code in ends.items():
        assert run(pss, LARGE, *filter(None, [how]))[:2] == (code, "8.0\n")
    polling.wait_until(lambda: memory() < before + SIZE, lambda: f"the ps to shrink from {memory()} bytes", 60)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (KERAS, 1, "hint: Keras 3 does not train with ParameterServerStrategy, Keras 2 does: "),
        (OWN_CLUSTER, 2, "error: no TensorFlow server answers at localhost:2991: "),
        (
            "import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()",
            2,
            "error: MultiWorkerMirroredStrategy needs this program in every task, and a session script is one process",
        ),
        (
            "import os, tensorflow as tf\ndel os.environ['TF_CONFIG']\ntf.distribute.MultiWorkerMirroredStrategy()",
            2,
            "error: MultiWorkerMirroredStrategy needs this program in every task, and a session script is one process",
        ),
        (AS_WORKER, 1, "ValueError: ParameterServerStrategy belongs in one process, the coordinator, and by TF_CONFIG"),
    ],
    ids=["keras", "own-cluster", "multi-worker", "alone", "worker"],
)
def test_a_program_that_can_not_work_is_told_why(
    pss: str, text: str, code: int, words: str, run: Callable[..., tuple[int, str, str]]
) -> None:
    ended = run(pss, text)
    assert ended[0] == code, ended
    assert words in ended[2]


def test_a_ps_writes_and_reads_a_checkpoint(pss: str, tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    assert run(pss, CHECKPOINT, str(tmp_path / "checkpoint"))[:2] == (0, "[1. 2.]\n")


def test_without_leaves_no_task_out_of_a_strategy(pss: str, run: Callable[..., tuple[int, str, str]]) -> None:
    code, _, error = run(pss, STRATEGY, environment={"TFK8S_WITHOUT": "worker/1"})
    assert code == 2
    assert "error: TensorFlow 2 connects to all tasks of the cluster, and --without leaves out worker/1\n" in error


def test_a_cluster_that_a_script_starts_leads_to_the_tasks(pss: str, run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run(pss, IN_PROCESS)
    assert (code, out) == (0, "/job:ps/replica:0/task:0/device:CPU:0 2.0\n"), err
    code, _, err = run(pss, IN_PROCESS.replace("cluster(2, 1)", "cluster(3, 2)"))
    assert code == 2
    assert "  the script's cluster: {ps: 2, worker: 3}\n  this cluster:         {chief: 1, ps: 1, worker: 2}\n" in err
    assert "or leave out the lines that start servers (script.py:15), since the tasks" in err
