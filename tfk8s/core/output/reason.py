"""The line of a process' output that says why the process failed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tfk8s.core.output.tensorflow_log import TensorFlowLines

_TRACEBACK = re.compile(r"(?:\s*\+ Exception Group )?Traceback \(most recent call last\):")
_FATAL = "Fatal Python error: "  # the interpreter's state and threads follow
_IGNORED = "Exception ignored in"  # Python's own traceback of a finalizer, after the one that ends a program
_GROUP_BORDER = re.compile(r" {2,}\| ?")  # before each line of an exception group
_WORD = re.compile(r"\w")  # "^^^^", ">" and "}" have none
_HEADING = re.compile(r"(?::|[<{(\[]|sub-exceptions?\))$")  # what follows says more
_RPC = re.compile(r"<\w+ of RPC that terminated with:$")  # gRPC's errors, with a field a line
_RPC_DETAILS = re.compile(r'\s+details = "([^"].*?)"?$')


def telling_line(output: Iterable[str]) -> str:
    """Return the words at the end of a process' output that say why the process failed, or "".

    Python's errors may have several lines. So the line that says something need not be the last one: gRPC's errors end
    with ">", those of TensorFlow's graphs with the name of a node.

    Args:
        output: the last lines.
    """
    own = TensorFlowLines()
    lines = [_GROUP_BORDER.sub("", line.rstrip(), count=1) for line in output if not own.include(line)]
    lines = [line for line in lines if not line.startswith("hint: ")] or lines
    if fatal := next((line for line in reversed(lines) if line.startswith(_FATAL)), ""):
        return fatal
    ignored = next((i for i, line in enumerate(lines) if line.startswith(_IGNORED)), 0)
    lines = lines[: ignored or None]
    full = [i for i, line in enumerate(lines) if _is_outer(line)]
    full = full or [i for i, line in enumerate(lines) if _WORD.search(line)]
    if not full:
        return ""
    last, error = full[-1], _error(lines)
    # A message of several lines has empty or indented lines. Other lines are what a program wrote after the error.
    at = last if error is None or all(map(_is_outer, lines[error : last + 1])) else error
    heading = _RPC.sub("", lines[at]).strip()
    return f"{heading} {_explanation(lines[at + 1 :])}".strip() if _HEADING.search(lines[at]) else heading


def _is_outer(line: str) -> bool:
    return bool(line) and not line[0].isspace() and bool(_WORD.search(line))


def _error(lines: Sequence[str]) -> int | None:
    """Return the number of the line that has the name of the last error with a traceback; None without."""
    begins = [i for i, line in enumerate(lines) if _TRACEBACK.match(line)]
    after = range(begins[-1] + 1, len(lines)) if begins else ()
    return next((i for i in after if _is_outer(lines[i])), None)


def _explanation(lines: Sequence[str]) -> str:
    """Return the line that says most of those after a heading."""
    for line in lines:
        if match := _RPC_DETAILS.match(line):
            return match[1]
    outer = [line for line in lines if _is_outer(line)]
    return next(reversed(outer), "") or next((line.strip() for line in lines if _WORD.search(line)), "")
