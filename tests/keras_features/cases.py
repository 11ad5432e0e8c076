"""The cases: every layer and every optimizer of a Keras, with their options. Imports no Keras itself."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# Names of `layers` and `optimizers` that are no case, with the reason.
NO_CASE = {
    **dict.fromkeys(("Layer", "Wrapper", "InputLayer", "AbstractRNNCell", "Optimizer"), "trains nothing"),
    **dict.fromkeys(("FlaxLayer", "JaxLayer", "TorchModuleWrapper"), "belongs to another back end"),
    **dict.fromkeys(("StringLookup", "TextVectorization", "HashedCrossing"), "takes strings; use `Dataset.map`"),
    **dict.fromkeys(("Pipeline", "MaxNumBoundingBoxes", "TFSMLayer", "DenseFeatures"), "wraps other layers or files"),
    **dict.fromkeys(("RandomHeight", "RandomWidth"), "has outputs of changing size, which no Dense can follow"),
    "LossScaleOptimizer": "an option of the others",
    "MultiOptimizer": "applies the others to parts of the variables",
}
_RANDOM = ("Random", "Dropout", "GaussianNoise", "AugMix", "MixUp", "CutMix", "RandAugment")
REASONS = {
    "random": "draws random numbers on each replica",
    "batch": "uses statistics of a replica's part of the batch",
}
_MERGE = ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract", "Dot",
          "Attention", "AdditiveAttention")  # fmt: skip
_IMAGES = ("Random", "RandAugment", "AugMix", "AutoContrast", "CutMix", "MixUp", "Equalization", "CenterCrop",
           "Resizing", "Solarization", "ContrastLimited")  # fmt: skip
_TWICE = ("MultiHeadAttention", "GroupQueryAttention")
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Activation": {"activation": "tanh"}, "ActivityRegularization": {"l2": 0.01}, "CategoryEncoding": {"num_tokens": 7},
    "CenterCrop": {"height": 4, "width": 4}, "Discretization": {"bin_boundaries": [0.0, 1.0]}, "Dense": {"units": 3},
    "Dropout": {"rate": 0.3}, "AlphaDropout": {"rate": 0.3}, "GaussianDropout": {"rate": 0.3}, "Dot": {"axes": 1},
    "GaussianNoise": {"stddev": 0.3}, "Embedding": {"input_dim": 7, "output_dim": 3}, "Hashing": {"num_bins": 4},
    "ReversibleEmbedding": {"input_dim": 7, "output_dim": 3}, "IntegerLookup": {"vocabulary": [1, 2, 3, 4]},
    "EinsumDense": {"equation": "ab,bc->ac", "output_shape": 3}, "GroupNormalization": {"groups": 2},
    "GroupQueryAttention": {"head_dim": 2, "num_query_heads": 2, "num_key_value_heads": 1},
    "MultiHeadAttention": {"num_heads": 2, "key_dim": 2}, "Permute": {"dims": (2, 1)}, "RepeatVector": {"n": 3},
    "Rescaling": {"scale": 0.5}, "Reshape": {"target_shape": (4, 2)}, "Resizing": {"height": 4, "width": 4},
    "Normalization": {"mean": 0.5, "variance": 2.0}, "RandomCrop": {"height": 4, "width": 4},
    "MelSpectrogram": {"num_mel_bins": 2, "fft_length": 4, "sequence_stride": 2, "sampling_rate": 8, "max_freq": 4,
                       "min_freq": 1},
    "STFTSpectrogram": {"frame_length": 4, "frame_step": 2, "fft_length": 4},
    **{f"AdaptiveAveragePooling{n}D": {"output_size": 2} for n in (1, 2, 3)},
    **{f"AdaptiveMaxPooling{n}D": {"output_size": 2} for n in (1, 2, 3)},
    **{f"Random{name}": {"factor": 0.2} for name in
       ("Brightness", "Contrast", "Rotation", "Zoom", "Height", "Width", "Saturation", "Sharpness", "Hue", "Invert",
        "Grayscale", "Posterization", "ColorDegeneration", "Perspective", "Erasing")},
    "RandomTranslation": {"height_factor": 0.2, "width_factor": 0.2}, "RandomZoom": {"height_factor": 0.2},
    "RandomShear": {"x_factor": 0.2, "y_factor": 0.2}, "RandomPosterization": {"factor": 4},
    "Solarization": {}, "RandomGaussianBlur": {"kernel_size": 3, "sigma": 0.5},
}  # fmt: skip


@dataclass
class Option:
    """An option of optimizers: where its values go."""

    optimizer: dict[str, Any] = field(default_factory=dict)
    compiled: dict[str, Any] = field(default_factory=dict)
    layer: dict[str, Any] = field(default_factory=dict)
    is_scaled: bool = False
    make: Callable[[], Any] = lambda: None


OPTIONS = {
    "": Option(),
    "clipnorm": Option({"clipnorm": 0.1}),
    "global_clipnorm": Option({"global_clipnorm": 0.1}),
    "clipvalue": Option({"clipvalue": 0.01}),
    "weight_decay": Option({"weight_decay": 0.01}),
    "use_ema": Option({"use_ema": True, "ema_momentum": 0.5}),
    "ema_overwrite_frequency": Option({"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2}),
    "loss_scale_factor": Option({"loss_scale_factor": 8.0}),
    "gradient_accumulation_steps": Option({"gradient_accumulation_steps": 2}),
    "LossScaleOptimizer": Option(is_scaled=True),
    "mixed_float16": Option(layer={"dtype": "mixed_float16"}, is_scaled=True),
    "kernel_constraint": Option(layer={"kernel_constraint": "unit_norm"}),
    "steps_per_execution": Option(compiled={"steps_per_execution": 2}),
    "run_eagerly": Option(compiled={"run_eagerly": True}),
    "jit_compile": Option(compiled={"jit_compile": True}),
    "LearningRateSchedule": Option({"learning_rate": None}),
}
_FIRST = ("Adam", "SGD")  # with all options, before the others
_SAMPLE = {*OPTIONS} - {"", "clipnorm", "clipvalue", "run_eagerly", "LearningRateSchedule", "steps_per_execution"}
LEGACY_LACKS = ("loss_scale_factor", "gradient_accumulation_steps")


def names(keras: Any) -> list[str]:
    """Return the names of all cases; first each layer, then each optimizer and each option, then the other pairs."""
    layers = [f"layer {name}" for name in _classes(keras.layers, keras.layers.Layer)]
    constrained = [f"constraint {name}" for name in _classes(keras.constraints, keras.constraints.Constraint)]
    regularized = [f"regularizer {name}" for name in _classes(keras.regularizers, keras.regularizers.Regularizer)]
    options = [option for option in OPTIONS if keras.__version__[0] == "3" or option not in LEGACY_LACKS]
    optimizers = [
        (number, (index + number) % len(options) if name not in _FIRST else 0, f"optimizer {name} {option}".rstrip())
        for index, name in enumerate(_classes(keras.optimizers, keras.optimizers.Optimizer))
        for number, option in enumerate(options)
    ]
    ordered = sorted(optimizers, key=lambda case: case[:2] if case[0] == 0 else (1, case[1]))
    return [*layers, *constrained, *regularized, *(name for *_, name in ordered)]


def sample(keras: Any) -> list[str]:
    """Return few cases: layers that assign to variables or draw numbers, and most options, each with an optimizer."""
    chosen = ("BatchNormalization", "Dropout", "Embedding", "LSTM", "SpectralNormalization")
    layers = [f"layer {name}" for name in chosen]
    every = [name.split() for name in names(keras) if name.startswith("optimizer ")]
    optimizers = list(dict.fromkeys(name for _, name, *_ in every))
    options = dict.fromkeys(option for _, _, *rest in every for option in (rest or [""]))
    pairs = [(optimizers[index % len(optimizers)], option) for index, option in enumerate(options)]
    optimizing = [f"optimizer {name} {option}" for name, option in pairs if option in _SAMPLE]
    return [*layers, "constraint MaxNorm", *optimizing]


def _classes(module: Any, base: type) -> list[str]:
    found = {
        value.__name__
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, base) and value is not base and value.__name__ not in NO_CASE
    }
    return sorted(name for name in found if hasattr(module, name))


def layer(keras: Any, case: str) -> tuple[str, Callable[[], Any]]:
    """Return the input that a layer takes, and a function that makes the layer."""
    kind, name = case.split()
    layers = keras.layers
    if kind != "layer":
        value = getattr(getattr(keras, f"{kind}s"), name)(**({"factor": 0.01} if name.startswith("Orth") else {}))
        return "flat", functools.partial(layers.Dense, 3, **{f"kernel_{kind}": value})
    make = functools.partial(getattr(layers, name), **_arguments(layers, name))
    if name.endswith("Cell") or name == "StackedRNNCells":
        return "steps", lambda: layers.RNN(make())
    return _input(name), make


def _arguments(layers: Any, name: str) -> dict[str, Any]:
    if name in ARGUMENTS:
        return ARGUMENTS[name]
    special = {
        "Bidirectional": lambda: {"layer": layers.LSTM(3)},
        "Lambda": lambda: {"function": lambda value: value * 2},
        "RNN": lambda: {"cell": layers.SimpleRNNCell(3)},
        "SpectralNormalization": lambda: {"layer": layers.Dense(3)},
        "StackedRNNCells": lambda: {"cells": [layers.GRUCell(3), layers.LSTMCell(3)]},
        "TimeDistributed": lambda: {"layer": layers.Dense(3)},
    }
    if name in special:
        return special[name]()
    if name.startswith("Depthwise"):
        return {"kernel_size": 2}
    if name.startswith(("Conv", "Separable", "LocallyConnected")):
        return {"filters": 3, "kernel_size": 2}
    if name.startswith(("AveragePooling", "MaxPooling")):
        return {"pool_size": 2}
    if name.startswith("SpatialDropout"):
        return {"rate": 0.3}
    return {"units": 3} if name.startswith(("GRU", "LSTM", "SimpleRNN")) else {}


def _input(name: str) -> str:
    if name.startswith("ConvLSTM"):
        return {"1": "image", "2": "video"}.get(name[-2], "video3")
    for digit, kind in (("1D", "steps"), ("2D", "image"), ("3D", "video")):
        if name.endswith((digit, f"{digit}Transpose")):
            return kind
    if name in ("Embedding", "ReversibleEmbedding", "CategoryEncoding", "IntegerLookup", "Hashing"):
        return "ids"
    if name in ("GRU", "LSTM", "SimpleRNN", "RNN", "Bidirectional", "TimeDistributed", "Masking", "Permute",
                "Attention", "AdditiveAttention", *_TWICE):  # fmt: skip
        return "steps"
    return "image" if name.startswith(_IMAGES) else "flat"


def takes_data(case: str) -> bool:
    """Return whether a layer stands at the beginning of a model, and not after a layer that learns."""
    kind, name = case.split()
    return kind == "layer" and (name.startswith(_IMAGES) or _input(name) == "ids")


def call(case: str, made: Any, value: Any) -> Any:
    """Return a layer's output."""
    name = case.split()[1]
    if name in _MERGE:
        return made([value, value])
    return made(value, value) if name in _TWICE else made(value)


