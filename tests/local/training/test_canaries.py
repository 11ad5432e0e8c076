"""TensorFlow's internals that tfk8s patches or reads, one test for each.

A version of TensorFlow that changes an internal fails the test of this internal. The message names the internal and the
module of tfk8s that depends on it.
"""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.client import session as sessions
from tensorflow.python.data.experimental.ops import data_service_ops
from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    cross_device_ops,
    distribute_lib,
    distribute_utils,
    input_lib,
    parameter_server_strategy_v2,
)
from tensorflow.python.distribute.coordinator import cluster_coordinator
from tensorflow.python.distribute.failure_handling import failure_handling
from tensorflow.python.distribute.parameter_server_strategy import ParameterServerStrategyExtended
from tensorflow.python.distribute.ps_values import AggregatingVariable
from tensorflow.python.eager import context, record
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util, gen_dataset_ops
from tensorflow.python.training import server_lib

from tfk8s.backends.local.loopback.start import libraries
from tfk8s.sessions import active_calls
from tfk8s.sessions.device_names import ANY_DEVICE
from tfk8s.sessions.eager import silent_workers, waits
from tfk8s.task import server
from tfk8s.task.peers import dispatchers
from tfk8s.task.programs import moved_ports, stacks
from tfk8s.task.programs.stacks import Frame
from tfk8s.task.stack_frames import stack_of
from tfk8s.training import keras_support
from tfk8s.training.cluster_strategy import ClusterStrategy

tf1 = tf.compat.v1
PACKAGE = Path(active_calls.__file__).parents[1]
HAS_CORRECTIONS = keras.__version__.rpartition(".")[0] in keras_support._SERIES


@dataclass(frozen=True)
class Canary:
    """An internal of TensorFlow or Keras.

    Attributes:
        internal: its name.
        module: of tfk8s, which uses the internal.
        check: raises an error if the internal is not as the module expects.
    """

    internal: str
    module: str
    check: Callable[[], None]

    def sing(self) -> None:
        try:
            self.check()
        except Exception as error:
            versions = f"TensorFlow {tf.__version__} with Keras {keras.__version__}"
            raise AssertionError(
                f"{versions} changed {self.internal}, on which tfk8s/{self.module} depends: {error!r}"
            ) from error


CANARIES: list[Canary] = []


