"""The writer of the history: an entry's start, its commands, what was seen of its tasks, and its end."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfk8s.backends.history import files, index, places
from tfk8s.backends.history.files import EntryFiles
from tfk8s.backends.plain_data import job_file_to_dict
from tfk8s.core.history import redaction
from tfk8s.core.history.facts import MAX_LINE, MAX_TEXT
from tfk8s.core.price.rates import Price, Rates
from tfk8s.core.resources import CPU, MEMORY, NOTHING, Resources, named
from tfk8s.core.spec import JobFile
from tfk8s.core.status import ClusterStatus

HERE = "this machine"  # the location of local clusters


def begin(
    name: str, location: str, job_file: JobFile | None, moment: float | None = None, *, price: Price | None = None
) -> EntryFiles:
    """Begin an entry.

    Args:
        name, location: those of the cluster.
        job_file: None if this command has not applied it.
        moment: the cluster's start in seconds since the epoch; None is now.
        price: of its tasks.

    Raises:
        OSError, Tfk8sError: the history can't be written.
    """
    entry = files.make(name)
    plain = redaction.job_file(job_file_to_dict(job_file)) if job_file else {}
    images = dict.fromkeys(job.image or job_file.image or "" for job in job_file.jobs) if job_file else {}
    entry.add(
        "start", moment=moment, location=location, who=who(), job_file=plain, digest=digest(plain) if job_file else "",
        image=", ".join(filter(None, images)), requests=amounts(named(job_file), price) if job_file else {},
    )  # fmt: skip
    index.refresh(entry)
    return entry


def find_open(name: str, location: str) -> EntryFiles | None:
    """Return the newest entry of a cluster that has not ended; None without one."""
    entry = places.newest(name, location)
    return entry if entry and entry.is_open() else None


def lose(name: str, location: str, reason: str, moment: float | None = None) -> None:
    """End the entry of a cluster that is gone, although no command has seen its end.

    Args:
        reason: why the cluster ended.
        moment: the end in seconds since the epoch, if the place of the cluster tells; else the cluster counts as lost.
    """
    with files.unless_unwritable():
        if entry := find_open(name, location):
            if moment is not None and moment < entry.read().row.started:  # the end of an earlier cluster of this name
                moment = None
            end(entry, reason, lost=moment is None, moment=moment or entry.last_time())


def digest(plain: Any) -> str:
    """Return the SHA-256 of a job file as the history has it: that of values of variables could be guessed from it."""
    import hashlib  # 3 ms, which a supervisor does without

    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def who() -> str:
    """Return the user and the machine, "ada@laptop"."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = ""
    return f"{user}@{socket.gethostname()}"


def amounts(requests: Resources, price: Price | None = None) -> dict[str, Any]:
    """Return cores, bytes, the number of GPUs, and the price an hour with its currency."""
    own = {"cpu": float(requests[CPU]), "memory": float(requests[MEMORY]), "gpus": requests.gpus}
    return {**own, "price": price.amount, "currency": price.currency} if price else own


def begin_command(
    entry: EntryFiles, verb: str, words: Iterable[str], folder: Path, *, moment: float | None = None
) -> str:
    """Add a command that begins, or that began at `moment`; return its token for `end_command`."""
    token = os.urandom(4).hex()
    shown = [word[:MAX_TEXT] for word in redaction.words(list(words))]
    entry.add("verb", moment=moment, verb=verb, words=shown, token=token, who=who(), folder=redaction.text(str(folder)))
    return token


def end_command(
    entry: EntryFiles, token: str, exit_code: int, reason: str, hidden: Iterable[str], source: tuple[str, str]
) -> None:
    """Add the end of a command.

    Args:
        reason: of a failure; else "".
        hidden: texts that must not be in the reason.
        source: git's commit of the folder, and the URL of its remote.
    """
    commit, remote = source
    entry.add(
        "verb_end", token=token, exit_code=exit_code, commit=commit, remote=redaction.text(remote),
        reason=redaction.text(reason.partition("\n")[0], hidden)[:MAX_TEXT],
    )  # fmt: skip
    if not entry.is_open():
        index.refresh(entry)


def add_status(entry: EntryFiles, status: ClusterStatus, rates: Rates | None = None) -> None:
    """Add the tasks as a status has them, the result of the run of programs, and what the cluster requests now.

    Args:
        status: the cluster's. A suspended cluster requests nothing.
        rates: those of its place.
    """
    most = min(MAX_TEXT, MAX_LINE // 8 // max(1, len(status.tasks)))  # characters of up to four bytes
    tasks = [
        {
            "task": str(task.task), "phase": task.phase, "restarts": task.restarts, "exit_code": task.exit_code,
            "reason": redaction.text(task.reason)[:most], "progress": str(task.progress or ""),
        }
        for task in status.tasks
    ]  # fmt: skip
    failed = status.failed_program
    reason = redaction.text(f"{failed.task} {failed.reason}")[:MAX_TEXT] if failed else ""
    requests, billed = (NOTHING, NOTHING) if status.suspended else (status.requests, status.billed)
    entry.add(
        "tasks", tasks=tasks, progress=str(status.progress or ""), exit_code=status.exit_code, reason=reason,
        requests=amounts(requests, rates.price(billed) if rates else None),
    )  # fmt: skip


def end(entry: EntryFiles, reason: str, *, lost: bool = False, moment: float | None = None) -> None:
    """Add the end, unless another process has; and the entry's last row.

    Args:
        reason: why the cluster ended.
        lost: nobody saw the end.
        moment: the end in seconds since the epoch; None is now.
    """
    if entry.is_open():
        entry.add("end", moment=moment, reason=redaction.text(reason)[:MAX_TEXT], lost=lost)
        index.refresh(entry)
