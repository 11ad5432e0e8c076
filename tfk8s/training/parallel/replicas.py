"""One model on each task, with shared variables: `replicate`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import tensorflow.compat.v1 as tf

from tfk8s.errors import InvalidInput, quoted
from tfk8s.training.parallel.checks import check_device, check_tasks, invalid

T = TypeVar("T")
_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_SPREADS = ("size", "round robin")


def replicate(
    model_fn: Callable[[int], T],
    tasks: Sequence[str],
    variables_on: str | Sequence[str],
    spread: Literal["size", "round robin"] = "size",
) -> list[T]:
    """Build a model once for each task. All replicas have the same variables.

    This is in-graph replication with the variables on parameter servers (Abadi et al., "TensorFlow: Large-Scale Machine
    Learning on Heterogeneous Distributed Systems", section 7, https://arxiv.org/abs/1603.04467). The first call of
    `model_fn` creates the variables. Later calls get the same ones: from `tf.get_variable` by their names, and from
    `tf.Variable` and layers by their order.

    Args:
        model_fn: takes the index of a task, adds the model to the graph, and returns anything, such as the cost.
        tasks: the devices that compute.
        variables_on: the device of all variables, or a list of devices, such as those of ps.
        spread: the rule for several devices. "size" puts each variable on the device with the fewest bytes so far, as
            the greedy strategy of TensorFlow 1's `tf.contrib.training`. "round robin" takes one device after another,
            as `tf.train.replica_device_setter` does.

    Returns:
        What the model function returned for each task.

    Raises:
        InvalidInput: a device or the rule is unknown, or the function creates other variables on another task.
    """
    check_tasks("replicate", tasks)
    places = [variables_on] if isinstance(variables_on, str) else list(variables_on)
    if not places:
        raise invalid("replicate", "variables_on must be a device, or a list of devices that is not empty")
    for place in places:
        check_device("replicate", place)
    if spread not in _SPREADS:
        raise invalid("replicate", f"spread must be one of {', '.join(map(quoted, _SPREADS))}, not {spread!r}")
    placement, shared, results = _Placement(places, spread), _SharedVariables(), []
    for index, task in enumerate(tasks):
        with tf.device(placement.on(task)), shared.of(task):
            results.append(model_fn(index))
    return results


class _Placement:
    """Device functions of TensorFlow that put variables on their devices, and all else on a task."""

    def __init__(self, places: Sequence[str], spread: str) -> None:
        self._loads = dict.fromkeys(places, 0)
        self._counts_bytes = spread == "size"

    def on(self, task: str) -> Callable[[tf.Operation], str]:
        def device(operation: tf.Operation) -> str:
            place = self._next_place(operation) if operation.type in _VARIABLES else task
            merged = tf.DeviceSpec.from_string(place).make_merged_spec(tf.DeviceSpec.from_string(operation.device))
            return str(merged.to_string())

        return device

    def _next_place(self, variable: tf.Operation) -> str:
        place = min(self._loads, key=self._loads.__getitem__)
        size = tf.TensorShape(variable.get_attr("shape")).num_elements() or 0
        self._loads[place] += size * variable.get_attr("dtype").size if self._counts_bytes else 1
        return place


class _SharedVariables:
    """Scopes in which the first task creates variables, and the others get the same ones."""

    def __init__(self) -> None:
        self._created: list[Any] | None = None  # by `tf.Variable`, on the first task

    @contextlib.contextmanager
    def of(self, task: str) -> Iterator[None]:
        """Return the scope of a task."""
        is_first, created = self._created is None, self._created or []
        rest = iter(created)
        by_name = False  # whether tf.get_variable creates a variable, which TensorFlow shares itself

        def get(getter: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            nonlocal by_name
            by_name = True
            try:
                return getter(*arguments, **options)
            finally:
                by_name = False

        def create(creator: Callable[..., Any], **options: Any) -> Any:
            if by_name:
                return creator(**options)
            if is_first:
                created.append(creator(**options))
                return created[-1]
            found = next(rest, None)
            if found is None or not _is_like(found, options):
                raise _other_variables(task)
            return found

        scope = tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE, custom_getter=get)
        with scope, tf.variable_creator_scope(create):
            yield
        if not is_first and next(rest, None) is not None:
            raise _other_variables(task)
        self._created = created


def _is_like(variable: Any, options: dict[str, Any]) -> bool:
    """Return whether a variable is as options describe: in shape and dtype, as far as the options tell."""
    initial, shape, dtype = (options.get(name) for name in ("initial_value", "shape", "dtype"))
    if not hasattr(initial, "shape") and _is_plain(initial):
        with tf.Graph().as_default():  # thrown away: the model's graph gets no constant that nobody uses
            initial = tf.convert_to_tensor(initial, dtype)
    shape = getattr(initial, "shape", None) if shape is None else shape
    dtype = getattr(initial, "dtype", None) if dtype is None else dtype
    is_dtype = dtype is None or tf.as_dtype(dtype).base_dtype == variable.dtype.base_dtype
    return is_dtype and (shape is None or bool(variable.shape.is_compatible_with(shape)))


def _is_plain(initial: Any) -> bool:
    """Return whether an initial value is a number, or a list of numbers."""
    return not (initial is None or callable(initial) or any(map(tf.is_tensor, tf.nest.flatten(initial))))


def _other_variables(task: str) -> InvalidInput:
    return invalid("replicate", f"model_fn must create the same variables on each task, but {quoted(task)} differs")