def canary(internal: str, module: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Make a function the check of an internal that a module of tfk8s uses."""

    def add(check: Callable[[], None]) -> Callable[[], None]:
        CANARIES.append(Canary(internal, module, check))
        return check

    return add


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def main_stack() -> list[FrameType]:
    """Return the frames of the main thread, from the innermost outwards."""
    frame = sys._current_frames()[threading.main_thread().ident]
    return list(stack_of(frame))


# ---- placement -----------------------------------------------------------------------------------------------------


@canary("BaseSession._extend_graph", "sessions/cluster/placement.py")
def a_session_gets_new_operations_by_extend_graph() -> None:
    seen = []
    with tf.Graph().as_default() as graph, tf1.Session() as session:
        assert session._graph is graph
        session._extend_graph = lambda: seen.append(graph.version) or sessions.BaseSession._extend_graph(session)
        for number in range(2):
            session.run(tf.constant(number))
    assert len(seen) == 2
    assert seen[0] < seen[1], "Graph.version does not grow with the graph"


@canary("Operation._set_device_from_string", "sessions/cluster/placement.py")
def an_operation_gets_a_device_after_its_creation() -> None:
    with tf.Graph().as_default() as graph:
        operation = tf.constant(1).op
    operation._set_device_from_string("/job:worker/task:1")
    assert operation.device == graph.as_graph_def().node[0].device == "/job:worker/task:1"


@canary("Operation.device, Operation.node_def and SymbolicTensor.device", "sessions/cluster/placement.py")
def devices_are_shown_by_properties() -> None:
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        tensor = tf.constant(1)
    assert ops.Operation.device.fget(tensor.op) == "/job:ps/task:0"
    assert ops.Operation.node_def.fget(tensor.op).device == "/job:ps/task:0"
    assert isinstance(tensor, ops.SymbolicTensor)
    assert tensor.device == "/job:ps/task:0"


@canary("Graph._as_graph_def", "sessions/cluster/placement.py")
def graphs_are_exported_by_as_graph_def() -> None:
    with tf.Graph().as_default() as graph:
        tf.constant(1)
        export = graph._as_graph_def

        def exported(*arguments: object, **keywords: object) -> Any:
            definition, version = export(*arguments, **keywords)
            definition.node[0].device = "/job:ps"
            return definition, version

        graph._as_graph_def = exported
        assert graph.as_graph_def().node[0].device == "/job:ps"
        assert tf1.train.export_meta_graph().graph_def.node[0].device == "/job:ps"


@canary("Operation._input_types and DType._is_ref_dtype", "sessions/cluster/placement.py")
def inputs_show_the_variables_that_they_refer_to() -> None:
    with tf.Graph().as_default():
        reference = tf1.Variable(1.0, use_resource=False)
        resource = tf1.Variable(1.0, use_resource=True)
        assert reference.initializer._input_types[0]._is_ref_dtype
        assert resource.initializer._input_types[0].name == "resource"
        assert reference.initializer.colocation_groups()


# ---- sessions ------------------------------------------------------------------------------------------------------


def calls_of_main_thread(run: Callable[[Any], object]) -> list[active_calls.AnyCall]:
    """Return the calls that the main thread waits in while TensorFlow runs an operation.

    Args:
        run: is called with a graph's operation that the call has to run.
    """
    seen: list[active_calls.AnyCall] = []

    def look(value: Any) -> Any:
        seen.extend(active_calls.active_calls().values())
        return value

    with tf.Graph().as_default():
        run(tf1.py_func(look, [tf.constant(1.0)], tf.float32))
    return seen


@canary("the frames of BaseSession.run, _do_run and _call_tf_sessionrun", "sessions/active_calls.py")
def a_waiting_call_shows_what_it_needs() -> None:
    def run(operation: Any) -> None:
        fed = tf1.placeholder(tf.float32, [])
        with tf.device("/device:CPU:0"):
            total = operation + fed
        with tf1.Session() as session:
            session.run(total, {fed: 1.0})

    (call,) = calls_of_main_thread(run)
    names = [frame.f_code.co_name for frame in call.frames]
    assert names[-1] == "_call_tf_sessionrun", names
    (frame,) = (frame for frame in call.frames if frame.f_code.co_name == "_do_run")
    assert {"target_list", "fetch_list", "feed_dict"} <= set(frame.f_locals)
    assert [tensor.op.type for tensor in frame.f_locals["fetch_list"]] == ["AddV2"]
    assert [reference.deref().op.type for reference in frame.f_locals["feed_dict"]] == ["Placeholder"]
    assert call.needed(["worker/0"]) == []


@canary("BaseSession.sess_str and _config", "sessions/active_calls.py")
def a_session_knows_its_target_and_filters() -> None:
    with tf.Graph().as_default(), tf1.Session(config=tf1.ConfigProto(device_filters=["/job:a"])) as session:
        assert session.sess_str in (b"", "")
        assert list(session._config.device_filters) == ["/job:a"]


@canary("the frame of BaseSession._extend_graph", "sessions/active_calls.py")
def a_session_opens_in_extend_graph() -> None:
    stacks: list[list[FrameType]] = []
    extend = sessions.tf_session.ExtendSession
    with tf.Graph().as_default(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sessions.tf_session, "ExtendSession", lambda *given: stacks.append(main_stack()[2:]) or extend(*given)
        )
        with tf1.Session() as session:
            session.run(tf.constant(1))
    call = active_calls._call(stacks[0])
    assert call is not None
    assert call.opens


@canary("the file of MonitoredSession", "sessions/active_calls.py")
def a_recovering_session_is_seen() -> None:
    def run(operation: Any) -> None:
        with tf1.train.MonitoredSession() as session:
            session.run(operation)

    calls = calls_of_main_thread(run)
    assert [call.timeout for call in calls] == [active_calls.TIMING.recovering_timeout]


@canary("BaseSession.__init__, run, close and Session.reset", "sessions/patch.py")
def sessions_have_methods_to_patch() -> None:
    assert parameters(sessions.BaseSession.__init__) == ["self", "target", "graph", "config"]
    assert parameters(sessions.BaseSession.run) == ["self", "fetches", "feed_dict", "options", "run_metadata"]
    assert parameters(sessions.BaseSession.close) == ["self"]
    assert parameters(sessions.Session.reset) == ["target", "containers", "config"]


@canary("Session.reset", "sessions/cluster/reset.py")
def reset_is_a_function_of_the_class() -> None:
    assert isinstance(inspect.getattr_static(sessions.Session, "reset"), staticmethod)


@canary("BaseSession.run", "features/timeline/pod.py")
def a_call_can_be_recorded() -> None:
    metadata = tf1.RunMetadata()
    with tf.Graph().as_default(), tf1.Session() as session:
        session.run(tf.constant(1) + 1, options=tf1.RunOptions(trace_level=3), run_metadata=metadata)
    assert metadata.step_stats.dev_stats


@canary("_DeviceAttributes, BaseSession._session and _closed", "sessions/tf_session.py")
def a_session_can_be_abandoned() -> None:
    assert parameters(sessions._DeviceAttributes)[:4] == ["name", "device_type", "memory_limit_bytes", "incarnation"]
    with tf.Graph().as_default(), tf1.Session() as session:
        assert session._session is not None
        assert session._closed is False


@canary("Server.__init__, start, join, target and _make_server_def", "sessions/adopted_server.py")
def servers_have_methods_to_patch() -> None:
    expected = ["self", "server_or_cluster_def", "job_name", "task_index", "protocol", "config", "start"]
    assert parameters(server_lib.Server.__init__) == expected
    assert parameters(server_lib.Server.start) == parameters(server_lib.Server.join) == ["self"]
    assert isinstance(server_lib.Server.target, property)
    definition = server_lib._make_server_def(tf.train.ClusterSpec({"a": ["b:1"]}), "a", 0, "grpc", None)
    assert (definition.job_name, definition.cluster.job[0].tasks[0]) == ("a", "b:1")


# ---- eager execution -----------------------------------------------------------------------------------------------


@canary(
    "context.context_safe, Context._handle, get_server_def and TFE_GetContextId", "sessions/eager/remote_context.py"
)
def the_context_has_a_number() -> None:
    context.context().ensure_initialized()
    assert isinstance(pywrap_tfe.TFE_GetContextId(context.context_safe()._handle), int)
    assert context.context().get_server_def() is None


@canary("Context.set_server_def and update_server_def", "sessions/eager/coordinator.py")
def connecting_has_methods_to_patch() -> None:
    for method in (context.Context.set_server_def, context.Context.update_server_def):
        assert parameters(method)[:2] == ["self", "server_def"]


@canary("BaseSession.__init__, _make_server_def, _parse_service and the context", "task/programs/moved_ports.py")
def addresses_are_given_to_functions_to_patch() -> None:
    assert parameters(sessions.BaseSession.__init__)[:2] == ["self", "target"]
    assert callable(server_lib._make_server_def)
    assert parameters(sessions.Session.reset)[0] == "target"
    assert data_service_ops._parse_service("grpc://a:1") == ("grpc", "a:1")
    for name in moved_ports._TAKES_SERVER:
        assert parameters(getattr(context.Context, name))[:2] == ["self", "server_def"]


@canary("Context.config", "sessions/cluster/elastic_sessions.py")
def the_context_has_the_settings_of_sessions() -> None:
    assert isinstance(context.context().config, tf1.ConfigProto)


@canary("the frames of Context.ensure_initialized and set_server_def", "sessions/eager/waits.py")
def connecting_is_in_the_file_of_the_context() -> None:
    for name in waits._CONNECTING:
        assert inspect.unwrap(getattr(context.Context, name)).__code__.co_filename.endswith(waits._CONTEXT)


@canary("the frames of functions: quick_execute and AtomicFunction", "sessions/eager/waits.py")
def a_waiting_function_shows_its_devices() -> None:
    seen: list[set[str]] = []

    def look(value: Any) -> Any:
        call = waits.eager_call(main_stack(), is_background=False)
        assert call is not None
        assert {"device_name", "op_name"} <= set(call.stack[0].f_locals)
        seen.append(call._devices())
        return value

    @tf.function
    def double(value: Any) -> Any:
        with tf.device("/device:CPU:0"):
            return 2 * tf.numpy_function(look, [value], tf.float32)

    double(tf.constant(1.0))
    (devices,) = seen
    assert devices == {ANY_DEVICE} or any(device.endswith("/device:CPU:0") for device in devices), devices


@canary("the frames of operations in gen_*_ops.py", "sessions/eager/waits.py")
def a_waiting_operation_shows_its_inputs() -> None:
    stacks: list[tuple[str, list[Any]]] = []
    execute = pywrap_tfe.TFE_Py_FastPathExecute

    def executed(*given: Any) -> Any:
        stack = main_stack()[2:]
        inputs = list(waits._tensors(stack[0].f_locals.values()))
        stacks.append((stack[0].f_code.co_filename, inputs))
        return execute(*given)

    one = tf.constant(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pywrap_tfe, "TFE_Py_FastPathExecute", executed)
        tf.raw_ops.AddV2(x=one, y=one)
    ((file, inputs),) = stacks
    assert waits._FILES.search(file), file
    assert [id(value) for value in inputs] == [id(one)] * 2


@canary("the wrappers around functions of TensorFlow and Keras", "task/programs/stacks.py")
def a_stack_names_the_function_that_a_program_calls() -> None:
    named: set[str] = set()
    execute = pywrap_tfe.TFE_Py_FastPathExecute

    def executed(*given: Any) -> Any:
        frames = [Frame(frame.f_code.co_filename, 1, frame.f_code.co_name) for frame in reversed(main_stack()[2:])]
        named.add(stacks.tensorflow_call(frames))
        return execute(*given)

    def calls_of(function: Callable[[], Any]) -> set[str]:
        named.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pywrap_tfe, "TFE_Py_FastPathExecute", executed)
            function()
        return set(named)

    x = np.ones([2, 1], "float32")
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse", run_eagerly=True)
    assert calls_of(lambda: model.fit(x, x, verbose=0)) == {"trainer.fit"}
    assert calls_of(lambda: model.predict(x, verbose=0)) == {"trainer.predict"}
    assert calls_of(lambda: model(x)) == {"layer.__call__"}
    assert calls_of(lambda: tf.matmul(x, x, transpose_a=True)) == {"math_ops.matmul"}
    assert calls_of(lambda: tf.math.reduce_sum(x)) == {"math_ops.reduce_sum"}
    assert calls_of(lambda: tf.nn.softmax(x)) == {"nn_ops.softmax_v2"}


@canary("the names of ClusterCoordinator's threads", "sessions/eager/silent_workers.py")
def threads_of_a_coordinator_have_their_name() -> None:
    worker = inspect.getsource(cluster_coordinator.Worker)
    assert f'"{silent_workers._THREAD}%d"' in worker
    assert "target=self._process_queue" in worker
    assert {"_is_dead_with_error", "_cluster"} <= set(re.findall(r"self\.(\w+) =", worker))
    assert callable(cluster_coordinator.Cluster.done)


# ---- strategies ----------------------------------------------------------------------------------------------------


@canary("CollectiveAllReduceExtended._initialize_strategy", "task/programs/strategies.py")
def multi_worker_mirrored_has_a_method_to_patch() -> None:
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    assert parameters(extended._initialize_strategy)[:2] == ["self", "cluster_resolver"]


@canary("PreemptionCheckpointHandler.__init__", "task/programs/strategies.py")
def the_preemption_handler_has_what_is_patched() -> None:
    handler = failure_handling.PreemptionCheckpointHandler
    assert parameters(handler.__init__)[4] == "termination_config"
    assert "on_gcp()" in inspect.getsource(failure_handling.failure_handling_util.detect_platform)


@canary("ParameterServerStrategyV2.__init__", "task/programs/strategies.py")
def parameter_server_has_a_method_to_patch() -> None:
    strategy = parameter_server_strategy_v2.ParameterServerStrategyV2
    assert parameters(strategy.__init__)[:2] == ["self", "cluster_resolver"]


@canary("ParameterServerStrategyExtended and its modules", "training/cluster_strategy.py")
def the_strategy_of_tfk8s_has_what_it_derives_from() -> None:
    here = "/job:localhost/replica:0/task:0"
    extended = ClusterStrategy(SimpleNamespace(compute=[here], variables=[here])).extended
    for name in (
        "_compute_devices", "_container_strategy", "_cross_device_ops", "_num_replicas_in_sync", "_parameter_devices",
        "_variable_device", "_worker_device",
    ):  # fmt: skip
        assert hasattr(extended, name), name
    for name in ("_create_variable", "_input_workers_with_options"):
        assert hasattr(ParameterServerStrategyExtended, name), name
    assert parameters(distribute_utils.create_mirrored_variable)[:4] == [
        "strategy", "real_mirrored_creator", "class_mapping", "policy_mapping",
    ]  # fmt: skip
    assert distribute_utils.VARIABLE_CLASS_MAPPING
    assert distribute_utils.VARIABLE_POLICY_MAPPING
    assert cross_device_ops.ReductionToOneDevice()
    assert input_lib.InputWorkers([(here, (here,))]).num_workers == 1
    with record.stop_recording():
        pass
    assert AggregatingVariable(None, tf.Variable(1.0), tf.VariableAggregation.NONE)._aggregation is not None
    assert tf.function(lambda: 0, jit_compile=True)._jit_compile
    assert not control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


@canary("the stack of strategies", "training/optimizers.py")
def a_strategy_can_be_left() -> None:
    here = "/job:localhost/replica:0/task:0"
    with ClusterStrategy(SimpleNamespace(compute=[here], variables=[here])).scope():
        distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
        assert not tf.distribute.has_strategy()
        distribute_lib._pop_per_thread_mode()
        assert tf.distribute.has_strategy()


@pytest.mark.skipif(not HAS_CORRECTIONS, reason=f"tfk8s.correct_keras() leaves Keras {keras.__version__} as it is")
def test_functions_of_keras_are_those_that_tfk8s_corrects() -> None:
    from keras.src.backend.tensorflow import core, trainer
    from keras.src.callbacks.backup_and_restore import BackupAndRestore
    from keras.src.callbacks.model_checkpoint import ModelCheckpoint

    def check() -> None:
        model = trainer.TensorFlowTrainer
        assert parameters(model._maybe_symbolic_build) == ["self", "iterator", "data_batch"]
        assert parameters(model._make_function) == ["self", "step_function"]
        assert parameters(model._get_metrics_result_or_logs) == ["self", "logs"]
        assert parameters(trainer.reduce_per_replica) == ["values", "strategy", "reduction"]
        assert parameters(trainer._collective_all_reduce_multi_worker) == ["strategy"]
        assert parameters(trainer.TFEpochIterator)[0] == "distribute_strategy"
        assert {"_save_model", "on_train_end"} <= set(vars(BackupAndRestore))
        assert {"_save_model"} <= set(vars(ModelCheckpoint))
        for method in (core.Variable.assign_add, core.Variable.assign_sub):
            assert parameters(method) == ["self", "value"]

    Canary("functions of its trainer and its callbacks", "training/keras_corrections.py", check).sing()


@canary("data_service_ops._parse_service, and the file of dataset operations", "task/peers/dispatchers.py")
def a_dataset_names_its_dispatcher() -> None:
    assert data_service_ops._parse_service("grpc://localhost:1") == ("grpc", "localhost:1")
    assert data_service_ops.__name__ == dispatchers.MODULE
    assert dispatchers._OPERATION.search(gen_dataset_ops.iterator_get_next.__code__.co_filename)


# ---- servers -------------------------------------------------------------------------------------------------------


@canary("TF_NewServer and other functions of libtensorflow_cc.so.2", "task/server.py")
def the_library_has_the_functions_of_a_server() -> None:
    assert server.Library(server.require_tensorflow()).version == tf.__version__


@canary("the calls of `listen` in TensorFlow's libraries", "backends/local/loopback/start/libraries.py")
def libraries_lead_listen_through_a_table() -> None:
    found = [list(libraries._entries(*library, b"listen")) for library in libraries._libraries()]
    assert any(found)


# ---- all of them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.check.__name__)
def test_internal_is_as_tfk8s_expects(canary: Canary) -> None:
    canary.sing()


def test_each_module_that_uses_internals_has_a_canary() -> None:
    imports = re.compile(r"^\s*(?:from|import) (?:tensorflow\.python|keras\.src)", re.MULTILINE)
    using = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if imports.search(path.read_text())}
    assert using - {canary.module for canary in CANARIES} == {"training/keras_corrections.py"}


def test_an_internal_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sessions.BaseSession, "_extend_graph")
    with pytest.raises(AssertionError, match=r"changed BaseSession\._extend_graph, on which tfk8s/sessions/cluster/"):
        Canary("BaseSession._extend_graph", "sessions/cluster/placement.py", CANARIES[0].check).sing()
