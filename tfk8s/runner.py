"""Runs a session script: prepares what it sees, watches its cluster, and ends it where it would wait for ever.

A script sees what `python FILE` would show it (arguments, folder, standard streams, exit code), and besides:
`TFK8S_TARGET` and `TFK8S_CLUSTER`, with `--tf1` TensorFlow 1's `import tensorflow`, and named failures on standard
error. TensorFlow's sessions wait for ever on a dead master, for long on a dead worker, and ignore SIGINT in
`session.run`; so a thread beside the script knows of lost tasks and of Ctrl-C, and ends the script if, some
seconds later, it still sits in the very same call. Standard library and TensorFlow only: this file also runs in pods.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import functools
import gc
import io
import json
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tfk8s.errors import TaskUnreachable
from tfk8s.forward import Forward
from tfk8s.sessions import require_answers

LOST_SECONDS = 3.0  # TensorFlow reports most losses itself within this time
INTERRUPT_SECONDS = 1.0
MAX_RELAYS = 256
TASK_FAILED = 3
INTERRUPTED = 130

_SESSION_MODULE = "tensorflow/python/client/session.py"


@dataclass(frozen=True, slots=True)
class Options:
    """What to run, and how; as in `backends.Script`."""

    script: str
    arguments: Sequence[str] = ()
    tf1: bool = False
    isolate: bool = False
    events: int | None = None  # a descriptor with a line of JSON for each change of a task


def execute(options: Options) -> int:
    """Run the script in this process, as `__main__`; return its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the script runs, nothing is here to be interrupted
    if os.environ.get("TFK8S_RELAY") == "1":
        relay(json.loads(os.environ["TFK8S_CLUSTER"]), int(os.environ["TFK8S_PORT"]))
    try:
        require_answers(os.environ)
    except TaskUnreachable as error:
        _say(f"error: {error}\n  = help: {error.help}")
        return error.exit_code
    watch = Watch(options.events)
    watch.start()
    if options.tf1:
        give_tf1()
    if options.isolate:
        isolate_sessions()
    return run_main(options.script, options.arguments, watch)


def relay(cluster: Mapping[str, Sequence[str]], first_port: int) -> list[Forward]:
    """Make each task reachable at the loopback address that it would have on a single machine.

    Args:
        cluster: the master's job first, then by name.
        first_port: of the master; jobs whose tasks listen on another port count from that one.

    Returns:
        What listens, for as long as it lives. Past `MAX_RELAYS` tasks, nothing does: who wrote a script with fixed
        addresses did not write thousands of them.
    """
    relays: list[Forward] = []
    following = first_port
    for addresses in cluster.values():
        own_port = int(addresses[0].rpartition(":")[2])
        first = following if own_port == first_port else own_port
        for index, address in enumerate(addresses[: MAX_RELAYS - len(relays)]):
            relays.append(Forward(functools.partial(_connect, address), first + index))
        following = first + len(addresses) if own_port == first_port else following
    return relays


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=None)


# ---- what the script sees ------------------------------------------------------------------------------------------


def give_tf1() -> None:
    """Make `import tensorflow` give `tensorflow.compat.v1`, with TensorFlow 1's behaviour."""
    import logging

    import tensorflow.compat.v1 as tf1

    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns that resource variables are disabled, which is the point
    tf1.disable_v2_behavior()
    logger.setLevel(level)
    sys.modules["tensorflow"] = tf1


def isolate_sessions() -> None:
    """Have every session of this process keep its variables to itself (ConfigProto.isolate_session_state)."""
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.client import session

    original = session.BaseSession.__init__

    def isolated(self: object, target: str = "", graph: object = None, config: object = None) -> None:
        own = config_pb2.ConfigProto()
        if config is not None:
            own.CopyFrom(config)
        own.isolate_session_state = True
        original(self, target, graph, own)

    session.BaseSession.__init__ = isolated


