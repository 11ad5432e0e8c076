"""The strategy that `tfk8s.strategy` returns. Imports TensorFlow.

TensorFlow's CentralStorageStrategy keeps each variable once, and sums the gradients of its replicas. Its devices may
belong to remote tasks. `ClusterStrategy` differs from it as follows (measured with TensorFlow 2.21 and Keras 3.15):

- Variables with `synchronization=ON_READ` exist once for each replica, as under MirroredStrategy. Keras 3 changes its
  metrics by `assign(variable + x)`, which would count the old value once for each replica.
- Other variables without an aggregation get one, such as the statistics of BatchNormalization, the state of Dropout,
  and weights with a constraint. CentralStorageStrategy refuses to change such a variable on a replica.
- Keras 3's optimizers run once, on the sum of the gradients: see `optimizers.py`.
- The first replica's task sums the gradients, not the script, which may be far from the tasks.
- The script's machine holds the input until a step needs it. So no iterator on a task outlives the script.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.distribute import cross_device_ops, distribute_utils, input_lib
from tensorflow.python.distribute.parameter_server_strategy import ParameterServerStrategyExtended
from tensorflow.python.distribute.ps_values import AggregatingVariable
from tensorflow.python.eager import context, record
from tensorflow.python.ops import control_flow_util

from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.training import optimizers

if TYPE_CHECKING:
    from tfk8s.training.task_roles import TaskRoles, Tasks

_SCRIPT_JOB = "localhost"  # TensorFlow's name for the job of a client


class ClusterStrategy(tf.distribute.Strategy):  # type: ignore[misc]  # TensorFlow has no types
    """Trains on remote tasks synchronously, with each variable on one of them.

    Args:
        roles: the tasks.
    """

    def __init__(self, roles: TaskRoles) -> None:
        super().__init__(
            _Extended(self, _replicas(roles.compute), [f"{task}/device:CPU:0" for task in roles.variables])
        )


def _replicas(tasks: Sequence[str]) -> list[str]:
    """Return the device of each replica: all GPUs of a task, or the CPU of a task without GPUs."""
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    replicas: list[str] = []
    for task in tasks:
        replicas += [gpu for gpu in gpus if gpu.startswith(f"{task}/")] or [f"{task}/device:CPU:0"]
    return replicas


class _Extended(ParameterServerStrategyExtended):  # type: ignore[misc]
    """The part of the strategy that TensorFlow calls."""

    def __init__(self, strategy: ClusterStrategy, replicas: Sequence[str], variables: Sequence[str]) -> None:
        super().__init__(strategy, compute_devices=replicas, parameter_device=variables[0])
        self._parameter_devices = tuple(variables)
        self._turns = itertools.cycle(variables)
        self._cross_device_ops = cross_device_ops.ReductionToOneDevice()

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        if self._num_replicas_in_sync > 1 and kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ:
            return distribute_utils.create_mirrored_variable(
                self._container_strategy(),
                lambda **kwargs: list(self._create_copies(next_creator, kwargs)),
                distribute_utils.VARIABLE_CLASS_MAPPING,
                distribute_utils.VARIABLE_POLICY_MAPPING,
                **kwargs,
            )
        self._variable_device = next(self._turns)
        variable = super()._create_variable(next_creator, **kwargs)
        if isinstance(variable, AggregatingVariable) and variable.aggregation == tf.VariableAggregation.NONE:
            variable._aggregation = _aggregation(variable.dtype)
        return variable

    def _call_for_each_replica(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        in_xla = control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
        if in_xla or getattr(fn, "_jit_compile", False):  # Keras 3 compiles around a step, Keras 2 compiles the step
            raise InvalidInput(
                "tfk8s.strategy() can't train with jit_compile=True: XLA compiles for one device, a step has several",
                help="remove jit_compile=True, as for MirroredStrategy",
            )
        if self._num_replicas_in_sync > 1:
            optimizers.correct(lambda strategy: isinstance(strategy, ClusterStrategy))
        return super()._call_for_each_replica(fn, args, kwargs)

    def _create_copies(self, next_creator: Callable[..., Any], kwargs: dict[str, Any]) -> Iterator[Any]:
        """Create a variable on the device of each replica."""
        first = None
        for index, device in enumerate(self._compute_devices):
            if first is not None:
                name = f"{first.name.partition(':')[0]}/replica_{index}/"  # as MirroredStrategy names them
                kwargs |= {"initial_value": first.read_value(), "name": name}
            with tf.device(device), record.stop_recording():
                copy = next_creator(**kwargs)
            first = copy if first is None else first
            yield copy

    def _input_workers_with_options(self, options: Any = None) -> Any:
        del options
        host = self._worker_device
        return input_lib.InputWorkers([(host, (host,) * self._num_replicas_in_sync)])


def _aggregation(dtype: tf.DType) -> tf.VariableAggregation:
    """Return the aggregation of a variable that has none: the replicas may assign different values to it."""
    return tf.VariableAggregation.MEAN if dtype.is_floating else tf.VariableAggregation.ONLY_FIRST_REPLICA


# ---- the connection ------------------------------------------------------------------------------------------------


def connect(tasks: Tasks, own_address: Callable[[], str]) -> None:
    """Connect this process to the tasks, unless it is connected to them.

    Args:
        tasks: the tasks.
        own_address: returns an address at which the tasks can connect to this process.

    Raises:
        InvalidInput: eager execution is off, or TensorFlow is connected to another cluster.
        ClusterError: the tasks can't connect to this process.
    """
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise InvalidInput(
            "tfk8s.strategy() needs TensorFlow 2, and this script has TensorFlow 1's behaviour",
            help="submit the script without --tf1, and do not call tf.compat.v1.disable_v2_behavior()",
        )
    server = context.get_server_def()
    if server is not None:
        connected = {job.name: dict(job.tasks) for job in server.cluster.job if job.name != server.job_name}
        if connected != {job: dict(addresses) for job, addresses in tasks.items()}:
            raise InvalidInput(
                "tfk8s.strategy() can't connect: TensorFlow is connected to a cluster of another strategy",
                help="use one strategy in a script",
            )
        return
    os.environ.setdefault("TF_GRPC_REUSE_PORT", "true")  # in a pod, loopback addresses of tasks have the same port
    address = own_address()
    cluster = tf.train.ClusterSpec({**tasks, _SCRIPT_JOB: {0: address}})
    tf.config.experimental_connect_to_cluster(cluster, job_name=_SCRIPT_JOB, protocol="grpc")
    _check_connections(address)


def _check_connections(address: str) -> None:
    """Check that each task can connect to this process.

    Raises:
        ClusterError: a task can't.
    """
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]

    @tf.function  # type: ignore[untyped-decorator]
    def fetch() -> Any:
        with tf.device(devices[0]):
            total = value = tf.timestamp()
        for device in devices:
            with tf.device(device):
                total += value
        return total

    try:
        fetch().numpy()
    except tf.errors.UnavailableError as error:
        raise ClusterError(
            f"the tasks can't connect to this script at {address}, where they would fetch their data",
            help="run the script beside the tasks: `tfk8s submit` without --here",
        ) from error
