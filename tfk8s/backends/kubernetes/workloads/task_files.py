"""Copies files between this machine and the containers of tasks."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from tfk8s.backends.kubernetes.api_server import commands
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.commands import RemoteCommand
from tfk8s.core.script import Download
from tfk8s.errors import ClusterError
from tfk8s.log import log
from tfk8s.task.files import copy, packed, received

_BLOCK = 1 << 16


def fetch(client: Client, namespace: str, pod: str, download: Download) -> list[str]:
    """Copy a file or a folder of a task to this machine; return what was not copied, with the reasons.

    Raises:
        ClusterError: the copy broke off. Nothing here was changed.
    """
    words = [*copy.COMMAND, copy.SEND, download.path]
    with RemoteCommand(client, namespace, pod, words, stdin=False) as command:
        return received.receive(io.BufferedReader(commands.Output(command)), [download])


def send(client: Client, namespace: str, pod: str, local: Path, path: str) -> None:
    """Copy a file or a folder of this machine to a task.

    Raises:
        ClusterError: not everything was copied; says why.
    """
    words = [*copy.COMMAND, copy.RECEIVE, local.resolve().name, path]
    with RemoteCommand(client, namespace, pod, words) as command:
        with io.BufferedWriter(_Input(command), _BLOCK) as sink:
            packed.pack([str(local)], sink)
        text = command.wait().decode(errors="replace").strip()
    if command.exit_code:
        raise ClusterError(text or command.failure)
    if text:  # the links that were left out
        log.warning("%s", text)


class _Input(io.RawIOBase):
    """The standard input of a command as a file."""

    def __init__(self, command: RemoteCommand) -> None:
        self._command = command

    def writable(self) -> bool:
        return True

    def write(self, block: Any) -> int:
        self._command.send(bytes(block))
        return len(block)
