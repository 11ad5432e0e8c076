"""The Python stacks of this process, for `tfk8s stacks`.

A process listens at `inspector.address`, and answers each connection with its stacks. faulthandler reads the stacks.
In CPython 3.11, walking the frame objects of threads that run is not safe; faulthandler makes no such objects. While
nobody asks, a thread sleeps in the kernel.

Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import linecache
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfk8s.core import naming
from tfk8s.task.programs import inspector

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_MAIN = str(Path(__file__).with_name("main_script.py"))  # executes scripts
_STANDARD_LIBRARY = str(Path(os.__file__).parent) + os.sep
_SEND_TIMEOUT = 2.0  # for a client that does not read
_ROOT = 0
_OWN_THREADS = "tfk8s-"

# The lines of faulthandler, Python/traceback.c; since Python 3.14, the name of a thread follows its id.
_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)(?: \[.*\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")  # characters that are not ASCII
_MORE_THREADS = "..."  # after MAX_NTHREADS, 100
_TENSORFLOW = re.compile(r"/(?:tensorflow|keras|tf_keras)/")
# The functions in TensorFlow and Keras that decorators put around others, to filter tracebacks, dispatch or warn.
_WRAPPERS = re.compile(r"\w*wrap(?:per|ped)\w*|decorat\w+|inner|new_func|(?:autograph|error|op_dispatch)_handler")

Calls = Mapping[int, Mapping[str, Any]]


class Frame(NamedTuple):
    """One frame of a stack.

    Attributes:
        file: the file, as Python's tracebacks have it.
        line: the number of the line.
        function: the name of the function.
    """

    file: str
    line: int
    function: str


class StackListener:
    """Answers `tfk8s stacks` with the stacks of this process.

    Args:
        get_calls: returns what is known of TensorFlow's calls in some threads, by the identifier of the thread.

    Raises:
        OSError: this system has no such sockets, or the address is in use.
    """

    def __init__(self, get_calls: Callable[[Collection[int]], Calls] = lambda _: {}) -> None:
        self._get_calls = get_calls
        if sys.platform != "linux":
            raise OSError("abstract sockets need Linux")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(inspector.address(os.getpid()))
            self._listener.listen()
        except OSError:
            self._listener.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor that is readable when somebody asks."""
        return self._listener.fileno()

    def answer(self) -> None:
        """Answer the next connection. Abstract sockets have no permissions, so only this user gets an answer."""
        with contextlib.suppress(Exception):  # the client is gone, or a module changed: the thread has other work
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(_SEND_TIMEOUT)
                if inspector.peer(connection)[1] in (os.geteuid(), _ROOT):
                    connection.sendall(json.dumps(self._describe()).encode())

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _describe(self) -> dict[str, Any]:
        """Return the threads, and the name of the script if several scripts share a pod."""
        text = dump()
        stacks = parse(text)
        calls: Calls = {}
        with contextlib.suppress(Exception):  # a frame can change while it is read
            calls = self._get_calls([ident for ident, frames in stacks.items() if tensorflow_call(frames)])
        threads = describe(stacks, {thread.ident: thread.name for thread in threading.enumerate()}, calls)
        problem = "only the 100 newest threads are shown" if _MORE_THREADS in text.splitlines() else ""
        return {"script": os.environ.get(naming.SHARED_POD, ""), "threads": threads, "problem": problem}


def serve() -> None:
    """Answer from a thread of its own, until this process ends."""
    with contextlib.suppress(OSError):
        listener = StackListener()
        threading.Thread(target=_answer_all, args=[listener], name="tfk8s-stacks", daemon=True).start()


def _answer_all(listener: StackListener) -> None:
    while True:
        listener.answer()


def dump() -> str:
    """Return faulthandler's text for all threads of this process but the calling one."""
    with open(os.memfd_create("stacks"), "w+", errors="replace") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


def describe(stacks: Mapping[int, list[Frame]], names: Mapping[int | None, str], calls: Calls) -> list[dict[str, Any]]:
    """Return threads as plain data, the main thread first, without those of tfk8s.

    Args:
        stacks: the frames of each thread by its identifier, as `parse` returns them.
        names: the names of threads by their identifiers. Threads without a name belong to no Python code.
        calls: what is known of TensorFlow's calls, by the same.
    """
    main = threading.main_thread().ident
    found = []
    for ident, frames in stacks.items():
        thread = names.get(ident, f"thread {ident:#x}")
        if ident == threading.get_ident() or not frames or thread.startswith(_OWN_THREADS):
            continue
        name = tensorflow_call(frames)
        found.append(
            {
                "name": thread,
                "is_main": ident == main,
                "frames": [[*frame, _source(frame)] for frame in _shown(frames)],
                "call": {"name": name, **calls.get(ident, {})} if name else None,
            }
        )
    return sorted(found, key=lambda thread: not thread["is_main"])


def parse(text: str) -> dict[int, list[Frame]]:
    """Return the frames of each thread in faulthandler's text, the innermost last, by the thread's identifier."""
    threads: dict[int, list[Frame]] = {}
    frames: list[Frame] = []
    for line in text.splitlines():
        if match := _THREAD.fullmatch(line):
            frames = threads[int(match[1], 16)] = []
        elif match := _FRAME.fullmatch(line):
            frames.insert(0, Frame(_plain(match[1]), int(match[2]), _plain(match[3])))
    return threads


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), text)


def tensorflow_call(frames: Sequence[Frame]) -> str:
    """Return the function of TensorFlow or Keras that a thread is in: `session.run`; "" for other code.

    Args:
        frames: the thread's frames, the innermost last.
    """
    called = None
    for frame in reversed(frames):
        if _TENSORFLOW.search(frame.file):
            called = called if called and _WRAPPERS.fullmatch(frame.function) else frame
        elif not (_is_library(frame) or frame.file.startswith(_PACKAGE)):  # a library's: a lock, or a decorator
            break
    return f"{Path(called.file).stem}.{called.function}" if called else ""


def _is_library(frame: Frame) -> bool:
    return frame.file.startswith(_STANDARD_LIBRARY) and "-packages" not in frame.file


def _shown(frames: Sequence[Frame]) -> list[Frame]:
    """Leave out the frames around a script, and tfk8s' frames around the calls of sessions."""
    begin = max((number + 1 for number, frame in enumerate(frames) if frame.file == _MAIN), default=0)
    inner = [number for number, frame in enumerate(frames) if not frame.file.startswith(_PACKAGE)]
    end = max(inner, default=0)
    return [frame for number, frame in enumerate(frames) if number >= begin and (number in inner or number > end)]


def _source(frame: Frame) -> str:
    linecache.checkcache(frame.file)
    module = None
    if frame.file.startswith(_PACKAGE):  # in a pod a part of a zip, which only the loader of the module can read
        path = Path(frame.file).relative_to(Path(_PACKAGE).parent).with_suffix("")
        module = sys.modules.get(".".join(path.parts))
    return linecache.getline(frame.file, frame.line, vars(module) if module else None).strip()
