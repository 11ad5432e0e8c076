"""The Python stacks of a process, from faulthandler's text to the answer on a socket."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tfk8s.task.programs import inspector, stacks
from tfk8s.task.programs.stacks import Frame, StackListener

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract sockets")

PACKAGE = Path(stacks.__file__).parents[2]
MAIN = str(PACKAGE / "task" / "programs" / "main_script.py")
PATCH = str(PACKAGE / "sessions" / "patch.py")
SESSION = "/lib/python3.11/site-packages/tensorflow/python/client/session.py"
LOCK = f"{Path(os.__file__).parent}/threading.py"
CONTEXT = f"{Path(os.__file__).parent}/contextlib.py"

TEXT = f"""\
Thread 0x00007f0000000002 (most recent call first):
  File "{SESSION}", line 977 in run
  File "{PATCH}", line 130 in <lambda>
  File "train.py", line 7 in step
  File "train.py", line 9 in <module>
  File "{MAIN}", line 36 in run
  File "<string>", line 8 in <module>

Thread 0x00007f0000000003 [reader] (most recent call first):
  File "{LOCK}", line 324 in wait
  File "feeder.py", line 180 in get

Current thread 0x00007f0000000004 (most recent call first):
  <no Python frame>

Thread 0x00007f0000000005 (most recent call first):
  File "{LOCK}", line 324 in wait
"""


def test_threads_of_faulthandler() -> None:
    assert stacks.parse(TEXT) == {
        0x7F0000000002: [
            Frame("<string>", 8, "<module>"), Frame(MAIN, 36, "run"), Frame("train.py", 9, "<module>"),
            Frame("train.py", 7, "step"), Frame(PATCH, 130, "<lambda>"), Frame(SESSION, 977, "run"),
        ],
        0x7F0000000003: [Frame("feeder.py", 180, "get"), Frame(LOCK, 324, "wait")],
        0x7F0000000004: [],
        0x7F0000000005: [Frame(LOCK, 324, "wait")],
    }  # fmt: skip


def test_description_leaves_out_tfk8s_and_threads_without_python() -> None:
    names = {0x7F0000000002: "MainThread", 0x7F0000000005: "tfk8s-monitor"}
    assert stacks.describe(stacks.parse(TEXT), names, {0x7F0000000002: {"seconds": 41.2, "needs": ["worker/1"]}}) == [
        {
            "name": "MainThread",
            "is_main": False,
            "frames": [["train.py", 9, "<module>", ""], ["train.py", 7, "step", ""], [SESSION, 977, "run", ""]],
            "call": {"name": "session.run", "seconds": 41.2, "needs": ["worker/1"]},
        },
        {
            "name": "thread 0x7f0000000003",
            "is_main": False,
            "frames": [["feeder.py", 180, "get", ""], [LOCK, 324, "wait", stacks.linecache.getline(LOCK, 324).strip()]],
            "call": None,
        },
    ]


@pytest.mark.parametrize(
    ("files", "call"),
    [
        (["train.py"], ""),
        (["train.py", LOCK], ""),
        (["train.py", "/x/keras/src/trainer.py", SESSION], "trainer.f"),
        (["train.py", "/x/tensorflow/python/training/coordinator.py", LOCK], "coordinator.f"),
        (["train.py", SESSION, PATCH, SESSION], "session.f"),
        ([SESSION, "callback.py"], ""),
        (["train.py", "/x/tf_keras/src/trainer.py", CONTEXT, SESSION], "trainer.f"),
    ],
)
def test_call_is_the_function_that_the_users_code_calls(files: list[str], call: str) -> None:
    assert stacks.tensorflow_call([Frame(file, 1, "f") for file in files]) == call


WRAPPERS = (Frame("/x/tensorflow/python/util/traceback_utils.py", 1, "error_handler"),
            Frame("/x/tensorflow/python/ops/weak_tensor_ops.py", 1, "wrapper"),
            Frame("/x/tensorflow/python/util/dispatch.py", 1, "op_dispatch_handler"))  # fmt: skip


def test_wrappers_around_the_function_are_not_named() -> None:
    own, fit = Frame("train.py", 1, "error_handler"), Frame("/x/keras/src/trainer.py", 1, "fit")
    assert stacks.tensorflow_call([own, *WRAPPERS, fit, Frame(SESSION, 1, "run"), *WRAPPERS]) == "trainer.fit"
    assert stacks.tensorflow_call([own, *WRAPPERS]) == "dispatch.op_dispatch_handler"
    assert stacks.tensorflow_call([own]) == ""


def test_characters_that_faulthandler_escapes() -> None:
    text = 'Thread 0x01 (most recent call first):\n  File "/tmp/jos\\xe9/\\u4e2d.py", line 9 in \\U0001f600\n'
    assert stacks.parse(text) == {1: [Frame("/tmp/josé/中.py", 9, "😀")]}


@linux
def test_threads_that_faulthandler_leaves_out_are_no_secret() -> None:
    leave = threading.Event()
    waiting = [threading.Thread(target=leave.wait, args=[60]) for _ in range(110)]
    for thread in waiting:
        thread.start()
    try:
        with answering(StackListener()):
            answer = inspector.ask([os.getpid()], timeout=60)[os.getpid()]
    finally:
        leave.set()
        for thread in waiting:
            thread.join(60)
    assert json.loads(answer or b"")["problem"] == "only the 100 newest threads are shown"


@contextlib.contextmanager
def answering(listener: StackListener) -> Iterator[None]:
    thread = threading.Thread(target=listener.answer)
    thread.start()
    try:
        yield
    finally:
        thread.join(20)
        listener.close()


@linux
def test_process_answers_its_user_with_its_stacks() -> None:
    def wait_here() -> None:
        entered.set()
        leave.wait(60)

    entered, leave = threading.Event(), threading.Event()
    waiting = threading.Thread(target=wait_here, name="waiting")
    waiting.start()
    assert entered.wait(60)
    try:
        with answering(StackListener()):
            answer = inspector.ask([os.getpid()], timeout=60)[os.getpid()]
    finally:
        leave.set()
        waiting.join(60)
    threads = {thread["name"]: thread for thread in json.loads(answer or b"")["threads"]}
    assert next(iter(threads)) == "MainThread"
    assert ["wait_here", "leave.wait(60)"] in [frame[2:] for frame in threads["waiting"]["frames"]]


@linux
def test_other_users_get_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = StackListener()
    with answering(listener), socket.socket(socket.AF_UNIX) as client:
        monkeypatch.setattr(inspector, "peer", lambda _: (os.getpid(), os.geteuid() + 1))
        client.connect(inspector.address(os.getpid()))
        assert client.recv(1) == b""


@linux
def test_only_threads_that_wait_in_tensorflow_are_read() -> None:
    """CPython 3.11 can't read the frames of a running thread safely."""
    asked: list[list[int]] = []

    def calls(threads: Collection[int]) -> dict[int, dict[str, object]]:
        asked.append(list(threads))
        return {}

    with answering(StackListener(calls)):
        assert inspector.ask([os.getpid()], timeout=60)[os.getpid()]
    assert asked == [[]]


@linux
def test_calls_that_can_not_be_read_do_not_end_the_listener() -> None:
    def fail(_: object) -> dict[int, dict[str, object]]:
        raise AttributeError("no frame")

    with answering(StackListener(fail)):
        assert inspector.ask([os.getpid()], timeout=60)[os.getpid()]
