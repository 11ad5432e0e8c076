"""Scripts and programs of TensorFlow 1."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import tfk8s, write_programs

# The forms in which programs of TensorFlow 1 import its parts.
IMPORTS = """
import tensorflow as tf
import tensorflow.compat.v1 as tf
from tensorflow import keras
from tensorflow.keras import layers
from tensorflow.keras.layers import Dense
import tensorflow.keras.backend as K
import tensorflow.keras as keras
from tensorflow.python.framework import ops
import tensorflow.python.framework.ops as ops
from tensorflow.core.framework import graph_pb2
import tensorflow.core.framework.graph_pb2
import tensorflow.core.framework.graph_pb2 as graph_pb2
import tensorflow.examples.digits as digits
from tensorflow.train import Saver
from tensorflow.tools.docs import doc_controls
"""

USES = """
import tensorflow as tf
assert tensorflow.core.framework.graph_pb2 is graph_pb2 and tf.python.framework.ops is ops
assert isinstance(tf.Graph(), ops.Graph) and keras.layers.Dense is Dense is layers.Dense is tf.keras.layers.Dense
tf.app.flags.DEFINE_string("log_dir", "logs", "absl has a flag of that name")
def main(_):
    print(tf.app.flags.FLAGS.log_dir, tf.executing_eagerly(), digits.NUMBER)
tf.app.run(main)
"""

# A program as Kubeflow and AI Platform ran it: the flags are its own, the cluster comes from TF_CONFIG.
TRAINER = """
import json, os
import tensorflow as tf
tf.app.flags.DEFINE_integer("steps", 1, "")
config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], tf.train.ClusterSpec(config["cluster"])
def main(_):
    server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        server.join()
    own = f"/job:{task['type']}"
    with tf.device(tf.train.replica_device_setter(worker_device=own, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        total = tf.get_variable("total", initializer=0.0)
    with tf.control_dependencies([total.assign_add(1.0)]):
        train = step.assign_add(1)
    filters = ["/job:ps", own]
    with tf.train.MonitoredTrainingSession(
        server.target, task["type"] == "chief", config=tf.ConfigProto(device_filters=filters), log_step_count_steps=None
    ) as session:
        while session.run(step) < tf.app.flags.FLAGS.steps:
            session.run(train)
        print("is at", session.run(total) >= tf.app.flags.FLAGS.steps, total.device, flush=True)
tf.app.run(main)
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_imports_and_flags(run, pair: str, fresh: bool, tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples/digits.py").write_text("NUMBER = 8")
    installed = f"import tensorflow; tensorflow.__path__.append({str(tmp_path)!r})  # as in TensorFlow's own folder\n"
    code, out, err = run(pair, installed + IMPORTS + USES, "--log_dir=here", tf1=True, fresh=fresh)
    assert (code, out) == (0, "here False 8\n"), err


# Without a cluster, TensorFlow trains in the script alone.
STRATEGIES = """
import tensorflow as tf
tf.distribute.experimental.CentralStorageStrategy()
of = tf.distribute.experimental
for make in (of.MultiWorkerMirroredStrategy, of.ParameterServerStrategy):
    try:
        print(make())
    except Exception as error:
        print(error)
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]}), task_type="worker", task_id=0, num_accelerators={"GPU": 0}
)
print(type(of.ParameterServerStrategy(resolver)).__name__)
"""


def test_strategies_without_a_cluster_are_refused(run, pair: str) -> None:
    _, out, err = run(pair, STRATEGIES, tf1=True)
    assert out == (
        "MultiWorkerMirroredStrategy needs this program in every task, and a session script is one process\n"
        "ParameterServerStrategy of TensorFlow 1 needs a TF_CONFIG, and this session script has none\n"
        "ParameterServerStrategyV1\n"
    ), err


def test_programs_that_read_tf_config(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/task.py").write_text(TRAINER)
    (tmp_path / "beside.py").write_text(TRAINER)
    jobs = {
        "ps": {"program": ["beside.py"], "tf1": True},
        "chief": {"program": ["beside.py", "--steps=5"], "tf1": True},
        "worker": {"program": ["python3", "-m", "trainer.task", "--steps=5"], "tf1": True},
    }
    done = tfk8s("run", "--local", write_programs(tmp_path, "old", jobs, success="worker", timeout="1m"))
    assert done.returncode == 0, done.stderr
    assert "worker/0 | is at True /job:ps/task:0\n" in done.stdout
