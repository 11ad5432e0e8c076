"""The state of local clusters between commands, a folder for each: `$XDG_STATE_HOME/tfk8s/NAME`.

cluster.json     the Record of the cluster
supervisor.json  the supervisor's process id and start time
control.sock     the supervisor's socket
logs/            the output of each task, as JOB-INDEX.log; a link into the cluster's entry of the history
progress/        the last line of `tfk8s.progress` of each program, as JOB-INDEX, and of each script; likewise
supervisor.log   the supervisor's output
scripts.log      the fork server's output
data/            the state of tf.data's dispatcher
events.log       the phases of the tasks; likewise
end.txt          the limit at which the supervisor ended the cluster, or has suspended it
suspended.json   the Suspension, until `resume`
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfk8s.backends.local.record import Record
from tfk8s.backends.own_folder import RefusedFile, open_file, read_file, require_own, root, try_lock, writable
from tfk8s.core import naming
from tfk8s.core.naming import CLUSTER_ID_VARIABLE
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase
from tfk8s.errors import ClusterError
from tfk8s.polling import wait_until
from tfk8s.sessions.forks import processes
from tfk8s.task import ipc

LOCK_TIMEOUT = 60.0
_MIN_FREE_BYTES = 1 << 20  # for a cluster's record and the beginning of its logs
_CONNECT_TIMEOUT = 1.0
_MIN_FREE_FILES = 20  # for the files above


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of one cluster, which may not exist."""

    path: Path

    @property
    def control(self) -> Path:
        """The supervisor's socket."""
        return self.path / "control.sock"

    @property
    def supervisor_log(self) -> Path:
        """The supervisor's output."""
        return self.path / "supervisor.log"

    @property
    def events(self) -> Path:
        """The events of the tasks, from `add_event`."""
        return (self.kept or self.path) / "events.log"

    @property
    def scripts_log(self) -> Path:
        """The fork server's output."""
        return self.path / "scripts.log"

    @property
    def data(self) -> Path:
        """The state of tf.data's dispatcher."""
        return self.path / "data"

    def log(self, task: Task) -> Path:
        """Return the file with a task's output."""
        return self.path / "logs" / f"{task.job}-{task.index}.log"

    def progress(self, name: str) -> Path:
        """Return the file with the progress of a script."""
        return self.path / "progress" / name

    def task_progress(self, task: Task) -> Path:
        """Return the file with the progress of a program."""
        return self.progress(f"{task.job}-{task.index}")

    def add_event(self, task: str, phase: Phase, reason: str) -> None:
        """Record that a task entered a phase, unless the disk is full."""
        line = {"time": time.time(), "task": task, "phase": phase, "reason": reason}
        with (
            contextlib.suppress(OSError),
            open(open_file(self.events, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a") as file,
        ):
            file.write(json.dumps(line) + "\n")

    def require_space(self) -> None:
        """Check that the disk has room for a cluster.

        Raises:
            ClusterError: the disk is full.
        """
        with writable(self.path):
            disk = os.statvfs(self.path.parent)
            if disk.f_bavail * disk.f_frsize < _MIN_FREE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if disk.f_files and disk.f_favail < _MIN_FREE_FILES:  # some file systems have no such limit
                raise OSError(
                    errno.ENOSPC, f"the disk has room for {disk.f_favail} more files, needs {_MIN_FREE_FILES}"
                )

    def create(self, record: Record, kept: Path | None = None) -> None:
        """Create the folder, for this user alone. The cluster exists as soon as its `cluster.json` exists.

        Args:
            record: the cluster's.
            kept: an existing folder, which keeps logs, progress and events when this folder is gone.

        Raises:
            ClusterError: the folder can't be written.
        """
        with writable(self.path):
            self.path.mkdir(mode=0o700)
            for name in ("logs", "progress"):
                ((kept or self.path) / name).mkdir(mode=0o700)
            for name in ("logs", "progress", "events.log") if kept else ():
                (self.path / name).symlink_to(kept / name)  # type: ignore[operator]  # not None
        self.replace(record)

    @property
    def kept(self) -> Path | None:
        """The folder that keeps logs, progress and events; None without one."""
        with contextlib.suppress(OSError):
            return (self.path / "logs").readlink().parent
        return None

    def replace(self, record: Record) -> None:
        """Write the cluster's record.

        Raises:
            ClusterError: the folder can't be written.
        """
        with writable(self.path):
            self.write("cluster.json", record.to_dict())

    def exists(self) -> bool:
        """Return whether the cluster exists, even with a damaged record."""
        return (self.path / "cluster.json").exists()

    def read(self) -> Record | None:
        """Return the cluster's record, or None if the cluster does not exist.

        Raises:
            ClusterError: the record is damaged, or others may write the folder.
        """
        try:
            require_own(self.path)
            record = Record.from_dict(json.loads(read_file(self.path / "cluster.json")))
            if record.name != self.path.name:
                raise ValueError("it is the record of another cluster")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError) as error:
            problem = "is damaged, or from another version of tfk8s"
            if isinstance(error, OSError):
                problem = f"can't be read: {error.strerror}"
            raise ClusterError(
                f"{self.path / 'cluster.json'} {problem}", help=f"tfk8s down --local {self.path.name} removes it"
            ) from error
        return record

    def id(self) -> str | None:
        """Return the cluster's id, or None if the record is missing or damaged."""
        try:
            record = self.read()
        except ClusterError:
            return None
        return record.id if record else None

    def write_supervisor(self, pid: int) -> None:
        """Record the process that supervises the cluster."""
        self.write("supervisor.json", {"pid": pid, "started": start_time(pid)})

    def write(self, name: str, plain: object) -> None:
        """Write a file for this user alone: a reader finds all of it, or the file of before."""
        unfinished = self.path / f"{name}.new"
        with open(open_file(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
            json.dump(plain, file)
        unfinished.rename(self.path / name)

    def supervisor(self) -> int | None:
        """Return the process id of the cluster's supervisor; None if it has ended, or if its file is damaged."""
        try:
            process = json.loads(read_file(self.path / "supervisor.json"))
            pid, started = process["pid"], process["started"]
            is_alive = isinstance(pid, int) and started is not None and start_time(pid) == started
        except (FileNotFoundError, NotADirectoryError, RefusedFile, LookupError, TypeError, ValueError, RecursionError):
            return None
        return pid if is_alive else None

    def listener(self) -> int | None:
        """Return the process of a cluster that listens at the supervisor's socket; a damaged folder may have one."""
        try:
            with ipc.connect(self.control, _CONNECT_TIMEOUT) as connection:
                pid = ipc.peer(connection)
        except OSError:
            return None
        return pid if processes.variable(pid, CLUSTER_ID_VARIABLE) else None

    def write_end(self, reason: str) -> None:
        """Record the limit at which the cluster ended, unless the disk is full."""
        with contextlib.suppress(OSError):
            path = self.path / "end.txt"
            with open(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
                file.write(reason)

    def forget_end(self) -> None:
        """Remove the record of an end, before the cluster starts again."""
        (self.path / "end.txt").unlink(missing_ok=True)

    def end(self) -> str:
        """Return the limit at which the cluster ended, as the end of a sentence; "" if none was reached."""
        try:
            return read_file(self.path / "end.txt").decode()
        except (OSError, ValueError):
            return ""

    def is_running(self) -> bool:
        """Return whether the cluster has a supervisor, which has not reached a limit."""
        return self.supervisor() is not None and not self.end()

    def remove(self) -> None:
        """Remove the folder and its files, or a link in the folder's place.

        Raises:
            ClusterError: something remains.
        """
        if self.path.is_symlink() or self.path.is_file():
            self.path.unlink()
        problems: list[str] = []
        shutil.rmtree(self.path, onerror=lambda _, path, info: problems.append(f"{path}: {info[1]}"))
        if self.path.exists():
            raise ClusterError(f"{self.path} can't be removed: {problems[0] if problems else 'files appear again'}")


def folder(name: str) -> Folder:
    """Return the folder of the cluster with this name, which may not exist."""
    if not naming.is_dns_label(name):  # such as "../other"
        return Folder(root() / ".none")
    return Folder(root() / name)


def folders() -> list[Folder]:
    """Return the folders of all clusters, by name."""
    return [Folder(path) for path in sorted(root().iterdir()) if Folder(path).exists()]


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Lock out other commands of this user that create or remove clusters."""
    descriptor = os.open(root(), os.O_RDONLY | os.O_DIRECTORY)
    another = "another `tfk8s up`, `scale` or `down` of this user to end"
    try:
        wait_until(lambda: try_lock(descriptor), another, LOCK_TIMEOUT, announce=True)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def try_locked() -> Iterator[bool]:
    """Lock out these commands, and yield True; if one of them runs, yield False."""
    descriptor = os.open(root(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def start_time(pid: int) -> str | None:
    """Return the start of a process in clock ticks since the boot, or None if it has ended (proc_pid_stat(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def is_stopped(pid: int) -> bool:
    """Return whether a signal such as SIGSTOP has stopped a process. A debugger does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def cluster_processes(id: str) -> list[int]:  # noqa: A002 - the record's word
    """Return the other processes of the cluster with this id."""
    return processes.marked(CLUSTER_ID_VARIABLE, id)
