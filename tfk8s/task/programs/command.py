"""Commands of programs. Standard library only: this file runs in pods."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tfk8s.core.programs import Program

_ROOT = str(Path(__file__).parents[3])  # the folder or the zip of this package
# Runs in the program's interpreter, which may be of any version, and may lack tfk8s. The first folder of the path may
# hide modules of Python: the working folder, which comes back as that of the program, or _ROOT.
_RUN = """
import sys
root, words = sys.argv[1], sys.argv[2:]
if not getattr(sys.flags, "safe_path", False):
    del sys.path[0]
try:
    if sys.version_info < (3, 11):
        raise ImportError("Python %d.%d is older than 3.11" % sys.version_info[:2])
    sys.path.insert(0, root)
    import tfk8s
    del sys.path[0]
    from tfk8s.core.programs import Program
    from tfk8s.task.programs import runner
except Exception as error:
    import os
    sys.stderr.write("tfk8s: %s runs without help, and ends with 1 if another task is lost: %s\\n" % (words[0], error))
    sys.stderr.flush()
    os.execvp(words[0], words)
runner.exit_process(runner.main(Program(tuple(words)).python_arguments))
"""
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as a shell has them


def through_runner(program: Program) -> list[str]:
    """Return the command that runs the program of a Python command by `runner`, in the interpreter that it names."""
    interpreter = program.words[: -len(program.python_arguments)]
    return [*interpreter, "-c", _RUN, _ROOT, *program.words]


def become(words: Sequence[str]) -> NoReturn:
    """Replace this process by a command; end the process with one line if the command can't run."""
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
        os.execvp(words[0], list(words))
    except OSError as error:
        if error.errno == errno.E2BIG:
            size = len(os.environ["TF_CONFIG"])
            reason = f"TF_CONFIG has {size} bytes, and the kernel allows a command 131071: run a Python file instead"
        else:
            reason = error.strerror or str(error)
        print(f"tfk8s: {words[0]} can't run: {reason}", file=sys.stderr, flush=True)
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)
