"""The commit of a folder, read by git beside the command that wants to know it."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

_TIMEOUT = 2.0  # for git in a slow or very large folder
_LONGEST = 2000  # characters of an answer

# `describe` compares the files that git knows. A hook of the folder's own configuration must not run for that.
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false")
_COMMIT = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
_REMOTE = ("config", "--get", "remote.origin.url")


class Commit:
    """The commit of a folder at one moment. The processes of git run until `read`."""

    def __init__(self, folder: Path) -> None:
        self._processes = [_start(folder, words) for words in (_COMMIT, _REMOTE)]

    def read(self) -> tuple[str, str]:
        """Return the commit, with "-dirty" after changes of files that git knows, and the remote's URL; "" if unknown.

        The URL may have secrets.
        """
        commit, remote = map(_output, self._processes)
        return commit, remote


def _start(folder: Path, words: tuple[str, ...]) -> subprocess.Popen[str] | None:
    with contextlib.suppress(OSError):  # there is no git
        return subprocess.Popen(
            [*_GIT, "-C", str(folder), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    return None


def _output(process: subprocess.Popen[str] | None) -> str:
    if process is None:
        return ""
    with process:
        try:
            text, _ = process.communicate(timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            return ""
    return text.strip()[:_LONGEST] if process.returncode == 0 else ""
