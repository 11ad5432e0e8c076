"""Several steps in one `session.run`: exact (`repeat`), or with an average at the end only (`local_sgd`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from tfk8s.training.parallel.averages import Weights, average_gradients, reduce_mean
from tfk8s.training.parallel.checks import check_tasks, invalid
from tfk8s.training.parallel.division import map_tasks
from tfk8s.training.parallel.packing import broadcast, read

Values = list[tf.Tensor]


def repeat(
    step_fn: Callable[[tf.Tensor, Values], tuple[Sequence[Any], Any]],
    values: Sequence[Any],
    steps: int,
    *,
    unroll: bool = False,
) -> tuple[Values, tf.Tensor]:
    """Run a step several times in one `session.run`, which saves the calls between.

    The step may use several tasks: a loop of TensorFlow can span machines (Yu et al., "Dynamic Control Flow in
    Large-Scale Machine Learning", section 4, https://arxiv.org/abs/1805.01772). In each step, the loop sends its
    condition and its counter to all tasks. Unrolled steps send nothing of their own, but each one adds to the graph.

    Args:
        step_fn: takes the number of the step, a scalar of int32 from 0, and the values. It returns the new values, with
            the same shapes and dtypes, and the cost of the step, a scalar.
        values: what a step changes: variables or tensors of any shapes and dtypes. The steps read variables once, at
            the beginning, and assign nothing.
        steps: the number of steps.
        unroll: whether the graph has each step, and no loop. The number of the step is a constant then. An operation
            that does not use the values, such as the next element of an iterator, does not wait for the step before.

    Returns:
        The values after the last step, and the costs in one tensor of float32 and of shape [steps].

    Raises:
        InvalidInput: there are no steps, or the step returns other values than it gets, or a cost that is no scalar.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise invalid("repeat", f"steps must be a number from 1, not {steps!r}")
    now = [read(value) for value in values]
    if not unroll:
        return _loop(step_fn, now, steps)
    costs = []
    for step in range(steps):
        now, cost = _checked_step(step_fn, tf.constant(step), now)
        costs.append(cost)
    return now, tf.stack(costs)


def _loop(step_fn: Callable[..., Any], start: Values, steps: int) -> tuple[Values, tf.Tensor]:
    def body(step: tf.Tensor, costs: tf.TensorArray, *now: tf.Tensor) -> tuple[Any, ...]:
        new, cost = _checked_step(step_fn, step, list(now))
        return (step + 1, costs.write(step, cost), *new)

    costs = tf.TensorArray(tf.float32, size=steps, element_shape=[])
    _, costs, *end = tf.while_loop(lambda step, *_: step < steps, body, [0, costs, *start], parallel_iterations=1)
    return end, costs.stack()


def _checked_step(step_fn: Callable[..., Any], step: tf.Tensor, now: Values) -> tuple[Values, tf.Tensor]:
    """Return the values after a step, and its cost as float32.

    Raises:
        InvalidInput: the values have other shapes or dtypes than before, or the cost is no scalar.
    """
    new, cost = step_fn(step, now)
    new = [tf.convert_to_tensor(value) for value in new]
    if [(value.dtype, value.shape) for value in new] != [(value.dtype, value.shape) for value in now]:
        raise invalid("repeat", "step_fn must return as many values as it gets, with their shapes and dtypes")
    cost = tf.cast(cost, tf.float32)
    if cost.shape.rank:  # None if it is unknown
        raise invalid("repeat", f"step_fn must return a scalar as the cost, not the shape {cost.shape}")
    return new, cost


def local_sgd(
    step_fn: Callable[[int, tf.Tensor, Values], tuple[Sequence[Any], Any]],
    values: Sequence[Any],
    tasks: Sequence[str],
    steps: int,
    weights: Weights | None = None,
) -> tuple[Values, tf.Tensor]:
    """Let each task make steps of its own, and average what the tasks have learned: one message each way for all steps.

    This is another algorithm than SGD with averaged gradients, and has other costs: between two averages, the tasks
    learn from their own examples only (Stich, "Local SGD Converges Fast and Communicates Little",
    https://arxiv.org/abs/1805.09767). With one step, and steps of plain SGD, both are the same.

    Args:
        step_fn: takes the index of the task, the number of the step, and the task's values, on the task. It returns the
            new values and the cost, as for `repeat`. It must use no other task.
        values: variables or tensors with known shapes, all of floating-point dtypes.
        tasks: the devices.
        steps: the number of steps of each task between two averages.
        weights: the number of examples of each task; by default, all tasks count the same.

    Returns:
        The mean of the tasks' values, on the current device, and the mean cost of each step, of shape [steps].

    Raises:
        InvalidInput: as `repeat`, `broadcast` and `average_gradients`.
    """

    def train(task: tuple[int, Values]) -> tuple[Values, tf.Tensor]:
        index, copies = task
        return repeat(lambda step, now: step_fn(index, step, now), copies, steps)

    check_tasks("local_sgd", tasks)
    ends, costs = zip(*map_tasks(train, list(enumerate(broadcast(values, tasks))), tasks), strict=True)
    return average_gradients(ends, weights), reduce_mean(costs, weights)
