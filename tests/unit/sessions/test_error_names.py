"""What TensorFlow's failures mean. The messages are its own: 2.21, servers killed and restarted on one machine."""

from __future__ import annotations

from tfk8s.errors import (
    DeviceMissing,
    GraphTooLarge,
    InvalidInput,
    OutOfMemory,
    TaskLost,
    TaskRestarted,
    TaskUnreachable,
)
from tfk8s.sessions import error_names
from tfk8s.sessions.error_names import ProbeResult, TaskChanges

WORKER = "/job:worker/replica:0/task:1"
KILLED = (
    f"Graph execution error:\n\nFrom {WORKER}:\nrecvmsg:Connection reset by peer\nAdditional GRPC error information from "
    f"remote target {WORKER} while calling /tensorflow.WorkerService/RunGraph:\n:UNKNOWN:Error received from peer  "
    '{grpc_message:"recvmsg:Connection reset by peer", grpc_status:14}'
)
TWO = (
    f"Graph execution error:\n\n=====================\nUNAVAILABLE: From {WORKER}:\nSocket closed\nAdditional GRPC error "
    f"information from remote target {WORKER} while calling /tensorflow.WorkerService/RunGraph:\n:UNKNOWN:Error received"
    ' from peer  {grpc_message:"Socket closed", grpc_status:14}\nUNAVAILABLE: From /job:master/replica:0/task:0:\nSocket '
    "closed"
)
RESTARTED = (
    f"Graph execution error:\n\nFrom {WORKER}:\nSession handle is not found: 2a7500ba300ffcc0. Possibly this worker "
    f'("{WORKER}") just restarted.'
)
INCARNATION = (
    "Graph execution error:\n\nFrom /job:master/replica:0/task:0:\nRecvTensor expects a different device incarnation: "
    f'7031201763488379407 vs. 16284784288165407696. Your worker job ("{WORKER}") was probably restarted. Check your '
    "worker job for the reason why it was restarted.\nAdditional GRPC error information from remote target"
)
CANCELLED = (
    "Graph execution error:\n\n=====================\nCANCELLED: From /job:master/replica:0/task:0:\n"
    "RecvFromRemoteAsync is cancelled.\n\t [[{{node add_1_S7}}]]\nRecent warning and error logs:\n  W0000 00:00 local"
)
MASTER = "Graph execution error:\n\nSession 9f219a9800720d08 is not found."
UNINITIALIZED = (
    "Graph execution error:\n\nDetected at node 'v/read' defined at (most recent call last):\n    File \"/tmp/exp.py\", "
    "line 23, in <module>\nNode: 'v/read'\nFrom /job:ps/replica:0/task:0:\nAttempting to use uninitialized value v\n\t "
    "[[{{node v/read}}]]\nRecent warning and error logs:\n  W0000 00:00:1795270448.150720   25641 local_rendezvous.cc"
)
RESOURCE = (
    "Graph execution error:\n\nDetected at node 'ReadVariableOp' defined at (most recent call last):\n    File \"a.py\", "
    "line 32, in <module>\nNode: 'ReadVariableOp'\n=====================\nFAILED_PRECONDITION: From "
    "/job:ps/replica:0/task:0:\nCould not find variable w. This could mean that the variable has been deleted. In TF1, it "
    "can also mean the variable is uninitialized. Debug info: container=ps, status error message=Resource ps/w/N10"
)
PLACEMENT = (
    "Graph execution error:\n\nDetected at node 'add' defined at (most recent call last):\n    File \"a.py\", line 32, in "
    "<module>\nNode: 'add'\nCannot assign a device for operation add: {{{{node add}}}} was explicitly assigned to {} but "
    "available devices are [ /job:master/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, "
    "/job:worker/replica:0/task:0/device:GPU:0 ]. Make sure the device specification refers to a valid device. The "
    "requested device appears to be a GPU, but CUDA is not enabled.\n\t [[add]]"
)
PYTHON = (
    "Graph execution error:\n\nNode: 'PyFunc'\nNo registered 'PyFunc' OpKernel for 'CPU' devices compatible with node "
    f"{{{{node PyFunc}}}}\n\t.  Registered:  <no registered kernels>\n\n\t [[PyFunc]]\nAdditional GRPC error information "
    f"from remote target {WORKER} while calling /tensorflow.WorkerService/RegisterGraph:"
)
RESULT = (
    "Graph execution error:\n\nFailed to encode tensor to byte buffer: Cannot encode a Tensor that exceeds the 2GB "
    "protobuf limit. Exceeded bytes: 252516352 (request_id: 6067375829651518705 step_id: 62846598056272620)"
)
MEMORY = (
    f"Graph execution error:\n\nRESOURCE_EXHAUSTED: From {WORKER}:\nOOM when allocating tensor with shape[600000000] and "
    f"type float on {WORKER}/device:CPU:0 by allocator cpu\n\t [[{{{{node random_uniform/RandomUniform}}}}]]\nHint: If you "
    "want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom to RunOptions"
)
TWICE = "Graph execution error:\n\nThe same RunStep (Master) request was received twice. step_id: 1"

