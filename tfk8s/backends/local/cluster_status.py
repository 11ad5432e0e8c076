"""The status of a local cluster, from its supervisor."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfk8s.backends import suspended
from tfk8s.backends.local import state, supervisor_client
from tfk8s.backends.local.record import Record, TaskRecord
from tfk8s.backends.local.supervision import suspended_file
from tfk8s.backends.own_folder import read_file
from tfk8s.core.job_kinds import success_tasks
from tfk8s.core.progress import StepProgress, parse
from tfk8s.core.resources import named
from tfk8s.core.roles import DATA
from tfk8s.core.spec import Job, Task
from tfk8s.core.status import ClusterStatus, Phase, ScriptPhase, ScriptStatus, TaskStatus
from tfk8s.errors import ClusterError

_MAX_PROGRESS = 1 << 16  # bytes of one line


def status(folder: state.Folder, record: Record) -> ClusterStatus:
    """Return the current status. If the supervisor has ended or does not respond, the cluster's reason says so.

    Args:
        folder: the cluster's.
        record: the cluster's; the supervisor's own record replaces it, because another command may scale the cluster.
    """
    reason = ""
    scripts: tuple[ScriptStatus, ...] = ()
    idle_since, limits = None, record.job_file.limits
    isolation, way_out = str(record.isolation), ""
    try:
        observed = supervisor_client.observe(folder)
        record = observed.record
        tasks = _tasks(folder, record, observed.tasks)  # of one moment
        scripts = tuple(map(_script_status, observed.scripts))
        idle_since, isolation, way_out = observed.idle_since, observed.isolation, observed.way_out
    except supervisor_client.SupervisorGone as error:
        reason, tasks = str(error), _all_tasks(record, Phase.FAILED, "ended with the cluster")
    except ClusterError as error:
        reason, tasks = str(error), _all_tasks(record, Phase.UNKNOWN, "the cluster's supervisor does not respond")
        limits = limits._replace(lease=0.0)  # perhaps; else a `run` would take the cluster for one without, and keep it
    if record.is_leased:  # also while the cluster ends, or the next `run` would keep the cluster
        limits = limits._replace(lease=0.0)
    known = dataclasses.replace(
        _status(folder, record, tasks), reason=reason, scripts=scripts, limits=limits, idle_since=idle_since,
        isolation=isolation, way_out=way_out,
    )  # fmt: skip
    if known.suspended is None:
        return known
    reason = suspended.reason(record.name, known.suspended, " --local")
    return dataclasses.replace(known, reason=reason, tasks=tuple(_all_tasks(record, Phase.SUSPENDED, "")))


def of_tasks(folder: state.Folder, record: Record, tasks: Iterable[dict[str, Any]]) -> ClusterStatus:
    """Return what a supervisor itself knows of its cluster.

    Args:
        folder, record: the cluster's.
        tasks: `TaskProcess.describe` of each task.
    """
    return _status(folder, record, _tasks(folder, record, tasks))


def _status(folder: state.Folder, record: Record, tasks: Iterable[TaskStatus]) -> ClusterStatus:
    return ClusterStatus(
        name=record.name, backend="local", location=str(folder.path), target=record.target,
        master=record.job_file.master_task, tasks=tuple(tasks), created=record.created,
        suspended=suspended_file.read(folder), requests=named(record.job_file),
        success=tuple(success_tasks(record.job_file)), is_elastic=record.elastic, python=record.python,
        tensorflow=record.tensorflow_version,
    )  # fmt: skip


def of_folder(folder: state.Folder) -> ClusterStatus | None:
    """Return the status of the cluster in a folder; of a damaged cluster only the reason; None without a cluster."""
    try:
        record = folder.read()
    except ClusterError as error:
        return ClusterStatus(
            name=folder.path.name, backend="local", location=str(folder.path), target="", master=Task("damaged", 0),
            tasks=(), reason=str(error),
        )  # fmt: skip
    return status(folder, record) if record is not None else None


def failed_servers(folder: state.Folder) -> list[Task]:
    """Return the tasks whose servers have failed and wait for a restart."""
    observed = supervisor_client.observe(folder)
    return [
        Task(task["job"], task["index"])
        for task in observed.tasks
        if task["phase"] == Phase.FAILED and observed.record.job_file.job(task["job"]).program is None
    ]


def _tasks(folder: state.Folder, record: Record, described: Iterable[dict[str, Any]]) -> list[TaskStatus]:
    jobs = {job.name: job for job in record.job_file.jobs}
    pairs = zip(record.tasks, described, strict=True)
    return [_task_status(folder, task, jobs[task.job], values) for task, values in pairs]


def _all_tasks(record: Record, phase: Phase, reason: str) -> list[TaskStatus]:
    return [TaskStatus(task=task.task, phase=phase, address=task.address, reason=reason) for task in record.tasks]


def _task_status(folder: state.Folder, task: TaskRecord, job: Job, values: dict[str, Any]) -> TaskStatus:
    return TaskStatus(
        task=task.task,
        phase=Phase(values["phase"]),
        address=task.address,
        runs_on=f"pid {values['pid']}" if values["pid"] else "",
        restarts=values["restarts"],
        since=values["since"],
        reason=values["reason"] or task.note,
        required_gpus=int(task.environment.get("TFK8S_GPUS", "0")) if job.kind != DATA else 0,
        is_program=job.program is not None,
        is_data=job.kind == DATA,
        exit_code=values["exit_code"],
        has_given_up=values["has_given_up"],
        progress=read_progress(folder.task_progress(task.task)) if job.program else None,
    )


def _script_status(values: dict[str, Any]) -> ScriptStatus:
    return ScriptStatus(
        name=f"pid {values['pid']}" if values["pid"] else "",
        phase=ScriptPhase.RUNNING if values["pid"] else ScriptPhase.PENDING,
        command=values["command"],
        since=values["since"],
        progress=read_progress(Path(values["progress"])),
    )


def read_progress(path: Path) -> StepProgress | None:
    """Return what a script or a program has written to its file."""
    try:
        return parse(read_file(path, _MAX_PROGRESS).decode())
    except (OSError, ValueError):  # nothing yet, or something else
        return None
