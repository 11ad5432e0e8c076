"""Compares the GPUs that tasks were given with the GPUs that TensorFlow sees in them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from tfk8s import polling
from tfk8s.backends import devices
from tfk8s.backends.protocol import Backend
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase, TaskStatus
from tfk8s.core.task_names import format_tasks
from tfk8s.errors import ClusterError

REASON_TIMEOUT = 3.0  # a server writes the reason a moment after it begins to listen
COMPARE_TIMEOUT = 130.0  # a program's process compares before the program, in at most `seen_gpus.LIMIT`
_INTERVAL = 1.0  # each poll reads the logs
_MAX_LOGS = 8
_Lines = dict[Task, tuple[int, int, str]]  # of logs: the GPUs that a task sees, those that it was given, and why
_UNKNOWN = "its log shows no reason"


def require_gpus(backend: Backend, status: ClusterStatus, *, keep: bool = True) -> None:
    """Check that TensorFlow sees the GPUs of every task that may not run without them.

    Servers answer which devices they have. The processes of programs write to their logs what they see.

    Args:
        status: of the ready cluster.
        keep: the cluster stays after the error. Otherwise nobody can read its logs.

    Raises:
        ClusterError: names the tasks whose GPUs TensorFlow does not see, and the reasons.
        TaskUnreachable: a server does not answer any more.
    """
    tasks = {task.task: task for task in status.tasks if task.required_gpus}
    seen = _seen_by_servers(backend, status) if any(not task.is_program for task in tasks.values()) else {}
    lines = _read_program_lines(backend, status.name, [task for task in tasks.values() if task.is_program])
    seen |= {task: line[0] for task, line in lines.items()}
    lacking = [task for task in tasks if task in seen and seen[task] < tasks[task].required_gpus]
    if not lacking:
        return
    named = lacking[:_MAX_LOGS]
    lines |= _read_server_lines(backend, status.name, [task for task in named if task not in lines])
    groups: dict[str, list[Task]] = {}
    for task in named:
        reason = lines[task][2] if task in lines else _UNKNOWN
        groups.setdefault(f"{seen[task]} of {tasks[task].required_gpus}: {reason}", []).append(task)
    parts = [f"{format_tasks(tasks)} see{'s' * (len(tasks) == 1)} {words}" for words, tasks in groups.items()]
    more = f"; and {len(lacking) - len(named)} more tasks" if len(lacking) > len(named) else ""
    jobs = ", ".join(dict.fromkeys(f"jobs.{task.job}" for task in lacking))
    good = {tasks[task].node for task in seen if task in tasks and task not in lacking}
    bad = [task for task in lacking if tasks[task].node not in {*good, ""}] if good else []
    is_up = f'cluster "{status.name}" is up, but ' if keep else ""
    log = f"tfk8s logs{backend.flags} {status.name} {lacking[0]} shows TensorFlow's messages"
    raise ClusterError(
        f"{is_up}TensorFlow does not see all GPUs: {'; '.join(parts)}{more}",
        help=f"{log if keep else '`tfk8s run --keep` leaves the cluster and its logs'}; "
        f"gpus_optional: true in {jobs} lets tasks run without GPUs"
        + (_blame(backend, status.name, [tasks[task] for task in bad], keep=keep) if bad else ""),
    )


def _blame(backend: Backend, name: str, lacking: Sequence[TaskStatus], *, keep: bool) -> str:
    """Note that the nodes of tasks show no GPUs, while other nodes do; return the advice to leave them out."""
    nodes = sorted({task.node for task in lacking})
    options, names = " ".join(f"--avoid {node}" for node in nodes), " and ".join(nodes)
    pods = [task.runs_on.partition(" on ")[0] for task in lacking]
    again = ""
    if keep and backend.shared is not None and backend.shared.note_bad_places(name, pods):
        which = f" {lacking[0].task}" if len(lacking) == 1 and not lacking[0].is_program else ""
        again = f"`tfk8s restart{backend.flags} {name}{which}` starts {format_tasks([task.task for task in lacking])} "
        again += "on another node, once; "
    return f"; tasks on other nodes see their GPUs: {again}`tfk8s up {options} FILE` leaves out {names}"


def _seen_by_servers(backend: Backend, status: ClusterStatus) -> dict[Task, int]:
    """Return the number of GPUs that each server reports."""
    answers = devices.list_devices(backend, status)
    devices.require_all(answers)
    return {answer.task: sum(device.kind == "GPU" for device in answer.devices) for answer in answers}


def _read_program_lines(backend: Backend, name: str, programs: Sequence[TaskStatus]) -> _Lines:
    """Return what the processes of programs have logged about their GPUs, until one lacks some or the run has ended.

    The result is shorter for users who may not read logs: the end of a run names the reason, too. A program that has
    run for longer than the comparison takes has its GPUs.
    """
    starts = {program.task: program.since or 0.0 for program in programs if program.phase is Phase.RUNNING}
    old = {task for task, start in starts.items() if 0 < start < time.time() - COMPARE_TIMEOUT}
    tasks = [program.task for program in programs if program.task not in old]
    found: _Lines = {}
    for _ in polling.poll(COMPARE_TIMEOUT, least_interval=_INTERVAL) if tasks else ():
        has_ended = backend.observe(name).exit_code is not None
        try:
            found |= _logged(backend, name, [task for task in tasks if task not in found], starts)
        except ClusterError:
            break
        if has_ended or len(found) == len(tasks) or any(seen < required for seen, required, _ in found.values()):
            break
    return found


def _read_server_lines(backend: Backend, name: str, tasks: Sequence[Task]) -> _Lines:
    """Return what servers have logged about the GPUs that they lack; nothing of a server that is late."""
    found: _Lines = {}
    for _ in polling.poll(REASON_TIMEOUT) if tasks else ():
        with contextlib.suppress(ClusterError):  # users who may not read logs learn less
            found |= _logged(backend, name, [task for task in tasks if task not in found], {})
        if len(found) == len(tasks):
            break
    return found


def _logged(backend: Backend, name: str, tasks: Sequence[Task], starts: Mapping[Task, float]) -> _Lines:
    """Return the last line of each task about its GPUs, without those from before its start."""
    from tfk8s.task import gpus  # imports ctypes, which takes as long as the rest of this module

    found: _Lines = {}
    for line in backend.logs(name, tasks, LogOptions(timestamps=True)):
        written, _, text = line.text.partition(" ")
        if (parsed := gpus.parse_line(text)) and _seconds(written) >= starts.get(line.task, 0.0):
            found[line.task] = parsed
    return found


def _seconds(text: str) -> float:
    """Return the time of a log's line in seconds since the epoch; 0 for a line without its time."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
