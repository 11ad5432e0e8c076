"""The message and the exit code of a failed command."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from typing import NamedTuple

from tfk8s.cli.output import line, note, paint, without_colours
from tfk8s.errors import JobFileError, Tfk8sError

BUG = 70  # EX_SOFTWARE of sysexits.h
_NO_THREAD = "can't start new thread"  # Python's words for any reason of the system
_LIMITS = {
    errno.EAGAIN: "ulimit -u shows the limit of processes",  # of fork
    errno.EMFILE: "ulimit -n shows the limit of open files",
    errno.ENOSPC: "df and df -i show what is free",
}


class Description(NamedTuple):
    """The text of a failure, for a user or a program.

    Attributes:
        code: a stable word, such as "no-such-cluster".
        message: what failed and why.
        help: the next step, or None.
        exit_code: the exit code of the command.
    """

    code: str
    message: str
    help: str | None
    exit_code: int


def report(error: Exception, *, as_json: bool = False) -> int:
    """Print an error and its help, or their JSON document; return the exit code."""
    described = describe(error)
    if as_json:
        from tfk8s.cli import json_output

        more = json_output.problems(error.file, error.problems) if isinstance(error, JobFileError) else {}
        line(json_output.error(described) | more)
    elif isinstance(error, JobFileError):
        note(described.message)
    else:
        if described.code == "bug" and os.environ.get("TFK8S_DEBUG"):
            traceback.print_exception(error)
        _print(described.message, described.help)
    return described.exit_code


def describe(error: Exception) -> Description:
    """Return the description of an error."""
    if isinstance(error, Tfk8sError):
        code = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(error).__name__).lower()
        return Description(code, str(error), error.help, error.exit_code)
    if isinstance(error, OSError):
        message = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        return Description("system", message, _LIMITS.get(error.errno or 0), 1)
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        message = "the system starts no more threads: a limit of processes or of memory is reached"
        return Description("system", message, "ulimit -u and ulimit -v show the limits", 1)
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("tfk8s"):
        message = f"tfk8s is not fully installed for {sys.executable}: {error}"
        return Description("not-installed", message, "pip install tfk8s", 1)
    message = f"this is a bug in tfk8s: {type(error).__name__}: {error} (at {place(error)})"
    return Description("bug", message, "please report it, with the traceback that TFK8S_DEBUG=1 shows", BUG)


def place(error: Exception) -> str:
    """Return the last place in tfk8s that an exception passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    of_tfk8s = [frame for frame in frames if f"{os.sep}tfk8s{os.sep}" in frame.filename] or list(frames)
    return f"{of_tfk8s[-1].filename}:{of_tfk8s[-1].lineno}" if of_tfk8s else "an unknown place"


def _print(message: str, advice: str | None) -> None:
    headline = f"{paint('error:', '1;31', sys.stderr)} {without_colours(message)}"
    note(f"{headline}\n  = help: {without_colours(advice)}" if advice else headline)
