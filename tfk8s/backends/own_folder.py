"""The folder of the state of this user: local clusters, and the history. Only the user may write it.

All its files are opened here. A backup or a script may have left anything in their place, and a pipe would make a
supervisor wait forever.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from tfk8s.errors import ClusterError
from tfk8s.polling import wait_until

LARGEST = 64 << 20  # bytes: the record of ten thousand tasks, or the index of the history, and more
# Windows has none of the two. Without the second, the open of a pipe waits for its other end.
_PROBLEMS = {  # ENXIO: a socket, or a pipe that nobody reads
    errno.ELOOP: "is a link", errno.ENXIO: "is no regular file", errno.EISDIR: "is no regular file"
}  # fmt: skip
_NO_LINK, _NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)


class RefusedFile(OSError):
    """A link, a pipe, a file that is too large, or another user's, in a file's place. The text says what to do."""


def root() -> Path:
    """Return the folder of all clusters of this user, after creating it.

    Raises:
        ClusterError: the folder can't be created.
    """
    path = unchecked_root()
    with writable(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_own(path)
    return path


def require_own(path: Path) -> None:
    """Check a folder as OpenSSH's StrictModes does: who may write the folder could replace a supervisor.

    The folders above need no check. Who may write those can replace this folder by a link or by a folder of another
    owner, which this check refuses, too.

    Raises:
        OSError: the folder is a link, another user's, or others may write in it.
    """
    if sys.platform == "win32":  # a user's profile is the user's own
        return
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise PermissionError(errno.EPERM, "the folder is a link")
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "the folder belongs to another user")
    if found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, f"other users can write the folder: chmod go-w {shlex.quote(str(path))}")


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file in the folder, which is this user's own alone if it is new; return the descriptor.

    Raises:
        FileNotFoundError: there is none.
        RefusedFile: it is no regular file of this user.
        OSError: it can't be opened.
    """
    try:
        descriptor = os.open(path, flags | _NO_LINK | _NO_WAIT, 0o600)
    except OSError as error:
        if problem := _PROBLEMS.get(error.errno or 0):
            raise _refused(path, problem) from error
        raise
    found = os.fstat(descriptor)
    is_own = sys.platform == "win32" or found.st_uid == os.geteuid()
    if stat.S_ISREG(found.st_mode) and is_own:
        return descriptor
    os.close(descriptor)
    raise _refused(path, "belongs to another user" if stat.S_ISREG(found.st_mode) else "is no regular file")


def read_file(path: Path, most: int = LARGEST) -> bytes:
    """Return the content of a file in the folder; errors as `open_file`, and a RefusedFile for over `most` bytes."""
    with open(open_file(path), "rb") as file:
        content = file.read(most + 1) if os.fstat(file.fileno()).st_size <= most else None
    if content is None or len(content) > most:
        raise _refused(path, f"has more than {most:,} bytes")
    return content


def _refused(path: Path, problem: str) -> RefusedFile:
    return RefusedFile(errno.EPERM, f"{shlex.quote(str(path))} {problem}: remove it")


def try_lock(descriptor: int) -> bool:
    """Lock out other processes that lock the same file; return False if one of them has the lock.

    The end of the process or of the descriptor ends the lock. Windows has no lock like it; there, only commands write.
    """
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def locked(path: Path, what: str, timeout: float) -> Iterator[None]:
    """In a `with`, lock out other processes by a file in the folder.

    Args:
        path: the file.
        what: the awaited event, "… to …", for an error.
        timeout: in seconds.

    Raises:
        WaitTimeout: another process has the lock for long.
        OSError: the file can't be opened.
    """
    lock = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        wait_until(lambda: try_lock(lock), what, timeout)
        yield
    finally:
        os.close(lock)


def unchecked_root() -> Path:
    """Return the path of that folder, which may not exist. The XDG base directory specification ignores relative ones.

    Raises:
        ClusterError: this user has no home folder.
    """
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    if given.is_absolute():
        return given / "tfk8s"
    try:
        return Path.home() / ".local" / "state" / "tfk8s"
    except RuntimeError as error:
        raise ClusterError("this user has no home folder", help="set XDG_STATE_HOME to one of your folders") from error


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """In a `with`, give an OSError a reason for users.

    Raises:
        ClusterError: the folder at `path` can't be written.
    """
    try:
        yield
    except OSError as error:
        raise ClusterError(
            f"can't keep clusters' state in {path}: {error.strerror}",
            help="set XDG_STATE_HOME to one of your folders, on a disk with free space",
        ) from error
