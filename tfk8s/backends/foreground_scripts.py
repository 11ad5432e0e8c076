"""Scripts that end with the command that runs them: common parts of the backends without pods, and of warm pods."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import IO, NoReturn

from tfk8s.backends.protocol import Backend
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
    if gpus := script.resources.gpus:
        raise InvalidInput(
            "--gpus is for Kubernetes: on this machine a script sees the GPUs that CUDA_VISIBLE_DEVICES shows it",
            help=f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(gpus)))} tfk8s submit …",
        )
    if script.resources.cpu or script.resources.memory:
        raise InvalidInput(
            "--cpu and --memory are for Kubernetes: on this machine a script has the cores and the memory of its user",
            help="leave them out",
        )


def outcome(script: Script, code: int, note: str) -> Outcome:
    """Return how a script ended; log the signal that ended it.

    Args:
        script: the script.
        code: the return code of its process, as in `subprocess`.
        note: the runner's note; "" if there is none.
    """
    if code < 0:
        from tfk8s.sessions import failures  # most scripts end without

        if message := failures.ended_by_signal(str(script.path), code):
            log.warning(message)
    return Outcome(code if code >= 0 else 128 - code, task_failed=error_names.is_task_failure(note))


class FailureFile:
    """A file, in a `with`, in which a script's runner notes that it ended the script because of a task.

    The file has no name, so that nothing is left if this process is killed.

    Args:
        script: the script.

    Attributes:
        descriptors: the descriptor of the file, for the script's process; none if no file can be created.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._file: IO[str] | None = None
        self.descriptors: Sequence[int] = ()

    def __enter__(self) -> FailureFile:
        with contextlib.suppress(OSError):
            self._file = tempfile.TemporaryFile("r+")
            self.descriptors = (self._file.fileno(),)
        return self

    def environment(self, number: int | None = None) -> dict[str, str]:
        """Return the variable that names the file to the runner; nothing if there is no file.

        Args:
            number: the file's descriptor in the script's process; default: the same as here.
        """
        if not self.descriptors:
            return {}
        return {error_names.VARIABLE: f"/dev/fd/{self.descriptors[0] if number is None else number}"}

    def outcome(self, code: int) -> Outcome:
        """Return how the script ended, from its process' return code; log the signal that ended it."""
        note = ""
        if self._file is not None:
            self._file.seek(0)  # where /dev/fd/N shares the position
            note = self._file.read()
        return outcome(self._script, code, note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


class ForegroundScripts:
    """Refuses detached scripts, of clusters that exist; a base class of backends."""

    def start(self: Backend, name: str, script: Script) -> NoReturn:
        """Refuse."""
        self.observe(name)
        raise InvalidInput(
            "a script on this machine ends with the command that runs it: --detach is for Kubernetes",
            help=f"detach it in the shell: nohup tfk8s submit … {script.path} > {script.path.stem}.log 2>&1 &",
        )

    def show(self: Backend, name: str, script: str, options: LogOptions) -> NoReturn:
        """Refuse."""
        del options
        self.observe(name)
        raise _not_stored(script)

    def script_log(self: Backend, name: str, script: str) -> NoReturn:
        """Refuse."""
        self.observe(name)
        raise _not_stored(script)

    def stop(self: Backend, name: str, script: str) -> NoReturn:
        """Refuse."""
        self.observe(name)
        raise InvalidInput(
            f"{script} can't be stopped by name: a script on this machine ends with the command that runs it",
            help="press Ctrl-C in the terminal that started it, or end the process that `tfk8s status` shows: kill PID",
        )


def _not_stored(script: str) -> InvalidInput:
    return InvalidInput(f"the output of {script} is not stored: scripts on this machine write to their terminal")
