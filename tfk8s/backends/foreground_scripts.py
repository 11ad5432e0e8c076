"""Scripts that end with the command that runs them: common parts of the backends without pods, and of warm pods."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from tfk8s.backends.parts import TensorBoard
from tfk8s.backends.protocol import Absent
from tfk8s.core.programs import exit_code
from tfk8s.core.script import Outcome, Script
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
        code: the return code of its process, as in `subprocess`.
        note: the runner's note; "" if there is none.
    """
    if code < 0:
        from tfk8s.sessions import failures  # most scripts end without

        if message := failures.ended_by_signal(str(script.path), code):
            log.warning(message)
    return Outcome(exit_code(code), task_failed=error_names.is_task_failure(note))


class FailureFile:
    """A file, in a `with`, in which a script's runner notes that it ended the script because of a task.

    The file has no name, so that nothing is left if this process is killed.

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

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


class ForegroundScripts:
    """Scripts and TensorBoard of a backend without pods, on this machine.

    Args:
        find: raises a NoSuchCluster for a name that no cluster has.
        run: runs a script whose options fit.
    """

    in_pods = False

    def __init__(self, find: Callable[[str], object], run: Callable[[str, Script], Outcome]) -> None:
        self._find, self._run = find, run

    def check(self, script: Script) -> None:
        """Raise an InvalidInput for options that only work in pods."""
        check(script)

    def run(self, name: str, script: Script) -> Outcome:
        """Run a script with this process' standard streams; return how it ended."""
        self._find(name)
        check(script)
        return self._run(name, script)

    def tensorboard(
        self, name: str, *, folder: str | None, requirements: Path | None, token: str, port: int
    ) -> AbstractContextManager[TensorBoard]:
        """Run TensorBoard in a process that ends with this process."""
        from tfk8s.backends import local_tensorboard  # most scripts do without

        self._find(name)
        return local_tensorboard.run(folder, requirements, token, port)


def no_detached(find: Callable[[str], object]) -> Absent:
    """Return the part that stands for scripts that outlive their command, which only pods run."""
    return Absent(find, lambda *_: InvalidInput(
        "a script on this machine ends with the command that runs it, and writes to its terminal: --detach is for "
        "Kubernetes, and so are `logs` and `stop` of a script",
        help="detach a script in the shell: nohup tfk8s submit … SCRIPT > script.log 2>&1 &; stop it with Ctrl-C in "
        "its terminal, or end the process that `tfk8s status` shows: kill PID",
    ))  # fmt: skip
