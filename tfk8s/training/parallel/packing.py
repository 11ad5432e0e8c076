"""Many tensors as one, so that they travel in one message.

A message costs a small tensor more than its bytes do. Horovod calls this tensor fusion
(https://arxiv.org/abs/1802.05799, section 3).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from tfk8s.training.parallel.checks import check_tasks, invalid


class Packing:
    """A rule that packs tensors into vectors: one for each device and dtype.

    Args:
        function: the public function, for messages.
        tensors: tensors with the shapes and dtypes that all others have.
        devices: the device of each tensor's vector, or "" for the current device.

    Attributes:
        devices: the device of each vector.
        dtypes: the dtype of each vector.

    Raises:
        InvalidInput: there are no tensors, or a shape is unknown.
    """

    def __init__(self, function: str, tensors: Sequence[tf.Tensor], devices: Sequence[str]) -> None:
        if not tensors:
            raise invalid(function, "there are no tensors to send")
        self._shapes = [_static_shape(function, tensor) for tensor in tensors]
        positions: dict[tuple[str, Any], list[int]] = {}
        for position, (tensor, device) in enumerate(zip(tensors, devices, strict=True)):
            positions.setdefault((device, tensor.dtype.base_dtype), []).append(position)
        self._positions = list(positions.values())
        self.devices = [device for device, _ in positions]
        self.dtypes = [dtype for _, dtype in positions]

    def pack(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return the vectors, each made on the device of its first tensor."""
        vectors = []
        for positions in self._positions:
            with on_device(tensors[positions[0]].device):
                vectors.append(tf.concat([tf.reshape(tensors[i], [-1]) for i in positions], axis=0))
        return vectors

    def unpack(self, vectors: Sequence[tf.Tensor], devices: Sequence[str] | None = None) -> list[tf.Tensor]:
        """Return the tensors of the vectors, made on a device for each vector, or on the current device."""
        tensors: dict[int, tf.Tensor] = {}
        for vector, positions, device in zip(vectors, self._positions, devices or [""] * len(vectors), strict=True):
            with on_device(device):
                parts = tf.split(vector, [math.prod(self._shapes[i]) for i in positions])
                tensors |= {i: tf.reshape(part, self._shapes[i]) for i, part in zip(positions, parts, strict=True)}
        return [tensors[i] for i in range(len(tensors))]


def broadcast(tensors: Sequence[Any], tasks: Sequence[str]) -> list[list[tf.Tensor]]:
    """Send tensors to each task in one message.

    Tensors on several devices, or with several dtypes, are one message for each device and dtype. Variables are read at
    each call, so a step in a loop gets what the step before has assigned.

    Args:
        tensors: variables or tensors with known shapes, of any dtypes.
        tasks: the devices.

    Returns:
        For each task, the tensors in their order, with their shapes and dtypes. `tf.gradients` of a cost with respect
        to them returns the gradients that `average_gradients` takes.

    Raises:
        InvalidInput: there are no tensors, or a shape is unknown.
    """
    check_tasks("broadcast", tasks)
    values = [read(tensor) for tensor in tensors]
    packing = Packing("broadcast", values, [value.device for value in values])
    vectors = packing.pack(values)
    copies = []
    for task in tasks:
        with tf.device(task):
            copies.append(packing.unpack(vectors))
    return copies


def read(tensor: Any) -> tf.Tensor:
    """Return a tensor, or the value that a variable has when the operation runs, on the variable's device."""
    if not hasattr(tensor, "read_value"):
        return tf.convert_to_tensor(tensor)
    with on_device(tensor.device):
        return tf.identity(tensor.read_value())


def on_device(device: str) -> contextlib.AbstractContextManager[Any]:
    """Return the scope of a device; "" is the current one."""
    return tf.device(device) if device else contextlib.nullcontext()


def _static_shape(function: str, tensor: tf.Tensor) -> list[int]:
    if not tensor.shape.is_fully_defined():
        raise invalid(function, f"the shape of {tensor.name} must be known before the graph runs, not {tensor.shape}")
    return [int(size) for size in tensor.shape]