LOST = TaskChanges(master="master/0", lost={"worker/1": "killed by SIGKILL"})
BACK = TaskChanges(master="master/0", restarted={"worker/1": "killed by SIGKILL"})
PS_BACK = TaskChanges(master="master/0", restarted={"ps/0": ""})
MASTER_BACK = TaskChanges(master="master/0", restarted={"master/0": "exit code 137"})
WELL = TaskChanges(master="master/0")


NAMED = [
    ("UnavailableError", KILLED, LOST, TaskLost, "worker/1 was lost: killed by SIGKILL"),
    ("UnavailableError", TWO, LOST, TaskLost, "worker/1 was lost: killed by SIGKILL"),
    (
        "AbortedError", RESTARTED, BACK, TaskRestarted,
        "worker/1 was restarted (killed by SIGKILL): sessions opened before are lost, and variables if it kept any",
    ),
    ("AbortedError", INCARNATION, BACK, TaskRestarted, "worker/1 was restarted (killed by SIGKILL): sessions"),
    ("CancelledError", CANCELLED, BACK, TaskRestarted, "worker/1 was restarted (killed by SIGKILL): sessions"),
    ("CancelledError", CANCELLED, WELL, None, ""),
    (
        "AbortedError", MASTER, MASTER_BACK, TaskRestarted,
        "master/0 was restarted (exit code 137): sessions opened before are lost; variables on other tasks are still",
    ),
    (
        "UnavailableError", "Socket closed",
        TaskChanges(master="master/0", lost={"a/0": "killed", "master/0": "evicted"}), TaskLost,
        "master/0 was lost: evicted",
    ),
    ("UnavailableError", KILLED, PS_BACK, TaskRestarted, "ps/0 was restarted: its variables are lost, and so are"),
    (
        "FailedPreconditionError", UNINITIALIZED, PS_BACK, TaskRestarted,
        'ps/0 was restarted; variable "v" has lost its value',
    ),
    (
        "FailedPreconditionError", RESOURCE, PS_BACK, TaskRestarted,
        'ps/0 was restarted; variable "w" has lost its value',
    ),
    (
        "FailedPreconditionError", UNINITIALIZED, TaskChanges(lost={"ps/0": "evicted"}), TaskRestarted,
        'ps/0 was restarted (evicted); variable "v" has lost its value',
    ),
    ("FailedPreconditionError", UNINITIALIZED, WELL, None, ""),
    (
        "AbortedError", TWICE, WELL, TaskUnreachable,
        "the connection to master/0 broke, although all tasks answer: The same RunStep (Master) request was",
    ),
    ("DeadlineExceededError", "Deadline Exceeded", WELL, None, ""),
    ("NotFoundError", PYTHON, WELL, InvalidInput, "a Python function (py_func) can't run on worker/1: tasks run"),
    (
        "InternalError", RESULT, WELL, GraphTooLarge,
        "what the session fetches is too large: one message holds at most 2 GB",
    ),
    (
        "ValueError", "Cannot create a tensor proto whose content is larger than 2GB.", WELL, GraphTooLarge,
        "a constant of the graph is too large: one message holds at most 2 GB",
    ),
    ("ValueError", "Tensor conversion requested dtype int32 for Tensor with dtype float32", LOST, None, ""),
    (
        "ResourceExhaustedError", MEMORY, WELL, OutOfMemory,
        'worker/1 has too little memory on CPU:0 for operation "random_uniform/RandomUniform": it tried to',
    ),
    ("InvalidArgumentError", "Incompatible shapes: [2] vs. [3]", LOST, None, ""),
]  # fmt: skip