def optimizer(keras: Any, case: str) -> Option:
    """Return an option of an optimizer, with the function that makes the optimizer."""
    _, name, *rest = case.split()
    option = OPTIONS[rest[0] if rest else ""]
    optimizers = keras.optimizers
    arguments = {"learning_rate": 0.05, **option.optimizer}
    if arguments["learning_rate"] is None:
        arguments["learning_rate"] = optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
    scaled = getattr(keras.mixed_precision, "LossScaleOptimizer", None) or optimizers.LossScaleOptimizer

    def make() -> Any:
        made = getattr(optimizers, name)(**arguments)
        return scaled(made) if option.is_scaled else made

    return Option(arguments, option.compiled, option.layer, option.is_scaled, make)


def reason(case: str) -> str:
    """Return why a case can't equal one process in all digits; "" if it can."""
    name = case.split()[1]
    if any(word in name for word in _RANDOM):
        return REASONS["random"]
    return REASONS["batch"] if name == "BatchNormalization" else ""


# Options with which ScheduleFreeAdamW gives neither the numbers of one process nor those of MirroredStrategy. With the
# others it gives one of both; but jit_compile is refused.
_UNLIKE_EACH = (
    "clipnorm", "global_clipnorm", "clipvalue", "ema_overwrite_frequency", "gradient_accumulation_steps",
    "steps_per_execution",
)  # fmt: skip
# Cases that may work under MirroredStrategy alone; else a difference is a defect.
_KNOWN = {
    "keras": (
        "layer AugMix",  # draws with Python's `random`, and so gives the replicas different graphs
        *(f"ScheduleFreeAdamW {option}" for option in _UNLIKE_EACH),
    ),
    "tf_keras": ("LossScaleOptimizer", "mixed_float16"),  # has a list of strategies, and refuses others with a reason
}


