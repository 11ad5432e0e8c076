"""Writes the logs of a cluster to files, before the cluster is removed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

from tfk8s.backends.protocol import Backend
from tfk8s.concurrency import map_parallel
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import Task
from tfk8s.errors import ClusterError, InvalidInput, quoted

_AT_ONCE = 16


def save_logs(backend: Backend, name: str, folder: Path) -> None:
    """Write the log of each task and script: JOB-INDEX.log, JOB-INDEX.previous.log and SCRIPT.log.

    Args:
        folder: where the files are written; it is created.

    Raises:
        ClusterError: a log can't be read or written.
    """
    from tfk8s.render import script_job  # imports yaml, which the other commands do without

    status = backend.observe(name)
    saves: list[Callable[[], None]] = [
        functools.partial(_save_task, backend, name, task.task, folder) for task in status.tasks
    ]
    for script in status.scripts:
        if script_job.is_name(script.name):  # scripts on this machine write to their terminals
            path = folder / f"{script.name}.log"
            saves.append(functools.partial(_save_script, backend, name, script.name, path))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        map_parallel(lambda save: save(), saves, _AT_ONCE)
    except OSError as error:
        raise ClusterError(
            f"logs can't be written to {quoted(str(folder))}: {error.strerror or error}; nothing was removed",
            help="name another folder, or leave out --save-logs",
        ) from error


def _save_task(backend: Backend, name: str, task: Task, folder: Path) -> None:
    for suffix, options in (("", LogOptions()), (".previous", LogOptions(previous=True))):
        lines = (line.text for line in backend.logs(name, [task], options))
        _write(lines, folder / f"{task.job}-{task.index}{suffix}.log", keep_empty=not options.previous)


def _save_script(backend: Backend, name: str, script: str, path: Path) -> None:
    with contextlib.suppress(InvalidInput):  # a warm pod's script has just ended, or the `ttl` of another
        _write(backend.detached.log(name, script), path, keep_empty=True)


def _write(lines: Iterator[str], path: Path, *, keep_empty: bool) -> None:
    first = next(lines, None)
    if first is None and not keep_empty:
        return
    with path.open("w", encoding="utf-8", errors="surrogateescape") as file:
        if first is not None:
            file.write(f"{first}\n")
        file.writelines(f"{line}\n" for line in lines)
