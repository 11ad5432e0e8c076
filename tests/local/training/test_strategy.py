"""Keras and custom loops, with `tfk8s.strategy()` and two strategies of TensorFlow: as in one process."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clusters import REPOSITORY, is_ready, pids, start_tfk8s, wait_for
from job_files import job_file

from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.spec import Task
from tfk8s.training import keras_support

Run = Callable[..., tuple[int, str, str]]

DATA = """
import json, os, sys
import keras, numpy as np, tensorflow as tf, tfk8s
random = np.random.default_rng(0)
x = random.normal(size=(256, 8)).astype("float32")
y = (x @ random.normal(size=(8, 1)) > 0).astype("float32")

def data():
    return tf.data.Dataset.from_tensor_slices((x, y))  # after the strategy, which TensorFlow wants first

def compiled(strategy, *layers, optimizer=lambda: "adam"):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        first = keras.layers.Dense(16, "tanh", kernel_constraint=keras.constraints.MaxNorm(1))
        layers = [first, *(layer() for layer in layers), keras.layers.Dense(1, "sigmoid")]
        model = keras.Sequential([keras.Input((8,)), *layers])
        model.compile(optimizer(), "binary_crossentropy", metrics=["accuracy", keras.metrics.Precision()])
    return model
"""
FIT = """
def once():
    if keras.__version__[0] < "3":
        return keras.optimizers.Adam(global_clipnorm=0.1)
    options = {"global_clipnorm": 0.1, "gradient_accumulation_steps": 2, "use_ema": True, "ema_overwrite_frequency": 2}
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(**options))

def fit(strategy):
    validation = x[:100], y[:100]  # a whole batch and a part of one
    history = compiled(strategy, optimizer=once).fit(x, y, 64, 2, shuffle=False, verbose=0, validation_data=validation)
    return list(history.history.values())
"""
LOOP = """
def loop(strategy):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.Adam(0.1)
        steps = tf.Variable(0, trainable=False, dtype=tf.int64)
        total = tf.Variable(0.0, synchronization=tf.VariableSynchronization.ON_READ,
                            aggregation=tf.VariableAggregation.SUM)

    def replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / 64
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        steps.assign_add(1)
        total.assign(total + loss)
        return loss

    @tf.function
    def step(batch):
        return strategy.reduce("SUM", strategy.run(replica, args=batch), axis=None)

    batches = data().repeat().batch(64)
    losses = [float(step(batch)) for _, batch in zip(range(8), strategy.experimental_distribute_dataset(batches))]
    return losses, int(steps), float(total.read_value())
"""
BOTH = """
one = {name}(tf.distribute.get_strategy())  # TensorFlow's context is initialized before tfk8s.strategy()
strategy = tfk8s.strategy()
print(json.dumps([strategy.num_replicas_in_sync, one, {name}(strategy)]))
"""
ON_REPLICAS = """
strategy = tfk8s.strategy(variables="worker")
model = compiled(strategy, keras.layers.BatchNormalization, lambda: keras.layers.Dropout(0.5))
model.fit(x, y, 64, 2, shuffle=False, verbose=0)
mean, variance = (variable.numpy() for variable in model.layers[1].non_trainable_variables)
devices = {getattr(w.value, "device", "") or w.device for w in model.trainable_variables}  # a method in Keras 2
print(json.dumps([float(abs(mean).sum()), sorted(devices)]))
"""
BACKUP = """
model = compiled(tfk8s.strategy())
def tell(epoch, logs):
    print(epoch, logs["loss"], flush=True)
    if epoch == 2:
        sys.stdin.readline()
tell = keras.callbacks.LambdaCallback(on_epoch_end=tell)
model.fit(x, y, 64, 6, shuffle=False, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(sys.argv[1]), tell])
"""
MULTI_WORKER = """
tfk8s.correct_keras()
in_workers = "TF_CONFIG" in os.environ
strategy = tf.distribute.MultiWorkerMirroredStrategy() if in_workers else tf.distribute.get_strategy()
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
batches = data().batch(64).with_options(options)
backup = keras.callbacks.BackupAndRestore(sys.argv[1], delete_checkpoint=False)
saved = keras.callbacks.ModelCheckpoint(os.path.join(sys.argv[1], "model.keras"))
history = compiled(strategy).fit(batches, epochs=2, verbose=0, validation_data=batches, callbacks=[backup, saved])
print(json.dumps([strategy.num_replicas_in_sync, *history.history.values()]))
"""
PARAMETER_SERVER = """
tfk8s.correct_keras()
cluster = tf.train.ClusterSpec(json.loads(os.environ["TFK8S_CLUSTER"]))
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(resolver)
model = compiled(strategy)
history = model.fit(data().repeat().batch(64), epochs=3, steps_per_epoch=40, verbose=0,
                    validation_data=data().batch(64), validation_steps=4)
print(json.dumps([int(model.optimizer.iterations.numpy()), *history.history["loss"], *history.history["val_loss"]]))
"""

# Runs the same text in a fork for each folder. TensorFlow, which takes 4 s of CPU time, is imported once.
FORKS = """
import json, os, sys
import tensorflow
text, *arguments = sys.argv[1:]
for folder, config in map(json.loads, arguments):
    if not os.fork():
        os.dup2(os.open(folder + ".txt", os.O_WRONLY | os.O_CREAT), 1)
        if config:
            os.environ["TF_CONFIG"] = json.dumps(config)
        sys.argv = ["train.py", folder]
        exec(text)
        sys.stdout.flush()
        os._exit(0)
