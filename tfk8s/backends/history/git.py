"""The commit of a folder, read by git beside the command that wants to know it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

_TIMEOUT = 2.0  # for git in a slow or very large folder
_LONGEST = 2000  # characters of an answer

# The folder may be somebody else's, and no program that its own configuration names may run: no hook, and no filter. So
# git compares no contents, but sizes and times. A submodule has a configuration of its own.
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.checkStat=minimal")
_COMMIT = ("rev-parse", "--verify", "HEAD")
_CHANGED = ("diff-index", "--name-only", "--ignore-submodules=all", "HEAD", "--")
_REMOTE = ("config", "--get", "remote.origin.url")


class Commit:
    """The commit of a folder at one moment. The processes of git run until `read`."""

    def __init__(self, folder: Path) -> None:
        real = Path(os.path.realpath(folder))  # as git has it; Path.exists may raise an error
        is_inside = "GIT_DIR" in os.environ or any(
            os.access(parent / ".git", os.F_OK) for parent in (real, *real.parents)
        )
        self._processes = [_start(folder, words) if is_inside else None for words in (_COMMIT, _CHANGED, _REMOTE)]

    def read(self) -> tuple[str, str]:
        """Return the commit, with "-dirty" if files that git knows have changed, and the remote's URL; "" if unknown.

        The URL may have secrets.
        """
        commit, changed, remote = map(_output, self._processes)
        return f"{commit}-dirty" if commit and changed else commit, remote


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
