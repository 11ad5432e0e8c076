"""The file of `--result`: how a command ended, as a JSON document, for commands whose standard output is a script's."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tfk8s.cli import json_output, signals
from tfk8s.cli.error_report import describe
from tfk8s.cli.output import moment, note
from tfk8s.errors import InvalidInput

Result = Annotated[
    str | None,
    typer.Option("--result", metavar="FILE", help="Write the exit code, the times and an error to FILE, as JSON."),
]
_INTERRUPTED = 130


class CommandEnd:
    """The end of a command.

    Attributes:
        exit_code: the exit code.
    """

    exit_code = 0


@contextlib.contextmanager
def written(file: str, command: str) -> Iterator[CommandEnd]:
    """In a `with`, run a command, and write how the command ended, also after an error or a signal.

    The file is complete whenever it exists: it is written beside its place first.

    Args:
        file: the file's path.
        command: the command's name.

    Raises:
        InvalidInput: the file can't be written; raised before the command begins.
    """
    path, started, ending = Path(file), time.time(), CommandEnd()
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidInput(f'--result can\'t write "{file}"', help="name a file in a folder that you may write to")
    failure: Exception | None = None
    try:
        yield ending
    except Exception as error:
        failure, ending.exit_code = error, describe(error).exit_code
        raise
    except BaseException:
        ending.exit_code = signals.exit_code() or _INTERRUPTED
        raise
    finally:
        found = None if failure is None or signals.exit_code() is not None else json_output.error(describe(failure))
        _write(path, {
            "kind": "Result",
            "command": command,
            "exit_code": signals.exit_code() or ending.exit_code,
            "error": found,
            "started": moment(started),
            "ended": moment(time.time()),
        })  # fmt: skip


def _write(path: Path, document: json_output.Document) -> None:
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        Path(file.name).replace(path)
    except OSError as error:
        note(f"the result could not be written: {error}")
