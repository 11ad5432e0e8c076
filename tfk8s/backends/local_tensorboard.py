"""TensorBoard in a process of this machine, for the backends whose scripts write to its folders."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from tfk8s.backends import child_process
from tfk8s.core.environment import SCRIPT_DEFAULTS
from tfk8s.errors import InvalidInput, Tfk8sError

_FOLDER = "logs"  # Keras' callback and many examples write there
_STOP_TIMEOUT = 10.0


def run(folder: str | None, requirements: Path | None, token: str, port: int) -> TensorBoardProcess:
    """Run TensorBoard in a process that ends with this process, as `Scripts.tensorboard` describes the options."""
    check(folder or _FOLDER, requirements)
    return TensorBoardProcess(folder or _FOLDER, token, port)


def check(folder: str, requirements: Path | None) -> None:
    """Raise an InvalidInput if this machine can't show a folder."""
    if requirements is not None:
        raise InvalidInput(
            "--requirements is for Kubernetes: on this machine TensorBoard runs in tfk8s' own environment",
            help="pip install 'tfk8s[tensorboard]'",
        )
    if importlib.util.find_spec("tensorboard") is None:
        raise InvalidInput(
            f"TensorBoard is not installed for {sys.executable}", help="pip install 'tfk8s[tensorboard]'"
        )
    if not Path(folder).is_dir():
        raise InvalidInput(
            f'there is no folder "{folder}"',
            help="name the folder of the event files: tfk8s tensorboard NAME FOLDER",
        )


class TensorBoardProcess:
    """TensorBoard in a process that ends with this process; stopped at the end of a `with`.

    Args:
        folder: the folder of event files.
        token: the page's path.
        port: the page's port.

    Attributes:
        folder: the same.
    """

    def __init__(self, folder: str, token: str, port: int) -> None:
        self.folder = folder
        command = [sys.executable, "-P", "-m", "tfk8s.sessions.pod.tensorboard", f"--port={port}", "--", folder]
        self._process = child_process.start(command, {**SCRIPT_DEFAULTS, **os.environ, "TFK8S_TOKEN": token})

    def require_running(self) -> None:
        """Check that the process runs.

        Raises:
            Tfk8sError: the process has ended.
        """
        code = self._process.poll()
        if code is not None:
            raise Tfk8sError(f"TensorBoard ended with exit code {code}: its messages are above")

    def show_messages(self) -> None:
        """Do nothing: the process writes to this terminal."""

    def __enter__(self) -> TensorBoardProcess:
        return self

    def __exit__(self, *_: object) -> None:
        child_process.stop(self._process, _STOP_TIMEOUT)
