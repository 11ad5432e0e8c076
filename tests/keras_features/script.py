"""Trains small models in one process and under `tfk8s.strategy()`, and prints a line of JSON for each.

A model whose numbers differ also trains under MirroredStrategy.

A script of `tfk8s submit`: script.py keras|tf_keras all|sample|CASE …
What follows `all` are cases to leave out.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections import Counter
from typing import Any

import cases as table
import numpy as np
import tensorflow as tf

import tfk8s

SHAPES = {"flat": (8,), "steps": (6, 4), "image": (8, 8, 3), "video": (6, 6, 6, 2), "ids": (5,)}
SHAPES["video3"] = (2, 4, 4, 4, 2)  # with time
SAMPLES, BATCH, EPOCHS = 32, 16, 2
_PER_MODEL = 12

warnings.simplefilter("ignore")


class Cases:
    """Models of one Keras.

    Args:
        keras: the module: Keras 3, or tf_keras.
    """

    def __init__(self, keras: Any) -> None:
        self.keras = keras
        random = np.random.default_rng(0)
        self.inputs = {name: random.normal(size=(SAMPLES, *shape)).astype("float32") for name, shape in SHAPES.items()}
        self.inputs["ids"] = random.integers(0, 7, (SAMPLES, *SHAPES["ids"])).astype("int32")
        self.labels = random.normal(size=(SAMPLES, 1)).astype("float32")

    def fit(self, strategy: Any, names: list[str], weights: dict[str, Any]) -> dict[str, list[float] | str]:
        """Return each case's numbers, or the error of those that fail."""
        try:
            if names[0].startswith("optimizer "):
                return {names[0]: self._fit_optimizer(strategy, names[0], weights)}
            return self._fit_layers(strategy, names, weights)
        except Exception as error:
            if len(names) == 1:
                return {names[0]: f"{type(error).__name__}: {error}"}
            middle = len(names) // 2
            return {**self.fit(strategy, names[:middle], weights), **self.fit(strategy, names[middle:], weights)}

    def _fit_layers(self, strategy: Any, names: list[str], weights: dict[str, Any]) -> dict[str, list[float]]:
        """Train heads that share nothing but the loss, whose sum has the gradient of each."""
        layers = self.keras.layers
        self.keras.utils.set_random_seed(7)
        heads = {}
        with strategy.scope():
            sources = {kind: self.keras.Input(shape, dtype="int32" if kind == "ids" else "float32")
                       for kind, shape in SHAPES.items()}  # fmt: skip
            used, outputs = {}, []
            for index, name in enumerate(names):
                kind, make = table.layer(self.keras, name)
                used[kind] = value = sources[kind]
                head = []
                if not table.takes_data(name):
                    head.append(layers.Dense(SHAPES[kind][-1], name=f"first_{index}"))
                    value = head[0](value)
                head.append(make())
                value = table.call(name, head[-1], value)
                if "int" in str(value.dtype):  # Keras 2 has no tanh of integers
                    value = layers.Rescaling(1.0)(value)
                head.append(layers.Dense(1, name=f"head_{index}"))
                outputs.append(head[-1](layers.Activation("tanh")(layers.Flatten()(value))))
                heads[name] = head
            model = self.keras.Model(list(used.values()), outputs)
            for name, head in heads.items():
                for index, layer in enumerate(head):
                    _same(weights, f"{name} {index}", layer)
            model.compile(self.keras.optimizers.SGD(0.05), ["mse"] * len(names))
        data = [self.inputs[kind] for kind in used]
        history = model.fit(data, [self.labels] * len(names), BATCH, EPOCHS, shuffle=False, verbose=0).history
        keys = ["loss"] if len(names) == 1 else [f"head_{index}_loss" for index in range(len(names))]
        losses = dict(zip(names, map(history.get, keys), strict=True))
        return {name: [*map(float, losses[name]), *_sizes(head)] for name, head in heads.items()}

    def _fit_optimizer(self, strategy: Any, name: str, weights: dict[str, Any]) -> list[float]:
        layers = self.keras.layers
        self.keras.utils.set_random_seed(7)
        option = table.optimizer(self.keras, name)
        with strategy.scope():
            dense = [layers.Dense(4, "tanh", **option.layer), layers.Dense(1, **option.layer)]
            model = self.keras.Sequential([self.keras.Input(SHAPES["flat"]), *dense])
            _same(weights, name, model)
            model.compile(option.make(), "mse", **option.compiled)
        fit = model.fit(self.inputs["flat"], self.labels, BATCH, EPOCHS + 1, shuffle=False, verbose=0)
        return [*map(float, fit.history["loss"]), *_sizes(dense)]


def _same(weights: dict[str, Any], name: str, layer: Any) -> None:
    """Let a layer begin with the weights that the layer of this name had first."""
    first = weights.setdefault(name, layer.get_weights())
    layer.set_weights(first)


def _sizes(layers: list[Any]) -> list[float]:
    return [float(np.abs(weight.astype("float64")).sum()) for layer in layers for weight in layer.get_weights()]


def _grouped(names: list[str]) -> list[list[str]]:
    layers = [name for name in names if not name.startswith("optimizer ")]
    groups = [layers[index : index + _PER_MODEL] for index in range(0, len(layers), _PER_MODEL)]
    return groups + [[name] for name in names if name not in layers]


def main() -> None:
    library, *wanted = sys.argv[1:]
    keras = importlib.import_module(library)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    cases = Cases(keras)
    strategy, alone = tfk8s.strategy(), tf.distribute.get_strategy()
    mirrored = tf.distribute.MirroredStrategy(["/job:localhost/device:CPU:0", "/job:localhost/device:CPU:1"])
    selections = {"all": table.names, "sample": table.sample}
    selected = selections[wanted[0]](keras) if wanted[0] in selections else wanted
    names = [name for name in selected if wanted[0] not in selections or name not in wanted]
    print(
        json.dumps([keras.__version__, tf.__version__, Counter(name.split()[0] for name in table.names(keras))]),
        flush=True,
    )
    for group in _grouped(names):
        weights: dict[str, Any] = {}
        one = cases.fit(alone, group, weights)
        here = cases.fit(strategy, group, weights)
        hows = {name: table.outcome(name, one[name], here[name]).how for name in group}
        open_cases = [name for name, how in hows.items() if how in ("differs", "refused")]
        other = cases.fit(mirrored, open_cases, weights) if open_cases else {}
        for name in group:
            print(json.dumps([name, *table.outcome(name, one[name], here[name], other.get(name, ""))]), flush=True)
        keras.backend.clear_session()


if __name__ == "__main__":
    main()
