"""Work and input for each task: `split`, `map_tasks` and `inputs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow.compat.v1 as tf

from tfk8s.training.parallel.checks import check_number, check_tasks, invalid

T = TypeVar("T")


def split(x: Any, tasks: Sequence[str], sizes: Sequence[int] | None = None) -> list[tf.Tensor]:
    """Divide a tensor along its first axis, one part for each task.

    Each part lies on its task: operations of the task that use the part share one transfer. This is the scatter of MPI
    (MPI_Scatterv in the MPI standard 4.1, section 6.6).

    Args:
        x: a tensor of shape [n, …], or an array. n may be unknown until the graph runs, and need not be divisible.
        tasks: the devices.
        sizes: the number of rows of each part, whose sum is n. By default, the parts are as equal as possible: the
            first n % len(tasks) parts have one row more.

    Returns:
        A tensor of shape [size, …] and the dtype of `x` for each task. A part may be empty.

    Raises:
        InvalidInput: `x` is a scalar, or the sizes don't fit.
    """
    check_tasks("split", tasks)
    x = tf.convert_to_tensor(x)
    if x.shape.rank == 0:
        raise invalid("split", "a scalar can't be split: x needs a first axis")
    rows = tf.dimension_value(x.shape[0]) if x.shape.rank else None
    if sizes is not None:
        check_number("split", "sizes", sizes, len(tasks))
        if rows is not None and sum(sizes) != rows:
            raise invalid("split", f"the sum of sizes is {sum(sizes)}, but x has {rows} rows")
    parts = tf.split(x, _sizes(x, rows, len(tasks)) if sizes is None else list(sizes), num=len(tasks))
    return map_tasks(tf.identity, parts, tasks)


def _sizes(x: tf.Tensor, rows: int | None, count: int) -> Any:
    if rows is not None:
        return equal_sizes(rows, count)
    number = tf.shape(x)[0]
    return number // count + tf.cast(tf.range(count) < number % count, tf.int32)


def equal_sizes(number: int, count: int) -> list[int]:
    """Return the sizes of `count` parts of a number, as equal as possible. The first parts have one more."""
    return [number // count + (i < number % count) for i in range(count)]


def map_tasks(function: Callable[[Any], T], xs: Sequence[Any], tasks: Sequence[str]) -> list[T]:
    """Call a function for each task, so that its operations run there. The tasks run them at the same time.

    Args:
        function: takes an element of `xs` and returns anything, such as a tensor or a tuple of tensors.
        xs: one element for each task, such as the parts that `split` returns.
        tasks: the devices.

    Returns:
        What the function returned for each task.

    Raises:
        InvalidInput: `xs` has not one element for each task.
    """
    check_tasks("map_tasks", tasks)
    check_number("map_tasks", "xs", xs, len(tasks))
    results = []
    for x, task in zip(xs, tasks, strict=True):
        with tf.device(task):
            results.append(function(x))
    return results


def inputs(dataset_fn: Callable[[int], tf.compat.v2.data.Dataset], tasks: Sequence[str]) -> list[tf.data.Iterator]:
    """Make each task read its own input, so that no batch travels.

    Use `iterator.get_next()` on the task: `map_tasks(lambda iterator: cost(iterator.get_next()), iterators, tasks)`.
    `tf.tables_initializer()` starts all iterators at their first elements, and `MonitoredSession` runs that by itself
    (https://www.tensorflow.org/api_docs/python/tf/compat/v1/data/make_initializable_iterator).

    Args:
        dataset_fn: takes the index of a task, and returns its `tf.data.Dataset`, of any shapes and dtypes. For a global
            batch of n rows, the batches of all tasks have n rows together.
        tasks: the devices. The CPU of a GPU's task reads the input, because tf.data has no operations for GPUs.

    Returns:
        The iterator of each task.

    Raises:
        InvalidInput: the function returns anything else.
    """

    def iterator(index: int) -> tf.data.Iterator:
        dataset = dataset_fn(index)
        if not isinstance(dataset, tf.compat.v2.data.Dataset):  # the base class of TensorFlow 1's
            raise invalid("inputs", f"dataset_fn must return a tf.data.Dataset, not {dataset!r}")
        made = tf.data.make_initializable_iterator(dataset)
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, made.initializer)
        return made

    check_tasks("inputs", tasks)
    return map_tasks(iterator, range(len(tasks)), [_cpu(task) for task in tasks])


def _cpu(task: str) -> str:
    device = tf.DeviceSpec.from_string(task)
    if device.device_type in (None, "CPU"):
        return task
    return str(device.replace(device_type="CPU", device_index=0).to_string())
