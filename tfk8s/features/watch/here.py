"""`submit --watch`: run a script, and run it again after each change of its folder."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from tfk8s import polling
from tfk8s.backends import child_process, interpreter
from tfk8s.backends.kubernetes.scripts import sent_folder
from tfk8s.errors import InvalidInput, listed
from tfk8s.log import log

OPTION = "--watch"
_DEBOUNCE, _STEP = 200, 50  # milliseconds: changes of one save are one change
_POLL = 200  # milliseconds between two looks at the command
_DELETES = 1.0  # seconds after the end of the script, in which a deletion may be its own
_LONGEST_END = 3600  # seconds for the end of `submit`, which has limits of its own


def run_again(words: Sequence[str], script: Path) -> NoReturn:
    """Run `tfk8s` with these words in a process now, and again after each change, until a signal.

    A change ends a script that still runs, as Ctrl-C does.

    Args:
        words: the words of the command line, with `OPTION`.
        script: a file. The files beside and below it count, but for those that would not be sent.

    Raises:
        InvalidInput: watchfiles is missing, this system is not Linux, the script is not in its folder, or the folder
            can't be watched any longer.
    """
    if importlib.util.find_spec("watchfiles") is None:
        raise InvalidInput("--watch needs the package watchfiles", help="pip install 'tfk8s[watch]'")
    place = words.index(OPTION)  # the first one: a script's own words come last
    folder = sent_folder.of_script(script)
    sent_folder.require_script(folder, script)
    again = _Again(interpreter.command(sys.executable, "tfk8s", *words[:place], *words[place + 1 :]), folder)
    try:
        again.follow()
    finally:
        again.end()


class _Again:
    """A command that runs again.

    Args:
        command: the command.
        folder: the folder whose changes count.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder, self._ignored = command, folder, sent_folder.ignored(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = 0.0  # when the process was seen to have ended; 0 while it runs

    def start(self) -> None:
        """Start the command."""
        self._ended, self._process = 0.0, child_process.start(self._command, os.environ, OPTION)

    def follow(self) -> NoReturn:
        """Run the command now, and again after each change; errors as `run_again`."""
        import watchfiles  # before the start: no change is missed meanwhile

        try:
            self._follow(watchfiles)
        except RuntimeError as error:  # of watchfiles, such as of a file's name that is not UTF-8
            raise InvalidInput(f'"{self._folder}" can\'t be watched: {error}') from error

    def _follow(self, watchfiles: ModuleType) -> NoReturn:
        watched = _identity(self._folder)
        self.start()
        for changes in watchfiles.watch(
            self._folder, watch_filter=self._counts, debounce=_DEBOUNCE, step=_STEP, rust_timeout=_POLL,
            yield_on_timeout=True,
        ):  # fmt: skip
            if _identity(self._folder) != watched:  # nothing tells of changes any more
                raise InvalidInput(f'"{self._folder}" was removed or replaced', help="run the command again")
            if changes:
                log.info("%s", f"changed: {listed(sorted({self._name(path) for _, path in changes}), 3)}")
                self.end()
                self.start()
            self._runs()
        raise AssertionError("watchfiles ends by a signal alone")

    def end(self) -> None:
        """End the command as Ctrl-C does, and wait for its end. Each further Ctrl-C reaches the command, too."""
        process = self._process
        while process and process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(KeyboardInterrupt):
                polling.wait_until(lambda: process.poll() is not None, "the script to end", _LONGEST_END, announce=True)

    def _counts(self, _: object, path: str) -> bool:
        """Return whether a change of a file runs the command again.

        The script itself may write any file but those of Python. So others count after the end of the script alone.
        """
        if self._ignored.match_file(self._name(path)):
            return False
        if path.endswith(".py"):
            return True
        if self._runs():
            return False
        try:
            found = Path(path).stat()
        except OSError:  # the file was deleted, perhaps by the script at its end
            return time.time() > self._ended + _DELETES
        return max(found.st_mtime, found.st_ctime) > self._ended

    def _runs(self) -> bool:
        """Return whether the command runs; say when the command has ended by itself."""
        if not self._ended and self._process and self._process.poll() is not None:
            self._ended = time.time()
            log.info("%s", f'waiting for a change in "{self._folder}"; Ctrl-C ends this command')
        return not self._ended

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self._folder)


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
