"""Means over tasks, weighted by the sizes of their parts: on one task, or on each task without a ps."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from tfk8s.training.parallel.checks import check_number, check_tasks, invalid
from tfk8s.training.parallel.division import equal_sizes, map_tasks
from tfk8s.training.parallel.packing import Packing, on_device

Weights = Sequence[Any]
Sum = Callable[[Sequence[tf.Tensor], Sequence[str]], list[tf.Tensor]]


def reduce_mean(parts: Sequence[Any], weights: Weights | None = None) -> tf.Tensor:
    """Return the mean of tensors, on the current device.

    The mean of a batch is the mean of its parts' means, weighted by their sizes. A part of weight 0 does not count,
    even if its mean is NaN, as the mean of an empty part is.

    Args:
        parts: tensors of one shape and one dtype of floating-point or complex numbers.
        weights: a number or a scalar for each part, such as its size; by default, all parts count the same.

    Returns:
        A tensor of the same shape and dtype: sum(weight × part) / sum(weights), as `numpy.average` has it.

    Raises:
        InvalidInput: shapes, dtypes or weights don't fit.
    """
    tensors = [column[0] for column in _columns("reduce_mean", [[part] for part in parts])]
    return _mean(tensors, _scalars("reduce_mean", weights, len(tensors)))


def average_gradients(
    gradients: Sequence[Sequence[Any]], weights: Weights | None = None, *, variables: Sequence[Any] | None = None
) -> list[tf.Tensor]:
    """Return the mean of each gradient over the tasks. The gradients of a task travel in one message.

    This is the averaging of synchronous SGD (https://arxiv.org/abs/1604.00981, section 2): the weighted mean of the
    gradients of parts is the gradient of the whole batch's mean cost.

    Args:
        gradients: for each task, a gradient for each variable, as `tf.gradients` returns them on the task. Any known
            shapes, and any dtypes of floating-point numbers; `IndexedSlices` become dense.
        weights: the number of examples of each task; by default, all tasks count the same.
        variables: the variables, whose devices then average their gradients; by default, the current device does.

    Returns:
        A tensor for each variable, with its gradient's shape and dtype, on the device that averages.

    Raises:
        InvalidInput: a gradient is None, or shapes, dtypes or weights don't fit.
    """
    tasks = _columns("average_gradients", gradients)
    if variables is not None and len(variables) != len(tasks[0]):
        raise invalid("average_gradients", f"{len(variables)} variables have {len(tasks[0])} gradients")
    scalars = _scalars("average_gradients", weights, len(tasks))
    devices = [""] * len(tasks[0]) if variables is None else [variable.device for variable in variables]
    packing = Packing("average_gradients", tasks[0], devices)
    means = []
    for device, vectors in zip(packing.devices, zip(*map(packing.pack, tasks), strict=True), strict=True):
        with on_device(device):
            means.append(_mean(vectors, scalars))
    return packing.unpack(means, packing.devices)


def ring_mean(
    tensors: Sequence[Sequence[Any]], tasks: Sequence[str], weights: Weights | None = None
) -> list[list[tf.Tensor]]:
    """Return the mean over the tasks on each task, by messages in a ring. No task has more to do than another.

    Each of n tasks sends 2 (n - 1) messages, of 1/n of the bytes each: the least number of bytes for a mean on all
    tasks (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009,
    https://doi.org/10.1016/j.jpdc.2008.09.002).

    Args:
        tensors: for each task, its tensors, such as gradients. Any known shapes, and any dtypes of floats. Floats of
            16 bits travel as float32, so that their sums are exact enough and don't overflow.
        tasks: the devices.
        weights: the weight of each task; by default, all tasks count the same.

    Returns:
        For each task, the means, with the shapes and dtypes of the tensors. All tasks get the same bits.

    Raises:
        InvalidInput: shapes, dtypes or weights don't fit.
    """
    return _mean_on_each("ring_mean", _ring_sum, tensors, tasks, weights)


def tree_mean(
    tensors: Sequence[Sequence[Any]], tasks: Sequence[str], weights: Weights | None = None
) -> list[list[tf.Tensor]]:
    """Return the mean over the tasks on each task, by messages in binary trees. Each task is the root of one.

    A mean takes log2(n) messages one after another, up to two more if n is no power of two. A ring takes more, but each
    message of a tree has all bytes. So trees suit small tensors (Thakur, Rabenseifner and Gropp, "Optimization of
    Collective Communication Operations in MPICH", 2005, recursive doubling, https://doi.org/10.1177/1094342005051521).

    Args:
        tensors: as for `ring_mean`.
        tasks: as for `ring_mean`.
        weights: as for `ring_mean`.

    Returns:
        As `ring_mean`.

    Raises:
        InvalidInput: shapes, dtypes or weights don't fit.
    """
    return _mean_on_each("tree_mean", _tree_sum, tensors, tasks, weights)


def _mean_on_each(
    function: str, add: Sum, tensors: Sequence[Sequence[Any]], tasks: Sequence[str], weights: Weights | None
) -> list[list[tf.Tensor]]:
    check_tasks(function, tasks)
    check_number(function, "tensors", tensors, len(tasks))
    columns = _columns(function, tensors)
    scalars = _scalars(function, weights, len(tasks))
    packing = Packing(function, columns[0], [""] * len(columns[0]))
    vectors = []  # for each dtype, for each task: the weighted tensors, and the weight itself as the last element
    for parts in zip(*map(packing.pack, columns), strict=True):
        weighted = []
        for part, weight, task in zip(parts, scalars, tasks, strict=True):
            with tf.device(task):
                factor = tf.cast(weight, _sum_dtype(part))
                product = tf.math.multiply_no_nan(tf.cast(part, factor.dtype), factor)
                weighted.append(tf.concat([product, [factor]], axis=0))
        vectors.append(add(weighted, tasks))
    means = []
    for task, sums in zip(tasks, zip(*vectors, strict=True), strict=True):
        with tf.device(task):
            pairs = zip(sums, packing.dtypes, strict=True)
            means.append(packing.unpack([tf.cast(total[:-1] / total[-1], dtype) for total, dtype in pairs]))
    return means


def _ring_sum(vectors: Sequence[tf.Tensor], tasks: Sequence[str]) -> list[tf.Tensor]:
    """Return the sum on each task. Each task sends to the next one only."""
    count, length = len(tasks), int(vectors[0].shape[0])
    sizes = equal_sizes(length, count)
    chunks = []
    for vector, task in zip(vectors, tasks, strict=True):
        with tf.device(task):
            chunks.append(tf.split(vector, sizes))
    for turn in range(2 * (count - 1)):
        is_sum = turn < count - 1  # the first half sums each chunk on one task, the second half copies the sums
        sent = [chunks[i][(i - turn) % count] for i in range(count)]
        for i, task in enumerate(tasks):
            at = (i - 1 - turn) % count
            with tf.device(task):
                chunks[i][at] = chunks[i][at] + sent[i - 1] if is_sum else tf.identity(sent[i - 1])
    return map_tasks(lambda parts: tf.concat(parts, axis=0), chunks, tasks)


def _tree_sum(vectors: Sequence[tf.Tensor], tasks: Sequence[str]) -> list[tf.Tensor]:
    """Return the sum on each task: pairs of tasks exchange and add, then pairs of pairs, which is recursive doubling.

    Each task beyond the largest power of two adds to another task first, and gets the sum from this task at the end.
    """
    sums = list(vectors)
    count = 1 << (len(tasks).bit_length() - 1)
    for i in range(count, len(tasks)):
        with tf.device(tasks[i - count]):
            sums[i - count] = sums[i - count] + sums[i]
    for distance in (1 << level for level in range(count.bit_length() - 1)):
        pairs = [(sums[i], sums[i ^ distance]) for i in range(count)]
        sums[:count] = map_tasks(lambda pair: pair[0] + pair[1], pairs, tasks[:count])
    for i in range(count, len(tasks)):
        with tf.device(tasks[i]):
            sums[i] = tf.identity(sums[i - count])
    return sums


def _mean(parts: Sequence[tf.Tensor], weights: Sequence[tf.Tensor]) -> tf.Tensor:
    dtype = _sum_dtype(parts[0])
    scalars = [tf.cast(weight, dtype) for weight in weights]
    pairs = zip(parts, scalars, strict=True)
    weighted = [tf.math.multiply_no_nan(tf.cast(part, dtype), weight) for part, weight in pairs]
    return tf.cast(tf.add_n(weighted) / functools.reduce(operator.add, scalars), parts[0].dtype)


def _sum_dtype(part: tf.Tensor) -> tf.DType:
    """Return the dtype of weighted sums: weights overflow in float16, over 65504, and are rough in bfloat16."""
    return tf.float32 if part.dtype.size < tf.float32.size else part.dtype


def _columns(function: str, lists: Sequence[Sequence[Any]]) -> list[list[tf.Tensor]]:
    """Return the tensors of each task, dense.

    Raises:
        InvalidInput: the tasks have different tensors, one is None, or a dtype has no mean.
    """
    if not lists or not lists[0]:
        raise invalid(function, "there are no tensors to average")
    for task, tensors in enumerate(lists):
        for position, tensor in enumerate(tensors):
            if tensor is None:
                raise invalid(function, f"tensor {position} of task {task} is None: its cost does not use the variable")
    found = [[_dense(tensor) for tensor in tensors] for tensors in lists]
    for task, tensors in enumerate(found):
        if len(tensors) != len(found[0]) or not all(map(_are_alike, tensors, found[0])):
            raise invalid(function, f"the tensors of task {task} have other shapes or dtypes than those of task 0")
    for tensor in found[0]:
        if not (tensor.dtype.is_floating or tensor.dtype.is_complex):
            raise invalid(function, f"{tensor.dtype.name} has no mean: cast the tensors to floats")
    return found


def _dense(tensor: Any) -> tf.Tensor:
    """Return a tensor, which `IndexedSlices` become on their own device."""
    with on_device(tensor.device if isinstance(tensor, tf.IndexedSlices) else ""):
        return tf.convert_to_tensor(tensor)


def _are_alike(tensor: tf.Tensor, other: tf.Tensor) -> bool:
    return tensor.dtype == other.dtype and bool(tensor.shape.is_compatible_with(other.shape))


def _scalars(function: str, weights: Weights | None, count: int) -> list[tf.Tensor]:
    if weights is None:
        return [tf.constant(1.0)] * count
    check_number(function, "weights", weights, count)
    scalars = [tf.convert_to_tensor(weight) for weight in weights]
    for position, scalar in enumerate(scalars):
        if scalar.shape.rank:  # None if it is unknown
            raise invalid(function, f"weights must be scalars, but weight {position} has the shape {scalar.shape}")
    return scalars
