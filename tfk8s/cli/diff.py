"""The command diff, and how a plan is shown."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from tfk8s import api
from tfk8s.backends.options import BackendOptions
from tfk8s.cli import json_output, options
from tfk8s.cli.error_report import report
from tfk8s.cli.output import document, note, paint, say
from tfk8s.core.plan import Plan
from tfk8s.core.resources import NOTHING
from tfk8s.core.task_names import format_tasks
from tfk8s.errors import ClusterError, InvalidInput

_ERROR_EXIT_CODE = 2

_SIGNS = {"create": ("+", "32"), "change": ("~", "33"), "remove": ("-", "31")}


def diff(
    file: options.FileOrDefault = None,
    other: Annotated[
        str | None, options.argument("ENTRY", "With an entry of the history as FILE: another one.")
    ] = None,
    settings: options.Settings = None,
    variables: options.Variables = None,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Show what `up` would change, without changing anything.

    On Kubernetes, the API server computes the changes. The exit code is 0 without changes, 1 with changes, and higher
    if the comparison fails.

    Examples:
        tfk8s diff
        tfk8s diff --set worker.tasks=8 --env EPOCHS=3
        tfk8s diff --local cluster.yaml -o json
        tfk8s diff mnist@2 mnist@3

    JSON: name, restarts, refusal, requests (before and after, each with cpu, memory, gpus), price (before and after,
    each an hour with amount, currency, unknown), and changes, each with kind, name, action, and fields, each with path,
    before, after. Of entries: before, after, and fields.
    """
    if file is not None and (entry := api.past(file)):
        return _diff_entries(entry, other, output)
    if other is not None:
        raise InvalidInput(f'"{file}" is no entry of the history', help="for example: tfk8s diff mnist@2 mnist@3")
    file = options.file_or_default(file)
    spec = options.load_job_file(file, settings, variables)
    try:
        plan = api.plan(spec, BackendOptions(local or None, context, namespace))
    except (ClusterError, OSError) as error:
        return max(report(error, as_json=output is not None), _ERROR_EXIT_CODE)
    if output is not None:
        document(json_output.plan(plan))
    elif plan:
        show(plan)
        if plan.refusal:
            note(plan.refusal)
    else:
        note(f'cluster "{plan.name}" matches {file}')
    return int(bool(plan))


def _diff_entries(entry: Any, other: str | None, output: str | None) -> int:
    """Show how two entries of the history differ; values of environment variables are not known."""
    after = api.past(other) if other else None
    if after is None:
        raise InvalidInput(
            f"{entry.files.id} can be compared with another entry only", help="for example: tfk8s diff mnist@2 mnist@3"
        )
    fields = entry.fields_to(after)
    if output is not None:
        document({
            "before": entry.files.id, "after": after.files.id, "fields": [dataclasses.asdict(field) for field in fields]
        })  # fmt: skip
    for field in fields if output is None else ():
        say(str(field))
    if not fields:
        note(f"{entry.files.id} and {after.files.id} do not differ")
    return int(bool(fields))


def show(plan: Plan) -> None:
    """Print the changes of a plan: a line for each object, and under it a line for each field."""
    for line in _lines(plan):
        say(line)


def _lines(plan: Plan) -> Iterator[str]:
    for change in plan.changes:
        sign, colour = _SIGNS[change.action]
        yield paint(f"{sign} {change.kind} {change.name}", colour, sys.stdout)
        for field in change.fields:
            yield f"    {field}"
    if plan.restarts:
        yield f"restarts: {format_tasks(plan.restarts)}"
    if plan and (plan.requests_before, plan.requests) != (NOTHING, NOTHING):
        before = f"{plan.requests_before} → " if plan.requests_before not in (NOTHING, plan.requests) else ""
        yield f"requests of all tasks: {before}{plan.requests}"
    if plan and plan.prices:
        old, new = plan.prices
        yield f"price: {f'{old} → ' if old.amount and old != new else ''}{new}"
    if plan.way_out:
        yield f"way out: {plan.way_out}"
