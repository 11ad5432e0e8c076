"""Processes that end with the process that starts them, and processes that a variable marks."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_TERMINATION_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_ENDING = (*_TERMINATION_SIGNALS, signal.SIGHUP)  # the signals that end a command


_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when its parent, process `parent`, ends."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")
    if os.getppid() != parent:  # the parent ended before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def take_descriptors(descriptors: Sequence[int]) -> None:
    """Make the descriptors this process' 0, 1, 2, …, and close all other descriptors."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, len(descriptors)) for descriptor in descriptors]
    for number, descriptor in enumerate(high):
        os.dup2(descriptor, number)
    os.closerange(len(high), os.sysconf("SC_OPEN_MAX"))


def close(descriptors: Iterable[int]) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


def fork() -> int:
    """Fork. A SIGINT or SIGTERM for the new process stays pending until its `reset_signals`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINATION_SIGNALS)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def group_exists(leader: int) -> bool:
    """Return whether a process of a group is left."""
    try:
        os.killpg(leader, 0)
    except OSError:
        return False
    return True


def reset_signals() -> None:
    """Restore the default handlers. A pending signal ends this process."""
    signal.set_wakeup_fd(-1)
    for number in _TERMINATION_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TERMINATION_SIGNALS)


def spawn(
    command: Sequence[str],
    descriptors: Sequence[int],
    environment: Mapping[str, str],
    folder: str | None = None,
    umask: int | None = None,
    new_session: bool = False,
) -> int:
    """Start a program that dies with this process; return its id.

    Args:
        command: the program's path, or its name on the path of `environment`, and its arguments.
        descriptors: the program's descriptors 0, 1, 2, ….
        environment: the program's whole environment.
        folder: the program's working folder; default: this process'.
        umask: the program's umask; default: this process'.
        new_session: whether the program leads its own session and process group.
    """

    def run() -> None:
        try:
            if folder is not None:
                os.chdir(folder)
            if umask is not None:
                os.umask(umask)
            os.execvpe(command[0], list(command), dict(environment))
        except BaseException as error:
            # The text of an OSError also has the path that was tried last.
            reason = error.strerror if isinstance(error, OSError) else error
            exit_child(f"can't start {command[0]}: {reason}", 127)

    return run_in_fork(run, descriptors, new_session=new_session)


def run_in_fork(function: Callable[[], None], descriptors: Sequence[int], *, new_session: bool = True) -> int:
    """Call a function in a fork that dies with this process; return the fork's id.

    Args:
        function: what the fork does until its end.
        descriptors: the fork's descriptors 0, 1, 2, ….
        new_session: whether the fork leads its own session and process group.
    """
    parent = os.getpid()
    pid = fork()
    if pid:
        return pid
    try:
        die_with_parent(parent)
        if new_session:
            os.setsid()
        take_descriptors(descriptors)
        reset_signals()
        function()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def umask() -> int:
    """Return the umask of this process."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def kill_group(leader: int, number: int) -> None:
    """Send a signal to a process group, unless its processes are gone."""
    with contextlib.suppress(OSError):
        try:
            os.killpg(leader, number)
        except ProcessLookupError:  # the process does not lead a group yet
            os.kill(leader, number)


def marked(variable: str, value: str) -> list[int]:
    """Return the other processes of this user whose environment has a variable with this value."""
    mark, found = f"{variable}={value}".encode(), []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # another user's process, or it has ended
            if mark in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return [pid for pid in found if pid != os.getpid()]


def variable(pid: int, name: str) -> str | None:
    """Return a variable with which a process of this user began; None if the process has none."""
    mark = os.fsencode(f"{name}=")
    with contextlib.suppress(OSError):  # another user's process, or it has ended
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(mark):
                return os.fsdecode(entry[len(mark) :])
    return None


def with_children(pids: Iterable[int]) -> set[int]:
    """Return processes with their children, and the children of these."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):  # it has ended
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found, more = set(pids), {0}
    while more:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found |= more
    return found


def kill_marked(variable: str, value: str) -> None:
    """Kill the processes that `marked` returns."""
    for pid in marked(variable, value):
        with contextlib.suppress(OSError):  # it has ended
            os.kill(pid, signal.SIGKILL)


def count_oom_kills(counters: Path) -> int:
    """Return the number of processes that the kernel has killed because memory was short.

    Args:
        counters: the file with the kernel's counters: a cgroup's `memory.events`, or `vmstat` for the machine.
    """
    with contextlib.suppress(OSError):  # cgroups of version 1 have no such file
        for line in counters.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def exit_child(message: str, code: int) -> NoReturn:
    """End this forked process with a message, without the clean-up that its parent does."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    os._exit(code)


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """In a `with`, block the signals that end a command. A program that starts meanwhile calls `drop_signals`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def drop_signals() -> None:
    """Drop the signals that came while they were blocked, and let later ones act."""
    for number in _ENDING:
        signal.signal(number, signal.signal(number, signal.SIG_IGN))  # what is ignored is dropped (POSIX)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """In a `with`, hold back the signals that this process handles; the first acts at the end.

    Python runs handlers on the main thread only, so that other threads need nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    numbers = [number for number in _ENDING if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, lambda number, _: held.append(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for first in held[:1]:
        signal.raise_signal(first)
