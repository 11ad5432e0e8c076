"""`tfk8s.parallel`, compared with NumPy and with one process: three devices of this process stand for three tasks.

The tests of the ladder's examples run the same functions on servers, with TensorFlow 1's behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tfk8s import parallel
from tfk8s.errors import InvalidInput

TASKS = ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"]
RATE = 0.1
X = np.random.RandomState(0).normal(size=[10, 3])
Y = X @ [[1.0], [-2.0], [3.0]] + 0.5
VALUES = [np.full([3, 1], 0.1), np.array(0.2)]
SIZES = [4, 3, 3]


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


def run(fetches: Any, feed: dict[Any, Any] | None = None) -> Any:
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 7})) as session:
        session.run([tf.global_variables_initializer(), tf.tables_initializer()])
        return session.run(fetches, feed)


def linear_cost(values: Any, x: Any, y: Any) -> tf.Tensor:
    return tf.reduce_mean(tf.square(tf.matmul(x, values[0]) + values[1] - y))


def numpy_step(values: list[Any], x: Any, y: Any) -> tuple[list[Any], float]:
    """Return the values after a step of SGD, and the cost before."""
    error = x @ values[0] + values[1] - y
    gradients = [2 * x.T @ error / len(x), 2 * error.mean()]
    return [value - RATE * gradient for value, gradient in zip(values, gradients, strict=True)], np.mean(error**2)


def variables() -> list[Any]:
    return [tf.get_variable(f"v{i}", dtype=tf.float64, initializer=value) for i, value in enumerate(VALUES)]


def parts() -> list[tuple[tf.Tensor, tf.Tensor]]:
    return list(zip(parallel.split(X, TASKS), parallel.split(Y, TASKS), strict=True))


def synchronous_step(_: Any, values: list[Any]) -> tuple[list[Any], tf.Tensor]:
    def on_task(work: Any) -> Any:
        copies, (x, y) = work
        cost = linear_cost(copies, x, y)
        return cost, tf.gradients(cost, copies)

    work = list(zip(parallel.broadcast(values, TASKS), parts(), strict=True))
    costs, gradients = zip(*parallel.map_tasks(on_task, work, TASKS), strict=True)
    means = parallel.average_gradients(gradients, SIZES)
    new = [value - RATE * mean for value, mean in zip(values, means, strict=True)]
    return new, parallel.reduce_mean(costs, SIZES)


@pytest.mark.parametrize("sizes", [None, [1, 9, 0]])
@pytest.mark.parametrize("rows", [None, 10])
def test_parts_are_those_of_numpy(rows: int | None, sizes: list[int] | None) -> None:
    x = tf.placeholder(tf.float64, [rows, 3])
    found = parallel.split(x, TASKS, sizes)
    assert [part.device for part in found] == TASKS
    expected = np.array_split(X, 3) if sizes is None else np.split(X, np.cumsum(sizes)[:-1])
    for part, same in zip(run(found, {x: X}), expected, strict=True):
        np.testing.assert_array_equal(part, same)


def test_the_mean_of_uneven_parts_is_that_of_the_whole() -> None:
    split = parallel.split(X[:2], TASKS)  # the last part is empty, and its mean is NaN
    means = parallel.map_tasks(lambda part: tf.reduce_mean(part, axis=0), split, TASKS)
    weights = [tf.shape(part)[0] for part in split]
    np.testing.assert_allclose(run(parallel.reduce_mean(means, weights)), X[:2].mean(axis=0))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_mean_of_16_bit_floats_is_exact(dtype: str) -> None:
    tensors = [tf.constant([value], dtype) for value in (9.0, 4.0, 1.0)]
    weights = [100_001, 100_001, 200_002]  # too large for float16, and with too many digits for bfloat16
    (gradients,) = parallel.average_gradients([[tensor] for tensor in tensors], weights)
    found = [parallel.reduce_mean(tensors, weights), gradients]
    assert [tensor.dtype.name for tensor in found] == [dtype] * 2
    assert run(found) == [[3.75], [3.75]]


@pytest.mark.parametrize("mean", [parallel.ring_mean, parallel.tree_mean])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_all_tasks_get_the_same_mean(mean: Callable[..., Any], count: int) -> None:
    tasks = [f"/device:CPU:{i}" for i in range(count)]
    random = np.random.RandomState(1)
    shapes = [((2, 3), "float32"), ((), "float32"), ((7,), "float64"), ((4,), "float16")]
    tensors = [[random.normal(size=shape).astype(dtype) for shape, dtype in shapes] for _ in tasks]
    weights = [100_000 * (1 + i) for i in range(count)]  # larger than any float16
    found = mean(tensors, tasks, weights)
    assert [{tensor.device for tensor in some} for some in found] == [{task} for task in tasks]
    results = run(found)
    for i, (_, dtype) in enumerate(shapes):
        same = np.average([some[i] for some in tensors], axis=0, weights=weights)
        for result in results:
            assert result[i].dtype == dtype
            np.testing.assert_allclose(result[i], same, rtol=1e-3 if dtype == "float16" else 1e-5)
            np.testing.assert_array_equal(result[i], results[0][i])


@pytest.mark.parametrize(("count", "messages"), [(2, 1), (4, 2), (5, 3), (7, 4), (8, 3)])
def test_a_tree_has_few_messages_one_after_another(count: int, messages: int) -> None:
    tasks = [f"/device:CPU:{i}" for i in range(count)]
    parts = parallel.map_tasks(lambda value: [tf.constant(value)], [*map(float, range(count))], tasks)
    assert max(depth(mean.op) for (mean,) in parallel.tree_mean(parts, tasks)) == messages


def depth(op: tf.Operation) -> int:
    """Return the largest number of tensors that travel between devices one after another, up to an operation."""
    return max((depth(tensor.op) + (tensor.op.device not in ("", op.device)) for tensor in op.inputs), default=0)


@pytest.mark.parametrize(
    ("spread", "places"),
    [("size", ["a", "b", "b", "b"]), ("round robin", ["a", "b", "a", "b"])],
)
def test_replicas_share_variables_on_their_devices(spread: Any, places: list[str]) -> None:
    def model(_: int) -> Any:
        large = tf.get_variable("large", [100], initializer=tf.zeros_initializer())
        others = [tf.Variable(1.0), tf.Variable([2.0, 3.0]), tf.Variable(lambda: tf.ones([2]))]
        return [large, *others], tf.add_n([tf.reduce_sum(variable) for variable in (large, *others)])

    replicas = parallel.replicate(model, ["/job:worker/task:0", "/job:worker/task:1"], ["/job:a", "/job:b"], spread)
    created = tf.global_variables()
    assert [variable.device for variable in created] == [f"/job:{place}" for place in places]
    assert [[*map(id, found)] for found, _ in replicas] == [[*map(id, created)]] * 2
    assert [result.device for _, result in replicas] == ["/job:worker/task:0", "/job:worker/task:1"]


def test_gradients_of_uneven_parts_are_those_of_the_whole() -> None:
    work = parts()

    def model(task: int) -> Any:
        values = variables()
        return tf.gradients(linear_cost(values, *work[task]), values)

    means = parallel.average_gradients(parallel.replicate(model, TASKS, TASKS[0]), SIZES)
    after = [value - RATE * mean for value, mean in zip(VALUES, run(means), strict=True)]
    for value, same in zip(after, numpy_step(VALUES, X, Y)[0], strict=True):
        np.testing.assert_allclose(value, same)


def crossings(graph: tf.Graph, source: str, target: str) -> int:
    """Return the number of tensors that travel from one device to another."""
    tensors = {tensor.name for op in graph.get_operations() if op.device == target for tensor in op.inputs}
    return sum(graph.get_tensor_by_name(name).op.device == source for name in tensors)


def test_variables_and_gradients_travel_as_one_tensor_each(graph: tf.Graph) -> None:
    ps, worker = TASKS[:2]
    with tf.device(ps):
        shared = [tf.get_variable("table", dtype=tf.float64, initializer=np.ones([5, 3])), *variables()]
    (copies,) = parallel.broadcast(shared, [worker])
    with tf.device(worker):
        rows = tf.gather(copies[0], [1, 1, 4])  # its gradient is IndexedSlices
        gradients = tf.gradients(linear_cost(copies[1:], rows, tf.constant(Y[:3])), copies)
    means = parallel.average_gradients([gradients], variables=shared)
    assert {mean.device for mean in means} == {ps}
    assert (crossings(graph, ps, worker), crossings(graph, worker, ps)) == (1, 1)


@pytest.mark.parametrize("unroll", [False, True])
def test_repeated_steps_are_those_of_one_process(unroll: bool, graph: tf.Graph) -> None:
    values, costs = VALUES, []
    for _ in range(5):
        values, cost = numpy_step(values, X, Y)
        costs.append(cost)
    found, found_costs = run(parallel.repeat(synchronous_step, variables(), 5, unroll=unroll))
    assert any(op.type in ("LoopCond", "While", "StatelessWhile") for op in graph.get_operations()) != unroll
    np.testing.assert_allclose(found_costs, costs, rtol=1e-5)
    for value, same in zip(found, values, strict=True):
        np.testing.assert_allclose(value, same)


@pytest.mark.parametrize("steps", [1, 4])
def test_local_sgd_averages_what_each_task_has_learned(steps: int) -> None:
    batches = parts()

    def step(task: int, _: Any, values: list[Any]) -> Any:
        cost = linear_cost(values, *batches[task])
        return [v - RATE * g for v, g in zip(values, tf.gradients(cost, values), strict=True)], cost

    found, costs = run(parallel.local_sgd(step, variables(), TASKS, steps, SIZES))
    ends = []
    for x, y in zip(np.array_split(X, 3), np.array_split(Y, 3), strict=True):
        values = VALUES
        for _ in range(steps):
            values, _ = numpy_step(values, x, y)
        ends.append(values)
    for value, *same in zip(found, *ends, strict=True):
        np.testing.assert_allclose(value, np.average(same, axis=0, weights=SIZES))
    assert costs.shape == (steps,)
    np.testing.assert_allclose(costs[0], numpy_step(VALUES, X, Y)[1], rtol=1e-5)


@pytest.mark.parametrize("version", [tf, tf.compat.v2], ids=["TensorFlow 1", "TensorFlow 2"])
def test_each_task_reads_its_own_input(version: Any) -> None:
    iterators = parallel.inputs(lambda task: version.data.Dataset.range(10 * task, 100), TASKS)
    elements = parallel.map_tasks(lambda iterator: iterator.get_next(), iterators, TASKS)
    assert [element.device for element in elements] == TASKS
    assert run(elements) == [0, 10, 20]


def test_the_cpu_of_a_task_with_a_gpu_reads_its_input(graph: tf.Graph) -> None:
    tasks = ["/job:worker/task:0/device:GPU:0", "/job:worker/task:1"]
    iterators = parallel.inputs(lambda task: tf.data.Dataset.range(task, 100), tasks)
    elements = parallel.map_tasks(lambda iterator: iterator.get_next(), iterators, tasks)
    cpu = "/job:worker/task:0/device:CPU:0"
    assert [element.device for element in elements] == [cpu, tasks[1]]
    assert {op.device for op in graph.get_operations()} == {cpu, tasks[1]}


F = [[1.0]]
ERRORS: dict[str, tuple[Callable[[], Any], str]] = {
    "a text for a list": (
        lambda: parallel.split(X, TASKS[0]),
        """split(): tasks must be a list of devices, such as ["/job:worker/task:0"], not '/device:CPU:0'""",
    ),
    "no tasks": (
        lambda: parallel.map_tasks(abs, [], []),
        'map_tasks(): tasks must be a list of devices, such as ["/job:worker/task:0"], not []',
    ),
    "no device": (
        lambda: parallel.split(X, ["worker/0"]),
        'split(): "worker/0" is not a device of TensorFlow, such as "/job:worker/task:0"',
    ),
    "a scalar": (lambda: parallel.split(1.0, TASKS), "split(): a scalar can't be split: x needs a first axis"),
    "sizes": (lambda: parallel.split(X, TASKS, [1, 2, 3]), "split(): the sum of sizes is 6, but x has 10 rows"),
    "number": (
        lambda: parallel.map_tasks(abs, [1, 2], TASKS),
        "map_tasks(): xs must have 3 elements, one for each task, not 2",
    ),
    "weights": (
        lambda: parallel.reduce_mean([1.0, 2.0], [1]),
        "reduce_mean(): weights must have 2 elements, one for each task, not 1",
    ),
    "no scalars": (
        lambda: parallel.average_gradients([F, F], [1.0, [2.0]]),
        "average_gradients(): weights must be scalars, but weight 1 has the shape (1,)",
    ),
    "integers": (lambda: parallel.reduce_mean([1, 2]), "reduce_mean(): int32 has no mean: cast the tensors to floats"),
    "nothing": (lambda: parallel.ring_mean([[]], TASKS[:1]), "ring_mean(): there are no tensors to average"),
    "other shapes": (
        lambda: parallel.tree_mean([F, [[1.0, 2.0]]], TASKS[:2]),
        "tree_mean(): the tensors of task 1 have other shapes or dtypes than those of task 0",
    ),
    "None": (
        lambda: parallel.average_gradients([F, [None]]),
        "average_gradients(): tensor 0 of task 1 is None: its cost does not use the variable",
    ),
    "variables": (
        lambda: parallel.average_gradients([F], variables=[]),
        "average_gradients(): 0 variables have 1 gradients",
    ),
    "unknown shape": (
        lambda: parallel.broadcast([tf.placeholder(tf.float32, [None], name="x")], TASKS),
        "broadcast(): the shape of x:0 must be known before the graph runs, not (None,)",
    ),
    "nothing to send": (lambda: parallel.broadcast([], TASKS), "broadcast(): there are no tensors to send"),
    "no place": (
        lambda: parallel.replicate(dict, TASKS, []),
        "replicate(): variables_on must be a device, or a list of devices that is not empty",
    ),
    "spread": (
        lambda: parallel.replicate(dict, TASKS, TASKS, "bytes"),  # type: ignore[arg-type]
        """replicate(): spread must be one of "size", "round robin", not 'bytes'""",
    ),
    "no dataset": (
        lambda: parallel.inputs(lambda task: task, TASKS),
        "inputs(): dataset_fn must return a tf.data.Dataset, not 0",
    ),
    "no tasks for inputs": (
        lambda: parallel.inputs(abs, []),  # type: ignore[arg-type]
        'inputs(): tasks must be a list of devices, such as ["/job:worker/task:0"], not []',
    ),
    "no steps": (
        lambda: parallel.repeat(synchronous_step, F, 0),
        "repeat(): steps must be a number from 1, not 0",
    ),
    "other values": (
        lambda: parallel.repeat(lambda *_: ([], 0.0), F, 2),
        "repeat(): step_fn must return as many values as it gets, with their shapes and dtypes",
    ),
    "no scalar": (
        lambda: parallel.repeat(lambda _, values: (values, [0.0, 1.0]), F, 2),
        "repeat(): step_fn must return a scalar as the cost, not the shape (2,)",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_wrong_argument_is_one_clear_error(case: str) -> None:
    call, message = ERRORS[case]
    with pytest.raises(InvalidInput) as caught:
        call()
    assert str(caught.value) == f"tfk8s.parallel.{message}"


OTHERS: list[list[Callable[[], Any]]] = [  # the variables of the first task, and of the second
    [lambda: tf.Variable([]), lambda: tf.Variable([1.0])],
    [lambda: tf.Variable([1.0]), lambda: tf.Variable([1])],
    [lambda: tf.Variable(X), lambda: tf.Variable(X.astype("float32"))],
    [lambda: tf.Variable([1.0]), lambda: tf.Variable(lambda: tf.ones([2]), shape=[2])],
]


@pytest.mark.parametrize("models", OTHERS)
def test_models_with_other_variables_are_refused(models: list[Callable[[], Any]]) -> None:
    with pytest.raises(InvalidInput) as caught:
        parallel.replicate(lambda task: models[task](), TASKS[:2], TASKS[0])
    assert str(caught.value) == (
        'tfk8s.parallel.replicate(): model_fn must create the same variables on each task, but "/device:CPU:1" differs'
    )


def test_a_later_replica_adds_nothing_for_its_variables(graph: tf.Graph) -> None:
    sizes = []

    def model(_: int) -> Any:
        made = [tf.Variable(1.0), tf.Variable(X), tf.Variable([1, 2], dtype=tf.float64), tf.Variable([tf.zeros([])])]
        sizes.append(len(graph.get_operations()))
        return made

    parallel.replicate(model, TASKS[:2], TASKS[0])
    assert sizes[1] == sizes[0] + 1  # the zero
