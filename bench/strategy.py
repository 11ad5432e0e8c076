"""Measures steps/s of a Keras model: one process, `tfk8s.strategy()`, and MultiWorkerMirroredStrategy, on two workers.

    python bench/strategy.py

All train with the same global batch.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import page
from measure import Comparison, call, compare, in_another_network, local_cluster, take_turns, tfk8s, workers

TITLE = "Strategies"
TURNS = 3
STEPS = 100
BATCH = 512
KINDS = ("`tfk8s.strategy()`", "MultiWorkerMirroredStrategy", "one process")
SIZES = {"small": 32, "large": 512}  # units of each of two layers
JOB_FILE = """
apiVersion: tfk8s.dev/v1
name: bench-strategy
jobs: {ps: 1, worker: 2}
"""


def train(kind: str) -> None:
    """Train models of each size, and print the steps/s. Runs in a script, or in a process of its own."""
    import keras
    import numpy as np
    import tensorflow as tf

    import tfk8s

    make: dict[str, Callable[[], tf.distribute.Strategy]] = {
        "`tfk8s.strategy()`": tfk8s.strategy,
        "MultiWorkerMirroredStrategy": tf.distribute.MultiWorkerMirroredStrategy,
        "one process": tf.distribute.get_strategy,
    }
    strategy = make[kind]()
    tfk8s.correct_keras()  # for MultiWorkerMirroredStrategy
    inputs = np.random.default_rng(0).normal(size=(BATCH * 8, 64)).astype("float32")
    batches = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :1])).repeat().batch(BATCH, drop_remainder=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = batches.with_options(options)
    rates = {}
    for size, units in SIZES.items():
        with strategy.scope():
            layers = [keras.layers.Dense(units, activation="tanh") for _ in range(2)]
            model = keras.Sequential([keras.Input((64,)), *layers, keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        model.fit(batches, epochs=1, steps_per_epoch=10, verbose=0)
        start = time.perf_counter()
        model.fit(batches, epochs=1, steps_per_epoch=STEPS, verbose=0)
        rates[size] = STEPS / (time.perf_counter() - start)
    print(json.dumps(rates))


def rates(output: str) -> dict[str, float]:
    """Return the rates in the last line of a program's output."""
    return dict(json.loads(output.splitlines()[-1]))


def by_hand(kind: str) -> dict[str, float]:
    """Return the rates of two workers that train together, from the first."""
    with workers(2, sys.executable, __file__, kind) as processes:
        outputs = [process.communicate()[0] for process in processes]
    return rates(outputs[0])


def measure(kind: str, job_file: str) -> dict[str, float]:
    """Run one kind of training; return the rate of each size."""
    if kind == KINDS[0]:
        return rates(tfk8s("submit", "--local", job_file, __file__, kind))
    if kind == "one process":
        return rates(call(sys.executable, __file__, kind))
    return in_another_network(functools.partial(by_hand, kind))


def comparisons() -> Iterator[Comparison]:
    """Measure the steps/s."""
    with tempfile.TemporaryDirectory() as name:
        job_file = Path(name, "cluster.yaml")
        job_file.write_text(JOB_FILE)
        with local_cluster("bench-strategy", job_file):
            ways = {kind: functools.partial(measure, kind, str(job_file)) for kind in KINDS}
            figures = take_turns(ways, TURNS)
    for size, units in SIZES.items():
        rate = {kind: [rates[size] for rates in figures[kind]] for kind in KINDS}
        for kind in KINDS[:2]:
            yield compare(f"{kind}, {units} units", "one process", "steps/s", rate[kind], rate["one process"])


if __name__ == "__main__":
    train(sys.argv[1]) if len(sys.argv) > 1 else page.show(TITLE, comparisons())
