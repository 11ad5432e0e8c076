"""Lines of TensorFlow's own log among those of users."""

from __future__ import annotations

import pytest

from tfk8s.core.output.reason import telling_line
from tfk8s.core.output.tensorflow_log import TensorFlowLines
from tfk8s.core.script import LogLine, LogOptions, shown
from tfk8s.core.spec import Task

OWN = [
    "2026-11-25 03:52:38.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on: round-off errors",
    "2026-11-25 03:52:38.1: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized",
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the flags.",
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795579734.344371   12037 grpc_server_lib.cc:484] Started server with target: grpc://localhost:2222",
    "I1125 03:52:38.123456  140123 coordination_service.cc:12] Scanning workers",
    "W0000 00:00:1795579734.344371   12037 dataset.cc:997] Input of GeneratorDatasetOp::Dataset will not be optimized",
    "2026-11-25 03:52:38.1: W external/local_xla/xla/tsl/framework/cpu_allocator_impl.cc:83] Allocation of 4 exceeds",
    "I0000 00:00:1795579734.3 7 executor.h:7]",
]
SHOWN = [
    "2026-11-25 03:52:38.1: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:1] Unable to register cuDNN",
    "2026-11-25 03:52:38.1: F tensorflow/core/framework/tensor.cc:812] Check failed: 1 == 2",
    "E0000 00:00:1795579734.344371   12037 coordination_service_agent.cc:332] Coordination agent is set to ERROR",
    "F1125 03:52:38.123456  140123 a.cc:1] Check failed",
    "2026-11-25 03:52:38.1: W tensorflow/core/framework/op_kernel.cc:1839] OP_REQUIRES failed at matmul_op.cc:1 : ",
    "2026-11-25 03:52:38.1: I tensorflow/core/framework/op_kernel.cc:1839] OP_REQUIRES failed at matmul_op.cc:1 : ",
    "2026-11-25 03:52:38.1: W external/xla/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to",
    "2026-11-25 03:52:38.1: W tensorflow/core/grappler/optimizers/loop.cc:7] Failed to optimize",
    "Traceback (most recent call last):",
    '  File "tensorflow/python/client/session.py", line 1402, in _do_call',
    "INFO:tensorflow:loss = 0.5, step = 100 (1.2 sec)",
    "WARNING:tensorflow:From train.py:1: foo is deprecated",
    "I1125 03:52:38.123456 140123 train.py:20] loss 0.5",
    "W1125 03:52:38.123456 140123 train.py:20] slow",
    "2026-11-25 03:52:38.123456: I am a line of the user",
    "2026-11-25 03:52:38,123 I train.cc:1] another form",
    "tfk8s: worker/0 listens on port 2222: TensorFlow 2.21.0, 1 CPU",
    "user: I0000 00:00:1 7 executor.cc:7] quoted",
    "",
]


@pytest.mark.parametrize("time", ["", "2026-11-25T03:52:38.123456789Z "])
def test_lines_of_tensorflow(time: str) -> None:
    own = TensorFlowLines()
    assert [line for line in OWN if not own.include(time + line)] == []
    assert [line for line in SHOWN if own.include(time + line)] == []


@pytest.mark.parametrize("time", ["", "2026-11-25T03:52:38.123456789Z "])
def test_a_message_in_the_log_ends_with_an_empty_line(time: str) -> None:
    head = "I0000 00:00:1795581811.621331    2507 eager_service_impl.cc:355] SessionOptions: goo.gle/debugstr  "
    message = [head, "inter_op_parallelism_threads: 1", "gpu_options {", "  allow_growth: true", "}", ""]
    own = TensorFlowLines()
    lines = [*message, "loss: 1", "", head, "a line of the user", "loss: 1"]
    assert [line for line in lines if not own.include(time + line)] == ["loss: 1", "", "a line of the user", "loss: 1"]


def test_brief_leaves_them_out() -> None:
    lines = [LogLine(task=Task("worker", 0), text=text) for text in (*OWN, *SHOWN)]
    assert [line.text for line in shown(lines, LogOptions(brief=True))] == SHOWN
    assert list(shown(lines, LogOptions())) == lines


TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    run()\n    ^^^^^\n'
RPC_FIELDS = """\
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses"
\tdebug_error_string = "UNKNOWN:Error received from peer  {grpc_message:"failed to connect", grpc_status:14}"
>
"""
GRAPH_ERROR = """\
InvalidArgumentError: Graph execution error:

Detected at node Assert defined at (most recent call last):
  File "train.py", line 3, in <module>

assertion failed: [x] [4]
\t [[{{node Assert}}]] [Op:__inference_f_18]
"""
LATE = "W0000 00:00:1795597973.981580 12505 local_rendezvous.cc:412] Local rendezvous is aborting: ABORTED: Shutdown\n"
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 2, in <module>
  |     raise
  | ExceptionGroup: two reads (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: first
    +---------------- 2 ----------------
    | OSError: second
    +------------------------------------
"""
KERAS_ERROR = """\
ValueError: Exception in layer "dense".

Call arguments received by Dense.call():
  • inputs=tf.Tensor(shape=(2, 2), dtype=float32)
"""
FINALIZER = "Exception ignored in: <function Pool.__del__ at 0x7f>\n" + TRACEBACK + "AttributeError: no _close\n"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("Fatal Python error: no such seed\nPython runtime state: initialized\n", "Fatal Python error: no such seed"),
        (">\n}\n", ""),
        ("one\ntwo\n\n   \n", "two"),
        ("error: no such thing\n}\n^^^^\n>\n---\n", "error: no such thing"),
        ("42\n", "42"),
        ("  indented\n", "indented"),
        (TRACEBACK + "ValueError: no data\n", "ValueError: no data"),
        (TRACEBACK + "ValueError: no data\n" + LATE, "ValueError: no data"),
        (TRACEBACK + "ValueError: no data\nhint: add data\n", "ValueError: no data"),
        ("hint: add data\n", "hint: add data"),
        (TRACEBACK + "grpc._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:\n" + RPC_FIELDS,
         "grpc._InactiveRpcError: failed to connect to all addresses"),
        ("ERROR: <AioRpcError of RPC that terminated with:\n" + RPC_FIELDS,
         "ERROR: failed to connect to all addresses"),
        ('E: <_Rendezvous of RPC that terminated with:\n\tstatus = StatusCode.CANCELLED\n\tdetails = ""\n>\n',
         "E: status = StatusCode.CANCELLED"),
        (TRACEBACK + GRAPH_ERROR + LATE, "InvalidArgumentError: Graph execution error: assertion failed: [x] [4]"),
        (TRACEBACK + KERAS_ERROR, 'ValueError: Exception in layer "dense".'),
        (TRACEBACK + 'RuntimeError: {\n  "code": 5\n}\n', 'RuntimeError: { "code": 5'),
        (GROUP, "ExceptionGroup: two reads (2 sub-exceptions) OSError: second"),
        (TRACEBACK + "ValueError: no data\n" + FINALIZER, "ValueError: no data"),
        (TRACEBACK + "OSError: try 1\ngave up after 3 tries\n", "gave up after 3 tries"),
        (TRACEBACK + '  File "t.py", line 1\n    a b\n      ^\nSyntaxError: invalid syntax\n',
         "SyntaxError: invalid syntax"),
        ("error: the address is in use:\n  localhost:2222\n", "error: the address is in use: localhost:2222"),
        ("error: it ends with:\n", "error: it ends with:"),
    ],
)  # fmt: skip
def test_the_line_that_says_why_a_process_failed(output: str, line: str) -> None:
    assert telling_line(output.splitlines()) == line
