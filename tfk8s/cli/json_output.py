"""The JSON documents of `-o json`. Their keys are stable.

A task is `task` ("worker/1"), `job`, `index`. Times are RFC 3339 in UTC, or null; memory is in bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterable
from typing import Any

from tfk8s.api import feature
from tfk8s.backends.devices import TaskDevices
from tfk8s.cli.error_report import Description
from tfk8s.cli.output import moment
from tfk8s.core.events import Event
from tfk8s.core.lifetime import Suspension
from tfk8s.core.plan import Plan
from tfk8s.core.price.rates import Price
from tfk8s.core.progress import StepProgress
from tfk8s.core.resources import CPU, MEMORY, Resources
from tfk8s.core.script import LogLine
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, ScriptStatus, TaskStatus
from tfk8s.errors import Problem

Document = dict[str, Any]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\S+ ", re.ASCII)


def cluster(status: ClusterStatus) -> Document:
    """Return the document of a cluster, which `status -o json` prints; `ls -o json` prints a list of them."""
    amount, currency = feature("history").cost_so_far(status)
    return {
        "name": status.name,
        "backend": status.backend,
        "location": status.location,
        "phase": status.phase,
        "exit_code": status.exit_code,
        "reason": status.reason,
        "suspended": _suspension(status.suspended),
        "target": status.target,
        "master": str(status.master),
        "created": moment(status.created),
        "removed_at": moment(status.removed_at),
        "idle": status.limits.idle,
        "idle_suspend": status.limits.suspend,
        "lease": status.limits.lease,
        "idle_since": moment(status.idle_since),
        "limits_problem": status.limits_problem,
        "history": status.record and status.record._asdict(),
        "gang": status.gang,
        "isolation": status.isolation,
        "way_out": status.way_out,
        "python": status.python,
        "tensorflow": status.tensorflow,
        "requests": _resources(status.requests),
        "cost": {"amount": round(amount, 4), "currency": currency} if currency else None,
        "scripts": [_script(script) for script in status.scripts],
        "tasks": [_task(task) for task in status.tasks],
        "stragglers": [{**slow._asdict(), **task_name(slow.task)} for slow in status.stragglers],
        "bad_nodes": [{**bad._asdict(), **task_name(bad.task)} for bad in status.bad_nodes],
    }


def devices(answers: Iterable[TaskDevices]) -> list[Document]:
    """Return the document that `devices -o json` prints: each task with its devices or its error."""
    return [
        {
            **task_name(answer.task),
            "error": answer.error,
            "devices": [
                {
                    "name": device.name,
                    "kind": device.kind,
                    "memory": device.own_memory,
                    "description": device.description,
                }
                for device in answer.devices
            ],
        }
        for answer in answers
    ]


def event(event: Event) -> Document:
    """Return the document of an event; `events -o json` prints a list of them."""
    return {**dataclasses.asdict(event), "time": moment(event.time)}


def log_line(line: LogLine) -> Document:
    """Return the document of a line with its timestamp; `logs -o json` prints a document for each line."""
    time, _, text = line.text.partition(" ") if _TIME.match(line.text) else (None, "", line.text)
    return {**task_name(line.task), "time": time, "text": text}


def plan(plan: Plan) -> Document:
    """Return the document that `diff -o json` prints."""
    changes = [dataclasses.asdict(change) for change in plan.changes]
    return {
        "name": plan.name,
        "changes": changes,
        "restarts": list(map(str, plan.restarts)),
        "refusal": plan.refusal,
        "requests": {"before": _resources(plan.requests_before), "after": _resources(plan.requests)},
        "price": plan.prices and dict(zip(("before", "after"), map(_price, plan.prices), strict=True)),
    }


def error(described: Description) -> Document:
    """Return the document of an error, which each command with `-o json` prints instead of its own."""
    return {"kind": "Error", **described._asdict()}


def problems(file: str, problems: Iterable[Problem]) -> Document:
    """Return the document that `validate -o json` prints. A valid job file has an empty list of problems."""
    listed = [dataclasses.asdict(problem) for problem in problems]
    return {"file": file, "valid": not listed, "problems": listed}


def _suspension(suspension: Suspension | None) -> Document | None:
    return suspension and {
        "since": moment(suspension.since), "by": suspension.by, "idle": suspension.idle or None,
    }  # fmt: skip


def _price(price: Price) -> Document:
    return {**dataclasses.asdict(price), "amount": round(price.amount, 4)}


def _resources(requests: Resources) -> Document:
    """Return the totals: cores, bytes, and GPUs of all kinds."""
    return {"cpu": float(requests[CPU]), "memory": int(requests[MEMORY]), "gpus": requests.gpus}


def _task(status: TaskStatus) -> Document:
    return {
        **task_name(status.task),
        "phase": status.phase,
        "address": status.address,
        "where": status.runs_on,
        "restarts": status.restarts,
        "exit_code": status.exit_code,
        "since": moment(status.since),
        "progress": progress(status.progress),
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
        "progress": progress(status.progress),
        "reason": status.reason,
    }


def progress(progress: StepProgress | None) -> Document | None:
    """Return the document of a progress; None for None."""
    if progress is None:
        return None
    return {
        "step": progress.step,
        "total": progress.total,
        "rate": progress.rate,
        "remaining": progress.remaining,
        "metrics": {name: _number(text) for name, text in progress.metrics.items()},
    }


def _number(text: str) -> float | str:
    """Return a number, if JSON has it; else the text."""
    for kind in (int, float):
        with contextlib.suppress(ValueError, OverflowError):
            if math.isfinite(number := kind(text)):
                return number
    return text


def task_name(task: Task) -> Document:
    """Return the keys that name a task."""
    return {"task": str(task), "job": task.job, "index": task.index}
