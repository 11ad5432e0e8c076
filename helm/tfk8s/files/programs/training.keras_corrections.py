"""Corrections of Keras 3.15 for two strategies of TensorFlow. Imports Keras.

MultiWorkerMirroredStrategy: Keras takes values of one replica for tensors, in two places of its trainer
(https://github.com/keras-team/keras/issues/20585). All workers write the same checkpoints; only the chief may.

ParameterServerStrategy: Keras 2 schedules each step on a worker, and Keras 3 does not. Keras 3's `assign_add` reads,
adds and writes, so that two workers lose updates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import core, trainer
from keras.src.callbacks.backup_and_restore import BackupAndRestore
from keras.src.callbacks.model_checkpoint import ModelCheckpoint
from keras.src.trainers.epoch_iterator import EpochIterator


@functools.cache
def apply() -> None:
    """Correct Keras in this process."""
    _replace(trainer.TensorFlowTrainer, "_maybe_symbolic_build", _symbolic_build)
    _replace(trainer, "reduce_per_replica", _reduce)
    for callback, method in (
        (BackupAndRestore, "_save_model"), (BackupAndRestore, "on_train_end"), (ModelCheckpoint, "_save_model"),
    ):  # fmt: skip
        _replace(callback, method, _on_chief)
    _replace(trainer.TensorFlowTrainer, "_make_function", _make_function)
    _replace(trainer.TensorFlowTrainer, "_get_metrics_result_or_logs", _results)
    _replace(trainer, "TFEpochIterator", _epoch_iterator)
    for method in ("assign_add", "assign_sub"):
        _replace(core.Variable, method, functools.partial(_assign, method))


def _replace(owner: Any, name: str, correction: Callable[..., Any]) -> None:
    """Replace a function by a correction, whose first argument is the function."""
    before = getattr(owner, name)

    @functools.wraps(before)
    def corrected(*args: Any, **kwargs: Any) -> Any:
        return correction(before, *args, **kwargs)

    setattr(owner, name, corrected)


# ---- MultiWorkerMirroredStrategy -----------------------------------------------------------------------------------


def _symbolic_build(before: Any, model: Any, iterator: Any = None, data_batch: Any = None) -> None:
    """Build a model from this worker's part of a batch; under ParameterServerStrategy, from the batches' shapes."""
    strategy = model.distribute_strategy
    if isinstance(iterator, CoordinatedEpochs):
        data_batch, iterator = iterator.example(), None
    elif iterator is not None and trainer._collective_all_reduce_multi_worker(strategy):
        _, _, batches = next(iter(iterator))
        data_batch = tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0], next(batches))
        iterator = None
    before(model, iterator, data_batch)


def _reduce(before: Any, values: Any, strategy: Any, reduction: str) -> Any:
    """Return the mean of results, which are scalars and have no axis 0."""
    if reduction not in ("auto", "mean") or not trainer._collective_all_reduce_multi_worker(strategy):
        return before(values, strategy, reduction)
    return tf.nest.map_structure(lambda value: strategy.reduce("MEAN", value, axis=None), values)


def _on_chief(before: Any, callback: Any, *args: Any, **kwargs: Any) -> None:
    """Write or remove files only where the strategy says so: on the chief."""
    if callback.model.distribute_strategy.extended.should_checkpoint:
        before(callback, *args, **kwargs)


# ---- ParameterServerStrategy ---------------------------------------------------------------------------------------


def _coordinator(strategy: Any) -> Any:
    """Return the ClusterCoordinator of a ParameterServerStrategy; None for other strategies."""
    if not getattr(strategy, "_should_use_with_coordinator", False):
        return None
    return strategy._cluster_coordinator or tf.distribute.coordinator.ClusterCoordinator(strategy)


class CoordinatedEpochs(trainer.TFEpochIterator):  # type: ignore[misc]  # Keras has no types
    """Epochs for which each worker has the dataset."""

    def __init__(self, coordinator: Any, **kwargs: Any) -> None:
        EpochIterator.__init__(self, **kwargs)
        self._coordinator = coordinator
        self._dataset = self.data_adapter.get_tf_dataset()
        self._distributed_dataset = coordinator.create_per_worker_dataset(self._dataset)

    def example(self) -> Any:
        """Return a batch of zeros."""
        return tf.nest.map_structure(
            lambda spec: tf.zeros([1 if size is None else size for size in spec.shape], spec.dtype),
            self._dataset.element_spec,
        )

    def tf_sync(self) -> None:
        """Wait for the steps of an epoch."""
        self._coordinator.join()
        super().tf_sync()


def _epoch_iterator(before: Any, distribute_strategy: Any = None, **kwargs: Any) -> Any:
    coordinator = _coordinator(distribute_strategy)
    return before(distribute_strategy, **kwargs) if coordinator is None else CoordinatedEpochs(coordinator, **kwargs)


class ScheduledLogs(dict[str, Any]):
    """The logs of a step that a worker may not have run yet.

    Args:
        value: the step's RemoteValue.
    """

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _make_function(before: Any, model: Any, step_function: Any) -> Any:
    """Return a function that schedules steps on a worker."""
    strategy = model.distribute_strategy
    coordinator = _coordinator(strategy)
    if coordinator is None:
        return before(model, step_function)

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def run(iterator: Any) -> Any:
        for _ in range(model.steps_per_execution):
            outputs = strategy.run(step_function, args=(next(iterator),))
        return trainer.reduce_per_replica(outputs, strategy, "auto")

    return lambda iterator: ScheduledLogs(coordinator.schedule(run, args=(iterator,)))


def _results(before: Any, model: Any, logs: Any) -> Any:
    return before(model, logs.value.fetch() if isinstance(logs, ScheduledLogs) else logs)


def _assign(method: str, before: Any, variable: Any, value: Any) -> Any:
    """Change a variable by one operation of TensorFlow, which no other worker interrupts."""
    change = getattr(variable.value, method, None)
    if change is None:  # a variable of a stateless scope
        return before(variable, value)
    change(tf.cast(value, variable.value.dtype))
    return variable.value
