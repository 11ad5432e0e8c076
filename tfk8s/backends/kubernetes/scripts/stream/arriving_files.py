"""Copies the files that a script in a pod has left, when the script has ended."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

from tfk8s.backends import downloads
from tfk8s.backends.kubernetes.scripts.stream.script_stream import ScriptStream
from tfk8s.core.script import Download
from tfk8s.errors import ClusterError
from tfk8s.task.files import received


class _ArrivingFiles(io.RawIOBase):
    """The archive of the files, as it arrives."""

    def __init__(self, script: ScriptStream) -> None:
        self._script, self._block = script, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._block or self._script.read_files()
        count = min(len(buffer), len(block))
        buffer[:count], self._block = block[:count], block[count:]
        return count


def copy(script: ScriptStream, end: dict[str, Any], wanted: Sequence[Download]) -> list[str]:
    """Copy files of a script that has ended; return what was not copied, with the reasons.

    Args:
        script: the script.
        end: its frame `END`.
        wanted: the files.
    """
    if not wanted:
        return []
    if not end.get("files"):
        return ["its files were not copied: its pod ends"]
    try:
        return receive(script, wanted)
    except ClusterError as error:
        return [downloads.failure(error)]


def receive(script: ScriptStream, wanted: Sequence[Download]) -> list[str]:
    """Copy files that a pod sends now; return what was not copied, with the reasons.

    Raises:
        ClusterError: the files did not arrive whole. Nothing was changed.
    """
    source, is_whole = io.BufferedReader(_ArrivingFiles(script)), False
    try:
        problems = received.receive(source, wanted)
        with contextlib.suppress(ClusterError):  # the files are here
            is_whole = not source.read(1)  # at the end of the stream, of which the pod gets a receipt
        return problems
    finally:
        if not is_whole:
            script.leave_files()
