"""The message and the exit code of a failed command."""

from __future__ import annotations

import os
import sys
import traceback

from tfk8s.cli.output import note, paint
from tfk8s.errors import JobFileError, Tfk8sError

BUG = 70  # EX_SOFTWARE of sysexits.h


def report(error: Exception) -> int:
    """Print an error and its help; return the exit code."""
    if isinstance(error, JobFileError):
        note(str(error))
        return error.exit_code
    if isinstance(error, Tfk8sError):
        _print(str(error), error.help)
        return error.exit_code
    if isinstance(error, OSError):
        _print(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", None)
        return 1
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("tfk8s"):
        _print(f"tfk8s is not fully installed for {sys.executable}: {error}", "pip install tfk8s")
        return 1
    if os.environ.get("TFK8S_DEBUG"):
        traceback.print_exception(error)
    _print(
        f"this is a bug in tfk8s: {type(error).__name__}: {error} (at {place(error)})",
        "please report it, with the traceback that TFK8S_DEBUG=1 shows",
    )
    return BUG


def place(error: Exception) -> str:
    """Return the last place in tfk8s that an exception passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    of_tfk8s = [frame for frame in frames if f"{os.sep}tfk8s{os.sep}" in frame.filename] or list(frames)
    return f"{of_tfk8s[-1].filename}:{of_tfk8s[-1].lineno}" if of_tfk8s else "an unknown place"


def _print(message: str, advice: str | None) -> None:
    headline = f"{paint('error:', '1;31', sys.stderr)} {message}"
    note(f"{headline}\n  = help: {advice}" if advice else headline)
