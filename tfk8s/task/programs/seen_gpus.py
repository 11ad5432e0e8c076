"""Compares the GPUs of a program's task with those that TensorFlow sees, before the program's first line.

A server compares the devices that it has opened (`task/server.py`). For a program, a child process opens TensorFlow's
devices by TensorFlow's C API, as a server does, and ends. The process that then runs the program has touched no GPU, so
that the program can still choose its devices, and the growth of their memory. Standard library only: this file also
runs in pods.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from tfk8s.core import naming
from tfk8s.core.programs import NO_GPUS
from tfk8s.task import gpus, server
from tfk8s.task.programs import command

_MAX_TEXT = 4096
LIMIT = 120.0  # in seconds; a driver without persistence mode starts each GPU first


def count_gpus(tensorflow: str) -> int:
    """Open TensorFlow's devices in this process; return the number of GPUs.

    Args:
        tensorflow: the folder of the package `tensorflow`.
    """
    try:
        library = server.open_library(f"{tensorflow}/libtensorflow_cc.so.2")
        return _count(library)
    except (OSError, AttributeError):  # a build without the library, or without its functions
        import tensorflow as tf

        return len(tf.config.list_physical_devices("GPU"))


def _count(library: ctypes.CDLL) -> int:
    """Return the number of GPUs of a session (TF_SessionListDevices in tensorflow/c/c_api.h)."""
    pointer, number = ctypes.c_void_p, ctypes.c_int
    status, graph, options = (
        server.function(library, name, pointer)() for name in ("TF_NewStatus", "TF_NewGraph", "TF_NewSessionOptions")
    )
    new_session = server.function(library, "TF_NewSession", pointer, pointer, pointer, pointer)
    list_devices = server.function(library, "TF_SessionListDevices", pointer, pointer, pointer)
    kind = server.function(library, "TF_DeviceListType", ctypes.c_char_p, pointer, number, pointer)
    session = new_session(graph, options, status)
    devices = session and list_devices(session, status)
    if not devices:
        message = server.function(library, "TF_Message", ctypes.c_char_p, pointer)(status)
        raise RuntimeError(message.decode(errors="replace"))
    size = server.function(library, "TF_DeviceListCount", number, pointer)(devices)
    return sum(kind(devices, index, status) == b"GPU" for index in range(size))


def are_missing(
    environment: Mapping[str, str], count: Callable[[str], int] | None = None, limit: float = LIMIT
) -> bool:
    """Write the number of GPUs that TensorFlow sees to standard error; return whether some of the task's are missing.

    Args:
        environment: the variables of the task. Without TFK8S_GPUS, nothing is compared.
        count: returns the number of GPUs for the folder of the package `tensorflow`; default: `count_gpus`.
        limit: in seconds.
    """
    required = int(environment.get("TFK8S_GPUS", "0"))
    if not required:
        return False
    name = naming.task(environment["TFK8S_JOB"], int(environment["TFK8S_INDEX"]))
    tensorflow = server.find_tensorflow()
    if tensorflow is None:
        _say(gpus.uncompared_line(name, required))
        return False

    def compare() -> str:
        if (seen := (count or count_gpus)(tensorflow)) >= required:
            return gpus.seen_line(name, required)
        return gpus.unseen_line(name, seen, required, gpus.why_unseen(required, tensorflow, environment))

    line, messages = _in_child(compare, limit)
    line = line if gpus.parse_line(line) else gpus.unseen_line(name, 0, required, line)
    _, _, reason = gpus.parse_line(line) or (0, 0, "")
    if reason:
        sys.stderr.write(messages)  # of TensorFlow
    _say(line)
    return bool(reason)


def _in_child(compare: Callable[[], str], limit: float) -> tuple[str, str]:
    """Return the text of a function that a child process calls, or why there is none; and the child's messages."""
    messages = os.memfd_create("messages")
    reader, writer = socket.socketpair()
    child = os.fork()
    if not child:
        _answer(compare, writer, messages)
    writer.close()
    try:
        text, is_late = _read(reader, limit)
        if is_late:
            os.kill(child, signal.SIGKILL)
            text = f"TensorFlow did not list its devices within {limit:g} s"
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        written = os.pread(messages, os.fstat(messages).st_size, 0).decode(errors="replace")
    finally:
        reader.close()
        os.close(messages)
    if not text:
        text = f"{signal.Signals(-code).name if code < 0 else f'exit code {code}'} ended TensorFlow at its devices"
    return text, written


def _answer(compare: Callable[[], str], writer: socket.socket, messages: int) -> NoReturn:
    """Write the text of a function to a socket, and end this child process."""
    try:
        os.dup2(messages, 2)
        os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # others may use the GPUs meanwhile
        writer.sendall(compare().encode())
    except BaseException as error:
        writer.sendall(f"{type(error).__name__}: {error}".encode(errors="replace")[:_MAX_TEXT])
    finally:
        os._exit(0)


def _read(reader: socket.socket, limit: float) -> tuple[str, bool]:
    """Return the words that a child process has written until its end; and whether the limit was over before."""
    end, text = time.monotonic() + limit, b""
    try:
        while (left := end - time.monotonic()) > 0:
            reader.settimeout(left)
            if not (data := reader.recv(_MAX_TEXT)):
                return " ".join(text.decode(errors="replace").split()), False
            text += data
    except TimeoutError:
        pass
    return "", True


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(words: Sequence[str]) -> int:
    """Become a command if TensorFlow sees the GPUs of the task; else return the exit code."""
    if not are_missing(os.environ):
        command.become(words)
    return NO_GPUS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
