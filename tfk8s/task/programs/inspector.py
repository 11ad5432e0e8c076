"""A program that prints the work of processes, from /proc and their own answers: `inspector [PID]...`.

`tfk8s stacks` runs this file beside the processes: in the network of a local cluster, or in a container. The program
reads what the kernel shows to each process of the same user. So it works without ptrace(2), which pods may not have.
It looks twice, so that it sees what moves. Without process ids, it takes the processes of a container that answer,
else the children of process 1, else process 1.

Standard library only, and nothing of tfk8s: the text of this file is sent to containers that may lack the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import socket
import struct
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SAMPLE_INTERVAL = 0.5  # between the two looks
ANSWER_TIMEOUT = 3.0  # for the Python stacks of all processes
_STOPPED = "T"
_BUSY = 0.05  # CPUs, from which a process counts as computing
_PROC = Path("/proc")
_LISTENER = re.compile(r" @tfk8s-stacks-(\d+)$", re.MULTILINE)  # in /proc/net/unix, for `address`
_CREDENTIALS = struct.Struct("3i")  # ucred: pid, uid, gid


def address(pid: int) -> str:
    """Return the address at which a process answers with its Python stacks: an abstract Unix socket (unix(7))."""
    return f"\0tfk8s-stacks-{pid}"


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process id and the user id of the process at the other end of a Unix socket."""
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user


class Sample(NamedTuple):
    """A process at one moment, from proc_pid_stat(5).

    Attributes:
        state: the letter of the main thread's state: R, S, D, T, …; "" if the process has ended.
        ticks: the CPU time of all its threads so far, in clock ticks.
        parent: the process id of the parent.
    """

    state: str
    ticks: int
    parent: int


def sample(pid: int, proc: Path = _PROC) -> Sample:
    """Return what a process does now."""
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # the process has ended
        return Sample("", 0, 0)
    return Sample(fields[0], int(fields[11]) + int(fields[12]), int(fields[1]))


def main_processes(proc: Path = _PROC) -> list[int]:
    """Return the processes of a container to look at: those that answer, or the children of process 1, or process 1."""
    listening = map(int, re.findall(_LISTENER, (proc / "net" / "unix").read_text()))
    if answering := sorted({pid for pid in listening if (proc / str(pid)).exists()}):
        return answering
    pids = [int(folder.name) for folder in proc.glob("[0-9]*")]
    return sorted(pid for pid in pids if sample(pid, proc).parent == 1 and not _is_helper(proc / str(pid))) or [1]


def _is_helper(folder: Path) -> bool:
    """Return whether a process is one of tfk8s beside the task, such as that of the metrics."""
    with contextlib.suppress(OSError):  # the process has ended
        return b"\0tfk8s.features." in (folder / "cmdline").read_bytes()
    return False


def ask(pids: Iterable[int], timeout: float = ANSWER_TIMEOUT) -> dict[int, bytes | None]:
    """Return the answers of processes with their Python stacks; None for an answer that does not come in time.

    Processes that do not listen are left out.
    """
    answers: dict[int, bytes | None] = {}
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for pid in pids:
            with contextlib.suppress(OSError):  # nobody listens
                connection = _connect(pid)
                selector.register(connection, selectors.EVENT_READ, (pid, bytearray()))
                answers[pid] = None
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                pid, data = key.data
                block = _receive(key.fileobj)
                data += block
                if not block:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]  # a socket
                    answers[pid] = bytes(data) or None
        for key in list(selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
    return answers


def _connect(pid: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        connection.connect(address(pid))
        if peer(connection) != (pid, os.geteuid()):
            raise PermissionError(f"another process has the address of process {pid}")
    except OSError:
        connection.close()
        raise
    return connection


def _receive(connection: Any) -> bytes:
    try:
        return bytes(connection.recv(1 << 16))
    except OSError:  # the process has ended
        return b""


def inspect(pids: Sequence[int]) -> list[dict[str, Any]]:
    """Look at processes twice; return what they do, as plain data."""
    first, began = {pid: sample(pid) for pid in pids}, time.monotonic()
    running = [pid for pid in pids if first[pid].state not in ("", _STOPPED)]
    early = ask(running)
    time.sleep(max(0.0, SAMPLE_INTERVAL - (time.monotonic() - began)))
    late = {**early, **ask(pid for pid in running if early.get(pid))}
    busy = _BUSY * (time.monotonic() - began) * os.sysconf("SC_CLK_TCK")
    found = []
    for pid in pids:
        now = sample(pid)
        process = {"pid": pid, "state": now.state, "computes": now.ticks - first[pid].ticks >= busy}
        found.append({**process, **_python(pid in late, early.get(pid), late.get(pid))})
    return found


def _python(listens: bool, early: bytes | None, late: bytes | None) -> dict[str, Any]:
    """Return the Python threads of a process, with what moved between two answers; or why there are none."""
    none = {"script": "", "python": None, "problem": ""}
    if not listens:
        return none
    if early is None or late is None:
        problem = f"no answer in {ANSWER_TIMEOUT:g} s: code in C holds Python's lock (GIL), or no CPU is free"
        return {**none, "problem": problem}
    try:
        first, second = json.loads(early), json.loads(late)
    except ValueError:
        return {**none, "problem": "ended while it answered"}
    python = compare(first["threads"], second["threads"])
    return {"script": second["script"], "python": python, "problem": second["problem"]}


def compare(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the threads of a second answer; each call says whether the first answer has the same call."""
    keys = {thread["call"].get("key") for thread in first if thread["call"]}
    found = []
    for thread in second:
        call = thread["call"]
        if call is not None:
            key = call.get("key")
            call = {name: value for name, value in call.items() if name != "key"}
            call["is_same"] = None if key is None else key in keys
        found.append({**thread, "call": call})
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(inspect([int(word) for word in sys.argv[1:]] or main_processes())))
