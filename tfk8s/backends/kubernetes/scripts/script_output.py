"""The output of a script's pod on this process' standard streams."""

from __future__ import annotations

import os
import sys

from tfk8s.core.progress import PREFIX, parse
from tfk8s.training.progress import StatusLine, can_change


class ScriptOutput:
    """Writes the output of a script, until `close`.

    Args:
        in_place: show the lines of `tfk8s.progress` as one line with a bar, if standard error is a terminal.
    """

    def __init__(self, *, in_place: bool = True) -> None:
        self._line = StatusLine(sys.stderr) if in_place and can_change(sys.stderr, os.environ) else None
        self._held = ""  # the begin of a line of standard error that may be one of progress
        self._is_begun = False  # the last line of standard error has no end yet

    @property
    def is_in_place(self) -> bool:
        """True if standard error is a terminal that shows a bar."""
        return self._line is not None

    def write(self, text: str, *, is_error: bool) -> None:
        """Write text to standard output or standard error."""
        if self._line is None or not is_error:
            self._print(text, is_error=is_error)
            return
        text, self._held = self._held + text, ""
        for part in text.splitlines(keepends=True):
            is_whole = part.endswith("\n")
            may_be_progress = not self._is_begun and (part.startswith(PREFIX) or PREFIX.startswith(part))
            if may_be_progress and not is_whole:
                self._held = part
            elif may_be_progress and (progress := parse(part)) is not None:
                self._line.show(progress.terminal_line)
            else:
                self._print(part, is_error=True)
                self._is_begun = not is_whole

    def close(self) -> None:
        """Write what is left, and end the bar's line."""
        if self._held:
            self._print(self._held, is_error=True)
        if self._line is not None:
            self._line.close()

    def _print(self, text: str, *, is_error: bool) -> None:
        stream = sys.stderr if is_error else sys.stdout
        encoding = getattr(stream, "encoding", None) or "utf-8"
        text = text.encode(encoding, "replace").decode(encoding)  # a stream may refuse a character
        if self._line is not None and stream.isatty():
            self._line.print(stream, text)
        else:
            stream.write(text)
        stream.flush()
