"""What a local cluster's supervisor knows of it, as a status."""

from __future__ import annotations

from typing import Any

from tfk8s.backends.local import state, supervisor_client
from tfk8s.backends.local.record import Record, TaskRecord
from tfk8s.core.status import ClusterStatus, Phase, ScriptPhase, ScriptStatus, TaskStatus
from tfk8s.errors import ClusterError


def status(folder: state.Folder, record: Record) -> ClusterStatus:
    """Return what is there now; a supervisor that is gone or silent is the cluster's reason."""
    reason = ""
    scripts: tuple[ScriptStatus, ...] = ()
    try:
        observed = supervisor_client.observed(folder)
        tasks = [_task_status(task, known) for task, known in zip(record.tasks, observed["tasks"], strict=True)]
        scripts = tuple(map(_script_status, observed["scripts"]))
    except supervisor_client.SupervisorGone as error:
        reason, tasks = str(error), _unseen(record, Phase.FAILED, "ended with the cluster's supervisor")
    except ClusterError as error:
        reason, tasks = str(error), _unseen(record, Phase.UNKNOWN, "the cluster's supervisor does not answer")
    return ClusterStatus(
        name=record.name, backend="local", location=str(folder.path), target=record.target,
        master=record.job_file.master_task, tasks=tuple(tasks), created=record.created, reason=reason, scripts=scripts,
    )  # fmt: skip


def _unseen(record: Record, phase: Phase, reason: str) -> list[TaskStatus]:
    return [TaskStatus(task=task.task, phase=phase, address=task.address, reason=reason) for task in record.tasks]


def _task_status(task: TaskRecord, known: dict[str, Any]) -> TaskStatus:
    return TaskStatus(
        task=task.task,
        phase=Phase(known["phase"]),
        address=task.address,
        runs_on=f"pid {known['pid']}" if known["pid"] else "",
        restarts=known["restarts"],
        since=known["since"],
        reason=known["reason"] or task.note,
    )


def _script_status(known: dict[str, Any]) -> ScriptStatus:
    return ScriptStatus(
        name=f"pid {known['pid']}" if known["pid"] else "",
        phase=ScriptPhase.RUNNING if known["pid"] else ScriptPhase.PENDING,
        command=known["command"],
        since=known["since"],
    )
