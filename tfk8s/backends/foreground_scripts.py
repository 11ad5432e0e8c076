"""Scripts that end with the command that runs them: common parts of the backends without pods."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from types import TracebackType
from typing import IO, NoReturn

from tfk8s.core.script import LogOptions, Outcome, Script
from tfk8s.errors import InvalidInput
from tfk8s.log import log
from tfk8s.sessions import error_names


def check(script: Script) -> None:
    """Raise an InvalidInput for options that only work in pods."""
    if script.requirements:
        raise InvalidInput(
            "--requirements is for Kubernetes: on this machine a script runs in the virtual environment that is active",
            help=f"install into that: pip install -r {script.requirements}",
        )
    if script.gpus:
        raise InvalidInput(
            "--gpus is for Kubernetes: on this machine a script sees the GPUs that CUDA_VISIBLE_DEVICES shows it",
            help=f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(script.gpus)))} tfk8s submit …",
        )


class FailureFile:
    """A file, in a `with`, in which a script's runner notes that it ended the script because of a task.

    Args:
        script: the script.

    Attributes:
        environment: names the file to the runner. It is empty if no file can be created.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._file: IO[str] | None = None
        self.environment: Mapping[str, str] = {}

    def __enter__(self) -> FailureFile:
        with contextlib.suppress(OSError):
            self._file = tempfile.NamedTemporaryFile("r", prefix="tfk8s-")
            self.environment = {error_names.VARIABLE: self._file.name}
        return self

    def outcome(self, code: int) -> Outcome:
        """Return how the script ended, from its process' return code; log the signal that ended it."""
        if code < 0:
            from tfk8s.sessions import failures  # most scripts end without

            if message := failures.ended_by_signal(str(self._script.path), code):
                log.warning(message)
        note = self._file.read() if self._file else ""
        return Outcome(code if code >= 0 else 128 - code, task_failed=error_names.is_task_failure(note))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


class ForegroundScripts:
    """Refuses detached scripts; a base class of backends."""

    def start(self, name: str, script: Script) -> NoReturn:
        """Refuse."""
        del name
        raise InvalidInput(
            "a script on this machine ends with the command that runs it: --detach is for Kubernetes",
            help=f"detach it in the shell: nohup tfk8s submit … {script.path} > {script.path.stem}.log 2>&1 &",
        )

    def show(self, name: str, script: str, options: LogOptions) -> NoReturn:
        """Refuse."""
        del name, options
        raise InvalidInput(f"the output of {script} is not stored: scripts on this machine write to their terminal")

    def stop(self, name: str, script: str) -> NoReturn:
        """Refuse."""
        del name
        raise InvalidInput(
            f"{script} can't be stopped by name: a script on this machine ends with the command that runs it",
            help="press Ctrl-C in the terminal that started it",
        )