def unknown(library: str, names: list[str]) -> list[str]:
    """Return the cases that no known reason explains."""
    return [name for name in names if not any(known in name for known in _KNOWN[library])]


# ---- the comparison ------------------------------------------------------------------------------------------------

Numbers = list[float] | str  # the losses and weights of a case, or the error


class Outcome(NamedTuple):
    """The result of a comparison.

    Attributes:
        how: "exact" (as in one process), "mirrored" (as under MirroredStrategy), "near" (another number, for a known
            reason), "refused", "fails" (in one process as well), or "differs".
        detail: the reason, or the error.
    """

    how: str
    detail: str = ""


def outcome(case: str, one: Numbers, here: Numbers, mirrored: Numbers = "") -> Outcome:
    """Compare a case's numbers, each of which is the error if the case failed."""
    if isinstance(one, str):
        return Outcome("fails", _short(one))
    if isinstance(here, str):
        return Outcome("refused" if isinstance(mirrored, str) else "differs", _short(here))
    rough = 2e-2 if "float16" in case else 1e-3
    if _close(one, here, rough):
        return Outcome("exact")
    if reason(case):
        return Outcome("near", reason(case))
    is_mirrored = not isinstance(mirrored, str) and _close(mirrored, here, rough)
    return Outcome("mirrored") if is_mirrored else Outcome("differs", f"{here[:3]} instead of {one[:3]}")


def _close(a: list[float], b: list[float], rough: float) -> bool:
    return len(a) == len(b) and all(math.isclose(x, y, rel_tol=rough, abs_tol=1e-4) for x, y in zip(a, b, strict=True))


def _short(text: str) -> str:
    """Return the last error in a message; Keras 2 and TensorFlow put stacks before it."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    last = re.findall(r"^\s*((?:[\w.]+Error|InvalidInput): .*)", text, re.MULTILINE)
    plain = " ".join((last[-1] if last and 'File "' in text else text).split())
    return plain if len(plain) <= 160 else f"{plain[:160]}…"
