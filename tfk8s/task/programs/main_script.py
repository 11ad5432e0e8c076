"""Runs a Python file as `python FILE` does, in a process that runs already. Standard library only."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfk8s.call_stack import roomy
from tfk8s.task.programs import own_interpreter

MODULE = own_interpreter.MODULE
_PACKAGE = str(Path(__file__).parents[2]) + os.sep


@roomy
def run(script: str, arguments: Sequence[str]) -> None:
    """Run a file as `__main__`, or for "-m" a module; raises what its code raises, SystemExit included."""
    path = Path(script).resolve()
    sys.path.insert(0, str(path.parent))
    sys.dont_write_bytecode = True  # no __pycache__ beside the user's files
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if script == MODULE:  # Path("-m").parent is the working folder, as Python has it
        module, *rest = arguments
        sys.argv = [script, *rest]
        own_interpreter.watch(module)
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]  # what Python calls for -m
        return
    sys.argv = [script, *arguments]
    main.__file__ = str(Path(script).absolute())
    code = compile(_read(path), script, "exec", dont_inherit=True)
    own_interpreter.watch(script)
    exec(code, main.__dict__)  # noqa: S102 - the user's own program


def _read(path: Path) -> bytes:
    """Return the content of a script, or end as Python does without it."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: can't open file {str(path)!r}: {reason}", file=sys.stderr)
        raise SystemExit(2) from None


def exit_code(code: object) -> int:
    """Return the exit code that Python gives a process for the code of a SystemExit."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr, flush=True)
    return 1


def print_traceback(error: BaseException) -> None:
    """Print a traceback as Python does, or the program's own hook, without the frames of tfk8s."""
    if sys.excepthook is not sys.__excepthook__:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            trace = trace.tb_next
        sys.excepthook(type(error), error, trace)
        return
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = shown
    while part is not None:
        frames = [frame for frame in part.stack or () if not frame.filename.startswith(_PACKAGE)]
        part.stack = traceback.StackSummary.from_list(frames) if frames else None  # type: ignore[assignment]
        part = part.__cause__ or part.__context__
    print("".join(shown.format()), end="", file=sys.stderr, flush=True)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and the errors from which it came."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
