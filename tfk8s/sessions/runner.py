"""Runs a session script: prepares what it sees, watches its cluster, and ends it where it would wait for ever.

A script sees what `python FILE` would show it (arguments, folder, standard streams, exit code), and besides:
`TFK8S_TARGET` and `TFK8S_CLUSTER`, with `--tf1` TensorFlow 1's `import tensorflow`, and named failures on standard
error. Where it would wait for ever, it is ended (call_guard.py). Standard library and TensorFlow only: this file also
runs in pods.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tfk8s.errors import TaskError, Tfk8sError
from tfk8s.sessions import error_names, patch
from tfk8s.sessions.call_guard import INTERRUPTED, TASK_FAILED, ScriptWatch
from tfk8s.sessions.diagnosis import ClusterProbe
from tfk8s.sessions.lost_tasks import known
from tfk8s.sessions.preflight import ClusterView

_OWN = str(Path(__file__).parents[1]) + os.sep


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
    verdict = FailureNote(os.environ.pop(error_names.VARIABLE, None))
    witness = ClusterProbe(ClusterView.of(os.environ))
    try:
        witness.check()
    except Tfk8sError as error:
        return _named(error, verdict, error_names.A_TASK_FAILED)
    ScriptWatch(options.events, known, witness.view, _say, verdict.end).start()
    filters = witness.view.filters
    when_imported(patch.SESSION_MODULE, lambda: patch.patch_sessions(filters, isolate=options.isolate))
    if options.tf1:
        give_tf1()
    return run_main(options.script, options.arguments, witness, verdict)


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


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Do something as soon as a module has been imported, which may be now."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Importer(name, then))


class _Importer(importlib.abc.MetaPathFinder):
    """Finds one module, once, where others would, and does something after it has been executed."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_then(module: types.ModuleType) -> None:
                execute(module)
                self._then()

            setattr(spec.loader, "exec_module", execute_and_then)  # noqa: B010 - of this one loader
        return spec


def run_main(script: str, arguments: Sequence[str], witness: ClusterProbe, verdict: FailureNote) -> int:
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
        return _failed(error, witness, verdict)
    return 0


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    _say(str(code))
    return 1


# ---- how it failed -------------------------------------------------------------------------------------------------


class FailureNote:
    """Where it is noted that a script ended because of a task: its exit code alone may be the script's own.

    Args:
        path: of a file; None where nobody asks.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path

    def note(self, words: str) -> None:
        """Note it, in one of the words of `verdicts`; a full disk is no reason to fail."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                Path(self._path).write_text(words)

    def end(self, code: int) -> NoReturn:
        """End this process at once, as its watcher wants."""
        if code == TASK_FAILED:
            self.note(error_names.A_TASK_FAILED)  # seconds ago
        _end(code)


def _failed(error: BaseException, witness: ClusterProbe, verdict: FailureNote) -> int:
    """Print what ended the script; return its exit code."""
    meaning: Tfk8sError | None = None
    if isinstance(error, Tfk8sError):
        meaning = error
    elif isinstance(error, Exception) and _is_tensorflows(error):
        meaning = witness.explain(error)
    if meaning is None or os.environ.get("TFK8S_DEBUG"):
        _print_whole(error)
    else:
        _print_briefly(error)
    if meaning is not None:
        return _named(meaning, verdict, error_names.A_TASK_FAILED_JUST_NOW)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _print_whole(error: BaseException) -> None:
    """Print a traceback as Python does, but for what is tfk8s' own in it."""
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = shown
    while part is not None:
        part.stack = traceback.StackSummary.from_list([one for one in part.stack if not one.filename.startswith(_OWN)])
        part = part.__cause__ or part.__context__
    print("".join(shown.format()), end="", file=sys.stderr, flush=True)


def _print_briefly(error: BaseException) -> None:
    """Print where in the script it failed, and the first of TensorFlow's words: the page that follows helps nobody."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not _is_inside(one.filename)]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    cause = error.__cause__ if isinstance(error, Tfk8sError) else error
    if cause is not None:
        lines.append(
            f"{type(cause).__name__}: {error_names.first_sentence(str(cause))} (TFK8S_DEBUG=1 shows the rest)\n"
        )
    print("".join(lines), end="", file=sys.stderr, flush=True)


def _is_tensorflows(error: Exception) -> bool:
    """Return whether TensorFlow raised it: one of its own, or another where what it is called with can't be."""
    raised_at = traceback.extract_tb(error.__traceback__)[-1].filename
    return type(error).__module__.startswith("tensorflow.") or _is_inside(raised_at)


def _is_inside(file: str) -> bool:
    return file.startswith(_OWN) or f"{os.sep}tensorflow{os.sep}python{os.sep}" in file


def _named(error: Tfk8sError, verdict: FailureNote, of_a_task: str) -> int:
    if isinstance(error, TaskError):
        verdict.note(of_a_task)
    _say(f"error: {error}" + (f"\n  = help: {error.help}" if error.help else ""))
    return error.exit_code


# ---- the end -------------------------------------------------------------------------------------------------------


def _end(code: int) -> NoReturn:
    """End this process at once, whatever its threads do."""
    flush()
    os._exit(code)


def exit_process(code: int) -> NoReturn:
    """End this process as Python does, but for taking down modules: for TensorFlow's that takes 0.6 s."""
    getattr(threading, "_shutdown")()  # noqa: B009 - waits for threads, as in multiprocessing's forks
    atexit._run_exitfuncs()
    _end(code)


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
    parser = argparse.ArgumentParser(prog="tfk8s.sessions.runner", description="Run a session script.")
    parser.add_argument("--tf1", action="store_true", help="`import tensorflow` gives TensorFlow 1's")
    parser.add_argument("--isolate", action="store_true", help="sessions keep their variables to themselves")
    parser.add_argument("--events", type=int, metavar="FD", help="where news of tasks comes from")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    return execute(Options(options.script, options.arguments, options.tf1, options.isolate, options.events))


if __name__ == "__main__":
    exit_process(main())
