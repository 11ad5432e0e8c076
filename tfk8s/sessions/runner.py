"""Runs a session script: prepares its environment, guards its session calls, and explains its failures.

A script gets all that `python FILE` would give it (arguments, folder, standard streams, exit code). It also gets
`TFK8S_TARGET` and `TFK8S_CLUSTER`, with `--tf1` TensorFlow 1's `import tensorflow`, and named failures on standard
error. A script that would wait for ever is ended (call_guard.py). Standard library and TensorFlow only: this file also
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
import logging
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from tfk8s.errors import TaskError, Tfk8sError
from tfk8s.log import log
from tfk8s.sessions import error_names, patch
from tfk8s.sessions.call_guard import INTERRUPTED, TASK_FAILED, CallGuard, ExitScript
from tfk8s.sessions.diagnosis import ClusterProbe
from tfk8s.sessions.guard_thread import GuardThread
from tfk8s.sessions.lost_tasks import of_script
from tfk8s.sessions.preflight import ClusterView

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def execute(options: argparse.Namespace) -> int:
    """Run the script in this process, as `__main__`; return its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before the script, Ctrl-C just ends this process
    _install_log_handler()
    note = FailureNote(os.environ.pop(error_names.VARIABLE, None))
    cluster = ClusterProbe(ClusterView.of(os.environ), of_script)
    try:
        cluster.check()
    except Tfk8sError as error:
        return _report(error, note, error_names.A_TASK_FAILED)
    if options.events is not None:
        of_script.expect()
    guard = GuardThread(CallGuard(of_script, cluster.view, ExitScript(note.end)), options.events)
    guard.take_signals()
    guard.start()
    filters = cluster.view.filters
    when_imported(patch.SESSION_MODULE, lambda: patch.patch_sessions(filters, isolate=options.isolate))
    if options.tf1:
        give_tf1()
    return run_main(options.script, options.arguments, cluster, note)


def _install_log_handler() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("tfk8s: %(message)s"))
    log.addHandler(handler)
    log.propagate = False  # a script's own handlers would print messages again


# ---- the script's environment --------------------------------------------------------------------------------------


def give_tf1() -> None:
    """Make `import tensorflow` give `tensorflow.compat.v1`, with TensorFlow 1's behaviour."""
    import tensorflow.compat.v1 as tf1

    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns that resource variables are disabled, as intended
    tf1.disable_v2_behavior()
    logger.setLevel(level)
    sys.modules["tensorflow"] = tf1


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call a function as soon as a module has been imported, or now if it has been."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Importer(name, then))


class _Importer(importlib.abc.MetaPathFinder):
    """Finds one module, once, as other finders would, and calls a function after the module's execution."""

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


def run_main(script: str, arguments: Sequence[str], cluster: ClusterProbe, note: FailureNote) -> int:
    """Run a file as `python FILE` does; return Python's exit code."""
    path = Path(script).resolve()
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        del sys.path[0]  # this module's folder
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
        return _fail(error, cluster, note)
    return 0


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr, flush=True)
    return 1


# ---- failures ------------------------------------------------------------------------------------------------------


class FailureNote:
    """A note that a script ended because of a task. The exit code alone may be the script's own.

    Args:
        path: a file; None if nobody reads the note.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path

    def write(self, text: str) -> None:
        """Write `error_names.A_TASK_FAILED` or `A_TASK_FAILED_JUST_NOW`, unless the disk is full."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                Path(self._path).write_text(text)

    def end(self, code: int) -> NoReturn:
        """End this process at once, for the script's guard."""
        if code == TASK_FAILED:
            self.write(error_names.A_TASK_FAILED)  # seconds ago
        _end(code)


def _fail(error: BaseException, cluster: ClusterProbe, note: FailureNote) -> int:
    """Print the error that ended the script; return the exit code."""
    meaning: Tfk8sError | None = None
    if isinstance(error, Tfk8sError):
        meaning = error
    elif isinstance(error, Exception) and _is_tensorflows(error):
        meaning = cluster.explain(error)
    if meaning is None or os.environ.get("TFK8S_DEBUG"):
        _print_whole(error)
    else:
        _print_briefly(error)
    if meaning is not None:
        return _report(meaning, note, error_names.A_TASK_FAILED_JUST_NOW)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _print_whole(error: BaseException) -> None:
    """Print a traceback as Python does, without the frames of tfk8s."""
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = shown
    while part is not None:
        part.stack = traceback.StackSummary.from_list(
            [frame for frame in part.stack if not frame.filename.startswith(_PACKAGE)]
        )
        part = part.__cause__ or part.__context__
    print("".join(shown.format()), end="", file=sys.stderr, flush=True)


def _print_briefly(error: BaseException) -> None:
    """Print the script's frames, and the first sentence of TensorFlow's message, which has a page of C++ after it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_inside(frame.filename)]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    cause = error.__cause__ if isinstance(error, Tfk8sError) else error
    if cause is not None:
        lines.append(
            f"{type(cause).__name__}: {error_names.first_sentence(str(cause))} (TFK8S_DEBUG=1 shows the rest)\n"
        )
    print("".join(lines), end="", file=sys.stderr, flush=True)


def _is_tensorflows(error: Exception) -> bool:
    """Return whether TensorFlow raised an error: one of its own, or one about its arguments."""
    raised_at = traceback.extract_tb(error.__traceback__)[-1].filename
    return type(error).__module__.startswith("tensorflow.") or _is_inside(raised_at)


def _is_inside(file: str) -> bool:
    return file.startswith(_PACKAGE) or f"{os.sep}tensorflow{os.sep}python{os.sep}" in file


def _report(error: Tfk8sError, note: FailureNote, text: str) -> int:
    """Print an error, and note the failure of a task; return the exit code."""
    if isinstance(error, TaskError):
        note.write(text)
    print(f"error: {error}" + (f"\n  = help: {error.help}" if error.help else ""), file=sys.stderr, flush=True)
    return error.exit_code


# ---- the end -------------------------------------------------------------------------------------------------------


def _end(code: int) -> NoReturn:
    """End this process at once, with all its threads."""
    flush()
    os._exit(code)


def exit_process(code: int) -> NoReturn:
    """End this process as Python does, but without the destruction of modules: TensorFlow's take 0.6 s."""
    getattr(threading, "_shutdown")()  # noqa: B009 - waits for threads, as in multiprocessing's forks
    atexit._run_exitfuncs()
    _end(code)


def flush() -> None:
    """Flush open files, as Python does when it destroys them."""
    files = [file for file in gc.get_objects() if issubclass(type(file), io.IOBase)]
    for file in (*files, sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # its reader is gone, or it is closed
            file.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script that the command line names; return its exit code."""
    parser = argparse.ArgumentParser(prog="tfk8s.sessions.runner", description="Run a session script.")
    parser.add_argument("--tf1", action="store_true", help="`import tensorflow` gives TensorFlow 1's")
    parser.add_argument("--isolate", action="store_true", help="sessions keep their variables to themselves")
    parser.add_argument("--events", type=int, metavar="FD", help="the pipe with changes of tasks")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return execute(parser.parse_args(arguments))


if __name__ == "__main__":
    exit_process(main())
