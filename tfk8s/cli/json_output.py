"""The JSON documents of `-o json`: their keys stay what they are.

A task is `task` ("worker/1"), `job`, `index`. Times are RFC 3339 in UTC, or null; memory is in bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from tfk8s.backends.devices import TaskDevices
from tfk8s.cli.output import moment
from tfk8s.core.events import Event
from tfk8s.core.plan import Plan
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, ScriptStatus, TaskStatus
from tfk8s.errors import Problem

Document = dict[str, Any]


def cluster(status: ClusterStatus) -> Document:
    """Return what `status -o json` prints, and `ls -o json` a list of."""
    return {
        "name": status.name,
        "backend": status.backend,
        "location": status.location,
        "phase": status.phase,
        "reason": status.reason,
        "target": status.target,
        "master": str(status.master),
        "created": moment(status.created),
        "scripts": [_script(script) for script in status.scripts],
        "tasks": [_task(task) for task in status.tasks],
    }


def devices(answers: Iterable[TaskDevices]) -> list[Document]:
    """Return what `devices -o json` prints: each task with its devices, or with the error that it has none."""
    return [
        {
            **_name(answer.task),
            "error": answer.error,
            "devices": [
                {"name": one.name, "kind": one.kind, "memory": one.memory, "description": one.description}
                for one in answer.devices
            ],
        }
        for answer in answers
    ]


def event(found: Event) -> Document:
    """Return what `events -o json` prints a list of."""
    return {**dataclasses.asdict(found), "time": moment(found.time)}


def plan(found: Plan) -> Document:
    """Return what `diff -o json` prints."""
    changes = [dataclasses.asdict(change) for change in found.changes]
    return {
        "name": found.name,
        "changes": changes,
        "restarts": list(map(str, found.restarts)),
        "refusal": found.refusal,
    }


def problems(file: str, found: Iterable[Problem]) -> Document:
    """Return what `validate -o json` prints: a job file without problems has an empty list of them."""
    listed = [dataclasses.asdict(problem) for problem in found]
    return {"file": file, "valid": not listed, "problems": listed}


def _task(status: TaskStatus) -> Document:
    return {
        **_name(status.task),
        "phase": status.phase,
        "address": status.address,
        "where": status.runs_on,
        "restarts": status.restarts,
        "since": moment(status.since),
        "reason": status.reason,
    }


def _script(status: ScriptStatus) -> Document:
    return {
        "script": status.name,
        "phase": status.phase,
        "exit_code": status.exit_code,
        "command": status.command,
        "where": status.runs_on,
        "since": moment(status.since),
        "reason": status.reason,
    }


def _name(task: Task) -> Document:
    return {"task": str(task), "job": task.job, "index": task.index}
