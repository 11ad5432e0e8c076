"""Prints log messages on standard error, above a live panel if there is one."""

from __future__ import annotations

import contextlib
import logging

from tfk8s.cli.output import note, without_colours
from tfk8s.log import log


class LogHandler(logging.Handler):
    """Prints progress as commands print it, and warnings with the program's name: scripts write there too."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        prefix = "tfk8s: " if record.levelno >= logging.WARNING else ""
        with contextlib.suppress(OSError):  # the terminal is gone
            note(f"{prefix}{without_colours(record.getMessage())}")


def install() -> None:
    """Have all messages printed by one handler."""
    log.setLevel(logging.INFO)
    log.handlers = [LogHandler()]
