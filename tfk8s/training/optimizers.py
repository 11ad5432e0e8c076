"""Optimizers of Keras 3 under `tfk8s.strategy()`: a step of the optimizer runs once. Imports TensorFlow.

Keras 3 runs a part of `Optimizer.apply` on each replica, as if the replica had copies of all variables. So under
MirroredStrategy, `global_clipnorm` clips each replica's part of the gradient, and `use_ema` and
`gradient_accumulation_steps` fail. Here the variables exist once. So the gradients are summed first, and then `apply`
runs once, as in one process.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

_CORRECTED = "_tfk8s_runs_once"


def correct(runs_once: Callable[[Any], bool]) -> None:
    """Let the optimizers of Keras 3 run once, if the script has imported Keras 3.

    Args:
        runs_once: returns whether the optimizers run once under a strategy.
    """
    optimizers = getattr(sys.modules.get("keras"), "optimizers", None)
    names = ("Optimizer", "LossScaleOptimizer", "MultiOptimizer")
    for found in [getattr(optimizers, name) for name in names if hasattr(optimizers, name)]:
        for owner in found.__mro__:
            apply = vars(owner).get("apply")  # Keras 2 has no such method
            if apply is not None and not hasattr(apply, _CORRECTED):
                owner.apply = _corrected(apply, runs_once)


def _corrected(apply: Callable[..., Any], runs_once: Callable[[Any], bool]) -> Callable[..., Any]:
    @functools.wraps(apply)
    def corrected(optimizer: Any, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        if not grads or tf.distribute.in_cross_replica_context() or not runs_once(tf.distribute.get_strategy()):
            apply(optimizer, grads, trainable_variables)
            return
        variables = None if trainable_variables is None else list(trainable_variables)
        if not optimizer.built and variables is not None:
            optimizer.build(variables)
        replica = tf.distribute.get_replica_context()
        summed = _sum(replica, list(grads))
        replica.merge_call(lambda strategy: _apply_once(strategy, lambda: apply(optimizer, summed, variables)))

    setattr(corrected, _CORRECTED, True)
    return corrected


def _sum(replica: Any, grads: Sequence[Any]) -> list[Any]:
    """Return the sums of the replicas' gradients; None for a variable without a gradient."""
    given = [grad for grad in grads if grad is not None]
    sums = iter(replica.all_reduce(tf.distribute.ReduceOp.SUM, given) if given else ())
    return [None if grad is None else next(sums) for grad in grads]


def _apply_once(strategy: Any, apply: Callable[[], None]) -> None:
    with tf.device(strategy.extended.worker_devices[0]), _as_in_one_process():
        apply()


@contextmanager
def _as_in_one_process() -> Iterator[None]:
    """Run the body as if there were no strategy; its variables stay those of their strategy."""
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    try:
        yield
    finally:
        distribute_lib._pop_per_thread_mode()