def test_named() -> None:
    for kind, message, known, meaning, says in NAMED:
        named = error_names.classify(kind, message, known)
        assert type(named) is (meaning or type(None)), kind
        if named is not None:
            assert str(named).startswith(says)
            assert named.help


DEVICES = [
    ("/job:worker/task:0/device:GPU:1", WELL, "worker/0 has 1 GPU"),
    ("/job:master/task:0/device:GPU:1", WELL, "master/0 has no GPUs"),
    ("/job:worker/task:7", WELL, "the session has no task worker/7; it has master/0, worker/0"),
    ("/job:nosuch/task:0", WELL, "this cluster has jobs master, worker, and no job nosuch"),
    (
        "/job:worker/replica:0/task:3/device:CPU:0",
        TaskChanges(without=["worker/3"]),
        "worker/3 is left out of this session",
    ),
    ("/device:TPU:0", WELL, "no task has a TPU:0"),
    ("/job:ps", WELL, "this cluster has jobs master, worker, and no job ps"),
    (
        "/job:ps",
        TaskChanges(without=["ps/0"]),
        "no task of the session has it; the session has master/0, worker/0",
    ),
]


def test_missing_device_is_named_with_the_existing_ones() -> None:
    for wanted, known, says in DEVICES:
        named = error_names.classify("InvalidArgumentError", PLACEMENT.format(wanted), known)
        assert isinstance(named, DeviceMissing), wanted
        assert str(named) == f'operation "add" is pinned to {wanted}: {says}', wanted


def test_advice_for_a_job_with_another_name_is_about_names() -> None:
    named = error_names.classify("InvalidArgumentError", PLACEMENT.format("/job:nosuch/task:0"), WELL)
    assert named is not None
    assert named.help == "change the job's name in the script's tf.device(…), or in the job file"


def test_changes_of_tasks_between_two_probes() -> None:
    before = [
        ProbeResult("master/0", incarnation=1),
        ProbeResult("ps/0", incarnation=2),
        ProbeResult("worker/0", incarnation=3),
    ]
    now = [
        ProbeResult("master/0", incarnation=1),
        ProbeResult("ps/0", incarnation=9),
        ProbeResult("worker/0", error="Connection refused"),
    ]
    assert error_names.compare(before, now, {"ps/0": "killed by SIGKILL"}) == TaskChanges(
        master="master/0", lost={"worker/0": "Connection refused"}, restarted={"ps/0": "killed by SIGKILL"}
    )
    assert error_names.compare(before, before, {"ps/0": "an older story"}) == TaskChanges(master="master/0")
    assert error_names.compare(before[:1], before, {}) == TaskChanges(master="master/0"), (
        "nobody knows what the others were"
    )


PAGES = [
    (KILLED, "recvmsg:Connection reset by peer"),
    (
        RESTARTED,
        f'Session handle is not found: 2a7500ba300ffcc0. Possibly this worker ("{WORKER}") just restarted.',
    ),
    (UNINITIALIZED, "Attempting to use uninitialized value v"),
    (MASTER, "Session 9f219a9800720d08 is not found."),
    ("Deadline Exceeded", "Deadline Exceeded"),
    ("", ""),
]


def test_the_words_of_a_page() -> None:
    for message, words in PAGES:
        assert error_names.first_sentence(message) == words, message