sys.exit(any(os.wait()[1] for _ in arguments))
"""

KERAS = importlib.metadata.version("keras")
CORRECTED = pytest.mark.skipif(
    KERAS.rpartition(".")[0] not in keras_support._SERIES, reason=f"tfk8s.correct_keras() leaves Keras {KERAS} as it is"
)


@pytest.fixture(scope="module")
def workers(backend: LocalBackend, state_home: Path) -> Iterator[str]:
    del state_home
    backend.apply(job_file("workers", ps=1, worker=2))
    wait_for(backend, "workers", is_ready)
    yield "workers"
    backend.delete("workers")


def flat(value: object) -> list[float]:
    return [one for item in value for one in flat(item)] if isinstance(value, list) else [value]  # type: ignore[list-item]


@pytest.mark.parametrize(("name", "text"), [("fit", FIT), ("loop", LOOP)])
def test_losses_equal_those_of_one_process(workers: str, run: Run, name: str, text: str) -> None:
    code, out, err = run(workers, DATA + text + BOTH.format(name=name))
    assert code == 0, err
    replicas, one, both = json.loads(out.splitlines()[-1])
    assert replicas == 2
    assert flat(both) == pytest.approx(flat(one), rel=1e-3)


def test_replicas_change_variables_without_aggregation(workers: str, run: Run) -> None:
    code, out, err = run(workers, DATA + ON_REPLICAS)
    assert code == 0, err
    mean, devices = json.loads(out.splitlines()[-1])
    assert mean > 0
    assert devices == [f"/job:worker/replica:0/task:{index}/device:CPU:0" for index in range(2)]


TF1 = """error: tfk8s.strategy() needs TensorFlow 2, and this script has TensorFlow 1's behaviour
  = help: submit the script without --tf1, and do not call tf.compat.v1.disable_v2_behavior()
"""
CONNECTED = """error: tfk8s.strategy() can't connect: TensorFlow is connected to a cluster of another strategy
  = help: use one strategy in a script
"""
XLA = """error: tfk8s.strategy() can't train with jit_compile=True: XLA compiles for one device, a step has several
  = help: remove jit_compile=True, as for MirroredStrategy
"""
COMPILED_STEP = "tfk8s.strategy().run(tf.function(lambda: 1.0, jit_compile=True))\n"
COMPILED = "strategy = tfk8s.strategy()\ntf.function(lambda: strategy.run(lambda: 1.0), jit_compile=True)()\n"
OTHER = 'tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec({"worker": ["localhost:2222"]}))\n'


@pytest.mark.parametrize(
    ("text", "tf1", "message"),
    [
        ("", True, TF1),
        (OTHER, False, CONNECTED),
        (COMPILED, False, XLA),
        (COMPILED_STEP, False, XLA),
    ],
)
def test_scripts_that_can_use_no_strategy(workers: str, run: Run, text: str, tf1: bool, message: str) -> None:
    code, _, err = run(workers, f"import tensorflow as tf, tfk8s\n{text}tfk8s.strategy()", tf1=tf1)
    assert code == 2
    assert message in err, err  # TensorFlow may log after it that a worker has dropped the context already


def test_training_continues_after_the_loss_of_the_ps(workers: str, backend: LocalBackend, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DATA + BACKUP)

    def start(folder: str) -> list[str]:
        return ["submit", "--local", "--retries", "3", workers, str(script), str(tmp_path / folder)]

    undisturbed = start_tfk8s(*start("a"), stdin=subprocess.DEVNULL).communicate(timeout=120)[0].splitlines()
    disturbed = start_tfk8s(*start("b"), stdin=subprocess.PIPE)
    assert disturbed.stdout is not None
    lines = []
    while not lines or not lines[-1].startswith("2 "):
        lines.append(disturbed.stdout.readline())
        assert lines[-1], disturbed.communicate()[1]
    os.kill(pids(backend.observe(workers))[Task("ps", 0)], signal.SIGKILL)
    rest, errors = disturbed.communicate("\n", timeout=120)
    assert disturbed.returncode == 0, errors
    epochs = [line.split() for line in (*lines, *rest.splitlines())]
    assert [int(epoch) for epoch, _ in epochs] == list(range(6))
    assert [float(loss) for _, loss in epochs] == pytest.approx([float(line.split()[1]) for line in undisturbed])
    assert "ps/0 was restarted" in errors or "ps/0 was lost" in errors


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, below those that the system gives to connections meanwhile."""
    found: set[int] = set()
    while len(found) < count:
        port = random.randrange(20_000, 32_000)  # noqa: S311 - no secret
        with contextlib.suppress(OSError), socket.create_server(("localhost", port)):
            found.add(port)
    return sorted(found)


@CORRECTED
def test_two_workers_train_as_one_process(tmp_path: Path) -> None:
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    configs = [{"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(2)]
    folders = dict(zip(("0", "1", "alone"), (*configs, None), strict=True))
    arguments = [json.dumps([str(tmp_path / name), config]) for name, config in folders.items()]
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, DATA + MULTI_WORKER, *arguments],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as forks:  # fmt: skip
        try:
            _, errors = forks.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(forks.pid, signal.SIGKILL)
            raise
    assert forks.returncode == 0, errors
    first, second, alone = (json.loads((tmp_path / f"{name}.txt").read_text().splitlines()[-1]) for name in folders)
    assert first[0] == 2
    assert second == first
    assert flat(first[1:]) == pytest.approx(flat(alone[1:]), rel=1e-3)
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == sorted(
        path.name for path in (tmp_path / "alone").iterdir()
    )
    assert not (tmp_path / "1").exists(), "only the chief writes checkpoints"


def test_parameter_servers_count_each_step(workers: str, run: Run) -> None:
    code, out, err = run(workers, DATA + PARAMETER_SERVER)
    assert code == 0, err
    iterations, first, *_, last = json.loads(out.splitlines()[-1])
    assert iterations == 120
    assert last < 0.8 * first
