"""The state of local clusters between commands, a folder for each: `$XDG_STATE_HOME/tfk8s/NAME`.

cluster.json     the Record of the cluster
supervisor.json  the supervisor's process id and start time
control.sock     the supervisor's socket
logs/            the output of each task, as JOB-INDEX.log
progress/        the last line of `tfk8s.progress` of each program, as JOB-INDEX, and of each script
supervisor.log   the supervisor's output
scripts.log      the fork server's output
data/            the state of tf.data's dispatcher
events.log       the phases of the tasks
end.txt          the limit at which the supervisor ended the cluster
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfk8s.backends.local.record import CLUSTER_ID_VARIABLE, Record
from tfk8s.core import naming
from tfk8s.core.events import Event
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase
from tfk8s.errors import ClusterError
from tfk8s.polling import wait_until
from tfk8s.sessions.forks import processes

LOCK_TIMEOUT = 60.0
RESTARTED = "restarted on request"  # the reason of an event
_MIN_FREE_BYTES = 1 << 20  # for a cluster's record and the beginning of its logs


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
        return self.path / "events.log"

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
        with contextlib.suppress(OSError), self.events.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def require_space(self) -> None:
        """Check that the disk has room for a cluster.

        Raises:
            ClusterError: the disk is full.
        """
        with _writable(self.path):
            if shutil.disk_usage(self.path.parent).free < _MIN_FREE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create(self, record: Record) -> None:
        """Create the folder, for this user alone. The cluster exists as soon as its `cluster.json` exists.

        Raises:
            ClusterError: the folder can't be written.
        """
        with _writable(self.path):
            self.path.mkdir(mode=0o700)
            (self.path / "logs").mkdir()
            (self.path / "progress").mkdir()
        self.replace(record)

    def replace(self, record: Record) -> None:
        """Write the cluster's record.

        Raises:
            ClusterError: the folder can't be written.
        """
        with _writable(self.path):
            unfinished = self.path / "cluster.json.new"
            unfinished.write_text(json.dumps(record.to_dict()))
            unfinished.rename(self.path / "cluster.json")

    def exists(self) -> bool:
        """Return whether the cluster exists, even with a damaged record."""
        return (self.path / "cluster.json").exists()

    def read(self) -> Record | None:
        """Return the cluster's record, or None if the cluster does not exist.

        Raises:
            ClusterError: the record is damaged.
        """
        try:
            return Record.from_dict(json.loads((self.path / "cluster.json").read_text()))
        except OSError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise ClusterError(
                f"{self.path / 'cluster.json'} is damaged, or from another version of tfk8s",
                help=f"tfk8s down --local {self.path.name} removes it",
            ) from error

    def id(self) -> str | None:
        """Return the cluster's id, or None if the record is missing or damaged."""
        try:
            record = self.read()
        except ClusterError:
            return None
        return record.id if record else None

    def write_supervisor(self, pid: int) -> None:
        """Record the process that supervises the cluster."""
        (self.path / "supervisor.json").write_text(json.dumps({"pid": pid, "started": start_time(pid)}))

    def supervisor(self) -> int | None:
        """Return the process id of the cluster's supervisor, or None if the supervisor has ended."""
        try:
            process = json.loads((self.path / "supervisor.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        is_alive = process["started"] is not None and start_time(process["pid"]) == process["started"]
        return int(process["pid"]) if is_alive else None

    def write_end(self, reason: str) -> None:
        """Record the limit at which the cluster ended, unless the disk is full."""
        with contextlib.suppress(OSError):
            (self.path / "end.txt").write_text(reason)

    def end(self) -> str:
        """Return the limit at which the cluster ended, as the end of a sentence; "" if none was reached."""
        try:
            return (self.path / "end.txt").read_text()
        except OSError:
            return ""

    def is_running(self) -> bool:
        """Return whether the cluster has a supervisor, which has not reached a limit."""
        return self.supervisor() is not None and not self.end()

    def remove(self) -> None:
        """Remove the folder and its files."""
        shutil.rmtree(self.path, ignore_errors=True)


def parse_event(line: str) -> Event:
    """Return the event from a line of `Folder.add_event`."""
    event = json.loads(line)
    has_failed, is_requested = event["phase"] == Phase.FAILED, event["reason"] == RESTARTED
    return Event(
        id=f"{event['task']}@{event['time']}", time=event["time"], about=event["task"],
        warning=has_failed and not is_requested, reason="Ended" if has_failed and is_requested else event["phase"],
        message=event["reason"],
    )  # fmt: skip


def root() -> Path:
    """Return the folder of all clusters of this user, after creating it.

    Raises:
        ClusterError: the folder can't be created.
    """
    path = _state_home() / "tfk8s"
    with _writable(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.stat().st_uid != os.geteuid():  # its owner could replace a supervisor
            raise PermissionError(errno.EPERM, "the folder belongs to another user")
    return path


def _state_home() -> Path:
    """Return the folder for state. The XDG base directory specification ignores a relative folder."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    if given.is_absolute():
        return given
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ClusterError("this user has no home folder", help="set XDG_STATE_HOME to one of your folders") from error


@contextlib.contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ClusterError(
            f"can't keep clusters' state in {path}: {error.strerror}",
            help="set XDG_STATE_HOME to one of your folders, on a disk with free space",
        ) from error


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
        wait_until(lambda: _try_lock(descriptor), another, LOCK_TIMEOUT, announce=True)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
