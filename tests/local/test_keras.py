"""Keras 3 with `tfk8s.correct_keras()`, under two strategies of TensorFlow."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import REPOSITORY, is_ready, wait_for
from job_files import job_file

from tfk8s.backends.local import LocalBackend

Run = Callable[..., tuple[int, str, str]]

DATA = """
import json, os, sys
import keras, numpy as np, tensorflow as tf, tfk8s
tfk8s.correct_keras()
random = np.random.default_rng(0)
x = random.normal(size=(256, 8)).astype("float32")
y = (x @ random.normal(size=(8, 1)) > 0).astype("float32")

def data():
    return tf.data.Dataset.from_tensor_slices((x, y))  # after the strategy, which TensorFlow wants first

def compiled(strategy):
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1, "sigmoid")])
        model.compile("adam", "binary_crossentropy", metrics=["accuracy", keras.metrics.Precision()])
    return model
"""
MULTI_WORKER = """
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
cluster = tf.train.ClusterSpec(json.loads(os.environ["TFK8S_CLUSTER"]))
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
strategy = tf.distribute.ParameterServerStrategy(resolver)
model = compiled(strategy)
history = model.fit(data().repeat().batch(64), epochs=3, steps_per_epoch=40, verbose=0,
                    validation_data=data().batch(64), validation_steps=4)
print(json.dumps([int(model.optimizer.iterations.numpy()), *history.history["loss"], *history.history["val_loss"]]))
"""


@pytest.fixture(scope="module")
def workers(backend: LocalBackend, state_home: Path) -> Iterator[str]:
    del state_home
    backend.apply(job_file("keras", ps=1, worker=2))
    wait_for(backend, "keras", is_ready)
    yield "keras"
    backend.delete("keras")


def start(script: Path, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a program, as a task runs it."""
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    command = [sys.executable, str(script), str(folder)]
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str]) -> list[Any]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return list(json.loads(out.splitlines()[-1]))


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def test_two_workers_train_as_one_process(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DATA + MULTI_WORKER)
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    configs = [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}) for index in range(2)]
    processes = [start(script, tmp_path / f"{index}", TF_CONFIG=config) for index, config in enumerate(configs)]
    first, second = map(result, processes)
    replicas, *losses = first
    assert replicas == 2
    assert second == first
    _, *alone = result(start(script, tmp_path / "alone"))
    assert [value for metric in losses for value in metric] == pytest.approx(
        [value for metric in alone for value in metric], rel=1e-3
    )
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