def run_main(script: str, arguments: Sequence[str], watch: Watch) -> int:
    """Run a file as `python FILE` does; return the exit code that Python would end with."""
    path = Path(script).resolve()
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        del sys.path[0]  # this module's place
    sys.path.insert(0, str(path.parent))
    sys.dont_write_bytecode = True  # no __pycache__ beside the user's files
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        exec(compile(path.read_bytes(), script, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - the user's own program
    except SystemExit as end:
        return _exit_code(end.code)
    except BaseException as error:
        return _failed(error, watch)
    return 0


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    _say(str(code))
    return 1


def _failed(error: BaseException, watch: Watch) -> int:
    frames = error.__traceback__.tb_next if error.__traceback__ else None  # without this file's
    traceback.print_exception(type(error), error, frames)
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if type(error).__module__.startswith("tensorflow.") and watch.lost_tasks(wait=1.0):
        _say(watch.verdict("the script failed because of it"))
        return TASK_FAILED
    return 1


# ---- what is watched -----------------------------------------------------------------------------------------------


class Watch(threading.Thread):
    """Knows which tasks were lost and whether Ctrl-C came, and ends the script where it is stuck in a session's call.

    A call is told from the next one by its frame, so that a script which opens a new session goes on.
    """

    def __init__(self, events: int | None) -> None:
        super().__init__(name="tfk8s-watch", daemon=True)
        self._events = events
        self._lost: dict[str, str] = {}
        self._told = threading.Condition()
        self._pending: list[tuple[float, int, frozenset[types.FrameType]]] = []
        self._signals, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)

    def lost_tasks(self, wait: float) -> dict[str, str]:
        """Return the tasks lost since the script began, with reasons; waits up to `wait` seconds for the first."""
        with self._told:
            self._told.wait_for(lambda: self._lost, wait)
            return dict(self._lost)

    def verdict(self, conclusion: str) -> str:
        """Return the lost tasks in words, and what they mean for the script."""
        lost = "; ".join(f"{task} was lost: {reason}" for task, reason in self._lost.items())
        return (
            f"error: {lost}; {conclusion}\n"
            "  = help: a lost worker or master takes its sessions with it, a lost ps its variables;"
            " lost tasks are started again: run the script once more"
        )

    def run(self) -> None:
        """Wait for news and deadlines, for as long as the process lives."""
        sources = [self._signals] if self._events is None else [self._signals, self._events]
        while True:
            readable, _, _ = select.select(sources, [], [], self._until_deadline())
            if self._signals in readable and signal.SIGINT in os.read(self._signals, 64):
                self._allow(INTERRUPT_SECONDS, INTERRUPTED)
            if self._events in readable and not self._read_events(self._events):
                sources.remove(self._events)
            self._end_if_stuck()

    def _read_events(self, events: int) -> bool:
        """Take in news of tasks; return whether more can come."""
        data = os.read(events, 1 << 16)
        with self._told:
            for line in data.splitlines():
                news = json.loads(line)
                self._lost[news["task"]] = news["reason"]
                _say(f"tfk8s: {news['task']} was lost: {news['reason']}")
            self._told.notify_all()
        if data:
            self._allow(LOST_SECONDS, TASK_FAILED)
        return bool(data)

    def _allow(self, seconds: float, code: int) -> None:
        """Give the calls that are under way so long to end."""
        if calls := session_calls():
            self._pending.append((time.monotonic() + seconds, code, calls))

    def _until_deadline(self) -> float | None:
        return max(0.0, min(due for due, _, _ in self._pending) - time.monotonic()) if self._pending else None

    def _end_if_stuck(self) -> None:
        now = time.monotonic()
        for due, code, calls in [entry for entry in self._pending if entry[0] <= now]:
            self._pending.remove((due, code, calls))
            if calls & session_calls():
                if code == TASK_FAILED:
                    _say(self.verdict("a session waited for it, and the script was ended"))
                flush()
                os._exit(code)


def session_calls() -> frozenset[types.FrameType]:
    """Return the frames of TensorFlow's session module that threads of this process are in now."""
    calls = set()
    for frame in sys._current_frames().values():
        place: types.FrameType | None = frame
        while place is not None:
            if place.f_code.co_filename.endswith(_SESSION_MODULE):
                calls.add(place)
            place = place.f_back
    return frozenset(calls)


def leave(code: int) -> NoReturn:
    """End this process as Python does, but for taking down modules: for TensorFlow's that takes 0.6 s."""
    getattr(threading, "_shutdown")()  # noqa: B009 - waits for threads, as in multiprocessing's forks
    atexit._run_exitfuncs()
    flush()
    os._exit(code)


def flush() -> None:
    """Write what open files hold back, as Python does when it takes them down."""
    files = [one for one in gc.get_objects() if issubclass(type(one), io.IOBase)]
    for file in (*files, sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # nobody reads any more, or it was closed
            file.flush()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script that the command line names; return its exit code."""
    parser = argparse.ArgumentParser(prog="tfk8s.runner", description="Run a session script.")
    parser.add_argument("--tf1", action="store_true", help="`import tensorflow` gives TensorFlow 1's")
    parser.add_argument("--isolate", action="store_true", help="sessions keep their variables to themselves")
    parser.add_argument("--events", type=int, metavar="FD", help="where news of tasks comes from")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    return execute(Options(options.script, options.arguments, options.tf1, options.isolate, options.events))


if __name__ == "__main__":
    leave(main())
