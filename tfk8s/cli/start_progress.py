"""Progress of a cluster, until the end: a live panel on a terminal, elsewhere one line per change."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO, TypeVar

from tfk8s.cli.output import age, note, one_line, say, table, visible
from tfk8s.core.progress import StepProgress
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.errors import NoSuchCluster
from tfk8s.training.progress import can_change

if TYPE_CHECKING:
    from rich.live import Live

_HEAD = ("TASK", "PHASE", "ADDRESS", "WHERE", "RESTARTS", "AGE", "PROGRESS", "REASON")
_BAR_WIDTH = 10

T = TypeVar("T")


class Progress:
    """Shows changes of a cluster's tasks. Use it in a `with`; `update` takes the current status.

    Args:
        stream: the output; default: standard error, without the tasks that were ready or running from the start.
        in_place: whether a terminal shows a panel.
    """

    def __init__(self, stream: TextIO | None = None, *, in_place: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._omits_ready = stream is None
        in_place = in_place and can_change(self._stream, os.environ)
        self._panel = Panel(self._stream, transient=stream is None) if in_place else None
        self._last: dict[Task, TaskStatus] | None = None

    def update(self, status: ClusterStatus) -> None:
        """Show the changes since the last status."""
        if self._panel is not None:
            self._panel.update(status)
            return
        if self._last is None:
            omitted = (Phase.READY, Phase.RUNNING) if self._omits_ready else ()
            self._last = {task.task: task for task in status.tasks if task.phase in omitted}
        for line in changes(self._last, status.tasks):
            say(line) if self._stream is sys.stdout else note(line)
        self._last = {task.task: task for task in status.tasks}

    def close(self) -> None:
        """Remove the panel, so that other output can follow."""
        if self._panel is not None:
            self._panel.close()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Panel:
    """A live table of tasks below the earlier output.

    Args:
        stream: a terminal.
        transient: remove the table at the end.
    """

    def __init__(self, stream: TextIO, *, transient: bool) -> None:
        self._stream, self._transient = stream, transient
        self._live: Live | None = None

    def update(self, status: ClusterStatus) -> None:
        """Show the current status."""
        self.show(panel_text(status, shutil.get_terminal_size().lines, self._stream))

    def show(self, lines: str) -> None:
        """Show lines in place of the last ones."""
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            from rich.console import Console

            self._live = Live(console=Console(file=self._stream), auto_refresh=False, transient=self._transient)
            self._live.start()
        text = Text.from_ansi(visible(lines), no_wrap=True, overflow="ellipsis")
        self._live.update(text, refresh=True)

    def close(self) -> None:
        """Stop updating, and remove a transient table."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def panel_text(status: ClusterStatus, height: int, stream: TextIO) -> str:
    """Return a cluster in at most `height` lines. If it has too many tasks, leave out those that are up."""
    room = max(1, height - 4)
    tasks = status.tasks
    if len(tasks) > room:
        tasks = tuple(task for task in tasks if not task.is_up)
    lines = [f"{status.name}: {status.ready} of {len(status.tasks)} tasks ready"]
    if tasks[:room]:
        lines.append(task_table(tasks[:room], stream))
    if len(tasks) > room:
        lines.append(f"and {len(tasks) - room} more")
    return "\n".join(lines)


def task_table(tasks: Sequence[TaskStatus], stream: TextIO) -> str:
    """Return the table of tasks, with their progress if one reports."""
    return table(_HEAD, (_row(task, stream) for task in tasks), stream, optional=("PROGRESS",))


def cell(progress: StepProgress | None, stream: TextIO, *, short: bool = False) -> str:
    """Return the progress for a table, with a bar on a terminal.

    Args:
        progress: the progress; None gives "".
        stream: the output.
        short: leave out the metrics.
    """
    if progress is None:
        return ""
    bar = progress.bar(_BAR_WIDTH) if stream.isatty() else ""
    return f"{bar} {progress.summary if short else progress}".lstrip()


def _row(task: TaskStatus, stream: TextIO) -> Sequence[str]:
    return (
        str(task.task), task.phase, task.address, task.runs_on, str(task.restarts), age(task.since),
        cell(task.progress, stream), task.reason,
    )  # fmt: skip


def changes(before: dict[Task, TaskStatus], tasks: Sequence[TaskStatus]) -> list[str]:
    """Return a line for each task that changed."""
    width = max((len(str(task.task)) for task in tasks), default=0)
    lines = []
    for task in tasks:
        old = before.get(task.task)
        if old is None or (old.phase, old.runs_on, old.reason) != (task.phase, task.runs_on, task.reason):
            what = ", ".join(filter(None, (task.runs_on, task.reason)))
            lines.append(f"{str(task.task).ljust(width)}  {task.phase.ljust(8)}  {one_line(what)}".rstrip())
    return lines


def until_removed(name: str, looks: Iterable[T]) -> Iterator[T]:
    """Yield looks at a cluster until the cluster is removed, and say so.

    Raises:
        NoSuchCluster: there is no such cluster at the first look.
    """
    exists = False
    try:
        for look in looks:
            exists = True
            yield look
    except NoSuchCluster:
        if not exists:
            raise
        note(f'cluster "{name}" was removed')
