"""What is kept of local clusters between commands: a folder each, `$XDG_STATE_HOME/tfk8s/NAME`.

cluster.json     what `up` was told (a Record)
supervisor.json  the process that runs it: its id, and when it started
control.sock     where it listens
logs/            what each task wrote, as JOB-INDEX.log
supervisor.log, scripts.log
events.log       what happened to the tasks
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

_LOCK_SECONDS = 60.0
_LEAST_ROOM = 1 << 20  # for a cluster's records and the beginning of its logs


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of one cluster, which may not exist."""

    path: Path

    @property
    def control(self) -> Path:
        """Where the supervisor listens."""
        return self.path / "control.sock"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor wrote."""
        return self.path / "supervisor.log"

    @property
    def events(self) -> Path:
        """What happened to the tasks, as `note` wrote it."""
        return self.path / "events.log"

    @property
    def scripts_log(self) -> Path:
        """What the fork server wrote."""
        return self.path / "scripts.log"

    def log(self, task: Task) -> Path:
        """Return the file that a task writes to."""
        return self.path / "logs" / f"{task.job}-{task.index}.log"

    def note(self, task: str, phase: Phase, reason: str) -> None:
        """Note that a task entered a phase; a full disk is no reason not to."""
        line = {"time": time.time(), "task": task, "phase": phase, "reason": reason}
        with contextlib.suppress(OSError), self.events.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def require_room(self) -> None:
        """Check that the disk has room for a cluster.

        Raises:
            ClusterError: it hasn't.
        """
        with _writable(self.path):
            if shutil.disk_usage(self.path.parent).free < _LEAST_ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create(self, record: Record) -> None:
        """Make the folder, for this user's eyes only; there is a cluster as soon as its `cluster.json` is there.

        Raises:
            ClusterError: it can't be written.
        """
        with _writable(self.path):
            self.path.mkdir(mode=0o700)
            (self.path / "logs").mkdir()
            unfinished = self.path / "cluster.json.new"
            unfinished.write_text(json.dumps(record.to_dict()))
            unfinished.rename(self.path / "cluster.json")

    def exists(self) -> bool:
        """Return whether there is a cluster, be its record such that it can be read or not."""
        return (self.path / "cluster.json").exists()

    def read(self) -> Record | None:
        """Return what the cluster was started with; None where there is no cluster.

        Raises:
            ClusterError: it can't be understood.
        """
        try:
            return Record.from_dict(json.loads((self.path / "cluster.json").read_text()))
        except OSError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise ClusterError(
                f"{self.path / 'cluster.json'} is damaged, or of another version of tfk8s",
                help=f"tfk8s down --local {self.path.name} removes it",
            ) from error

    def id(self) -> str | None:
        """Return the cluster's id; None where its record can't be read."""
        try:
            record = self.read()
        except ClusterError:
            return None
        return record.id if record else None

    def write_supervisor(self, pid: int) -> None:
        """Note which process supervises the cluster."""
        (self.path / "supervisor.json").write_text(json.dumps({"pid": pid, "started": started(pid)}))

    def supervisor(self) -> int | None:
        """Return the process id of the cluster's supervisor; None where it is gone."""
        try:
            noted = json.loads((self.path / "supervisor.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        alive = noted["started"] is not None and started(noted["pid"]) == noted["started"]
        return int(noted["pid"]) if alive else None

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)


def event(line: str) -> Event:
    """Return the event in a line that `Folder.note` wrote."""
    found = json.loads(line)
    return Event(
        id=f"{found['task']}@{found['time']}", time=found["time"], about=found["task"],
        warning=found["phase"] == Phase.FAILED, reason=found["phase"], message=found["reason"],
    )  # fmt: skip


def root() -> Path:
    """Return where all of this user's clusters are kept; makes it.

    Raises:
        ClusterError: it can't be made.
    """
    path = _state_home() / "tfk8s"
    with _writable(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.stat().st_uid != os.geteuid():  # its owner could answer in a supervisor's place
            raise PermissionError(errno.EPERM, "it belongs to another user")
    return path


def _state_home() -> Path:
    """Return the folder for state, as the XDG base directory specification has it: relative ones do not count."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    if given.is_absolute():
        return given
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ClusterError("this user has no home folder", help="set XDG_STATE_HOME to a folder of yours") from error


@contextlib.contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ClusterError(
            f"can't keep clusters' state in {path}: {error.strerror}",
            help="set XDG_STATE_HOME to a folder of yours with room in it",
        ) from error


def folder(name: str) -> Folder:
    """Return the folder of the cluster of that name, whether it exists or not."""
    if not naming.is_dns_label(name):  # such as "../other"
        return Folder(root() / ".none")
    return Folder(root() / name)


def folders() -> list[Folder]:
    """Return the folders of all clusters, by name."""
    return [Folder(path) for path in sorted(root().iterdir()) if Folder(path).exists()]


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Keep other commands of this user from making or removing clusters; tells of one that takes its time."""
    descriptor = os.open(root(), os.O_RDONLY | os.O_DIRECTORY)
    another = "another `tfk8s up`, `scale` or `down` of this user to end"
    try:
        wait_until(lambda: _lock(descriptor), another, _LOCK_SECONDS, announce=True)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def started(pid: int) -> str | None:
    """Return when a process started, in clock ticks since the boot; None where it is gone (proc_pid_stat(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else fields[19]


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal, as by SIGSTOP; one that a debugger holds is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def marked_processes(id: str) -> list[int]:  # noqa: A002 - the record's word
    """Return the processes that carry the mark of the cluster with that id."""
    mark = f"{CLUSTER_ID_VARIABLE}={id}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
        except OSError:  # another user's, or gone
            continue
    return found
