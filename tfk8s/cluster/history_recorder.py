"""Records the commands on a cluster, from the command line and from Python alike."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that only read do without
    from tfk8s.backends.history.files import EntryFiles
from tfk8s.backends.protocol import Backend
from tfk8s.core.history.facts import tells
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput, Tfk8sError

_INTERRUPTED = 130
_FAILED = 1
_QUICK = 10.0  # seconds of a script that leaves the tasks as they were, if the script succeeds
_RECENT = 300.0  # seconds for which a look at the tasks is good enough after a quick script


@dataclass(slots=True)
class VerbEnd:
    """The end of a command: the caller sets the exit code of a script or a run."""

    exit_code: int = 0
    reason: str = ""


class HistoryRecorder:
    """Adds the commands of one handle to the entry of its cluster. A command within a command is no other one."""

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend, self._name = backend, name
        self._current: _Command | None = None

    @contextlib.contextmanager
    def command(
        self, verb: str, words: Sequence[str] = (), *, folder: Path | None = None, hidden: Sequence[str] = (),
        starts: bool = False,
    ) -> Iterator[VerbEnd]:  # fmt: skip
        """In a `with`, record a command: its begin, and its end with exit code and reason.

        Args:
            verb, words: the command and its arguments, from which secrets are removed.
            folder: whose commit of git belongs to the command; None is the current folder.
            hidden: texts that must not be in the reason.
            starts: whether the command may start the cluster; then `applied` is called.
        """
        end = VerbEnd()
        if self._backend.history is None or self._current is not None:
            yield end
            return
        self._current = command = _Command(self._backend, self._name, verb, list(words), folder or _here())
        if not starts:
            command.begin()
        try:
            yield end
        except BaseException as error:
            end.exit_code, end.reason = _described(error)
            command.end(end, hidden, exists=not isinstance(error, InvalidInput))
            raise
        else:
            command.end(end, hidden, exists=True)
        finally:
            self._current = None

    def script(self, script: Script) -> AbstractContextManager[VerbEnd]:
        """In a `with`, record that a script runs."""
        words, folder = script.runner_arguments(), script.path.absolute().parent
        return self.command("submit", words, folder=folder, hidden=list(script.environment.values()))

    def applied(self, job_file: JobFile, *, is_new: bool) -> None:
        """Note that the cluster exists now, and whether this process has made it."""
        if self._backend.history is not None:
            from tfk8s.backends.history import files

            with files.unless_unwritable():
                self._backend.history.join(self._name, job_file, is_new=is_new)
        if self._current is not None:
            self._current.begin()

    def keep_timeline(self, page: Path) -> None:
        """Keep the page of a script's steps, if there is one."""
        if self._backend.history is not None and page.exists():
            from tfk8s.backends.history import files

            with files.unless_unwritable():
                if entry := self._backend.history.find(self._name):
                    entry.keep_timeline(page)


class _Command:
    """One command that runs."""

    def __init__(self, backend: Backend, name: str, verb: str, words: list[str], folder: Path) -> None:
        from tfk8s.backends.history import git

        assert backend.history is not None
        self._history, self._name, self._verb, self._words, self._folder = backend.history, name, verb, words, folder
        self._moment, self._token = time.time(), ""
        self._entry: EntryFiles | None = None
        self._commit = git.Commit(folder)

    def begin(self, *, joins: bool = False) -> None:
        """Add the begin to the cluster's entry; `joins`: the cluster exists, although it may have no entry."""
        from tfk8s.backends.history import files, writing

        with files.unless_unwritable():
            find = self._history.join if joins else self._history.find
            self._entry = self._entry or find(self._name)
            if self._entry is not None and not self._token:
                self._token = writing.begin_command(
                    self._entry, self._verb, self._words, self._folder, moment=self._moment
                )
                if self._verb != "up":  # which is short: after a write, an API server's lists take 40 ms longer
                    self._history.share(self._name)

    def end(self, end: VerbEnd, hidden: Sequence[str], *, exists: bool) -> None:
        """Add the end to the cluster's entry; `exists` says that there is a cluster, perhaps another user's."""
        from tfk8s.backends.history import files, writing

        source = self._commit.read()
        if not self._token and exists and self._verb != "down":  # else an entry would begin for what is gone
            self.begin(joins=True)
        if exists and self._may_have_changed_tasks(end):
            self._history.seen(self._name)
        with files.unless_unwritable():
            if self._entry is not None and self._token:
                writing.end_command(self._entry, self._token, end.exit_code, end.reason, hidden, source)
                self._history.share(self._name)

    def _may_have_changed_tasks(self, end: VerbEnd) -> bool:
        """Return whether the entry may lack something of the tasks."""
        if self._verb != "submit":
            return self._verb in ("scale", "suspend", "resume")  # `down` looks by itself
        # A look takes four requests, longer than many a script.
        is_quick = end.exit_code == 0 and time.time() - self._moment < _QUICK
        return not (is_quick and time.time() - self._last_look() < _RECENT)

    def _last_look(self) -> float:
        """Return the moment of the last look at the tasks that the entry has, in seconds since the epoch."""
        with contextlib.suppress(OSError, Tfk8sError):
            facts = self._entry.facts_of("tasks") if self._entry is not None else []
            return max((fact["time"] for fact in filter(tells, facts)), default=0.0)
        return 0.0


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:  # the current folder does not exist any more
        return Path("/")


def _described(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the reason of a command that an error ends."""
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED, "interrupted"
    if isinstance(error, SystemExit):
        return (error.code, "interrupted") if isinstance(error.code, int) else (_FAILED, "")
    code = error.exit_code if isinstance(error, Tfk8sError) else _FAILED
    return code, str(error) or type(error).__name__
