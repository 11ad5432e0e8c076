"""Commands about what changes: diff, scale."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tfk8s.cli import options
from tfk8s.cli.options import TIMEOUT, NoWait
from tfk8s.cli.output import document, note, paint, say
from tfk8s.cli.signals import leaving

if TYPE_CHECKING:
    from tfk8s.changes import Plan

_TROUBLE = 2
_SIGNS = {"create": ("+", "32"), "change": ("~", "33"), "remove": ("-", "31")}


def diff(
    file: options.File,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Show what `up` would change, and change nothing.

    On Kubernetes it is the API server that says so. The exit code is 0 where nothing differs, 1 where something does,
    and more where that can't be told.

    Examples:
        tfk8s diff cluster.yaml
        tfk8s diff --local cluster.yaml -o json

    JSON: name, restarts, refusal, and changes, each with kind, name, action, and fields, each with path, before, after.
    """
    from tfk8s import api
    from tfk8s.cli import documents
    from tfk8s.cli.failures import report
    from tfk8s.errors import ClusterError
    from tfk8s.where import Where

    try:
        plan = api.plan(file, Where(local or None, context, namespace))
    except (ClusterError, OSError) as error:
        return max(report(error), _TROUBLE)
    if output is not None:
        document(documents.plan(plan))
    elif plan:
        show(plan)
        if plan.refusal:
            note(plan.refusal)
    else:
        note(f'cluster "{plan.name}" is as {file} says')
    return int(bool(plan))


def scale(
    name: options.Name,
    tasks: Annotated[
        list[str], typer.Argument(metavar="JOB=TASKS", help="How many tasks a job is to have.", show_default=False)
    ],
    timeout: options.Timeout = TIMEOUT,
    no_wait: NoWait = False,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Change how many tasks jobs have; all are started anew.

    Servers that know different clusters don't work together, so variables and sessions are lost. Waits until every
    task answers. The job file stays as it is.

    Examples:
        tfk8s scale mnist worker=8
        tfk8s scale --local mnist worker=8 ps=2
    """
    from tfk8s.api import find
    from tfk8s.cli.progress import Progress
    from tfk8s.tasks import counts
    from tfk8s.where import Where

    wanted = counts(tasks)
    cluster = find(name, Where(local or None, context, namespace))
    with leaving("what is started anew goes on; `tfk8s status` shows it"), Progress() as progress:
        changed = cluster.scale(wanted, timeout=None if no_wait else timeout, on_change=progress.update)
    numbers = ", ".join(f"{job}={count}" for job, count in wanted.items())
    if changed:
        say(f'scaled cluster "{cluster.name}" to {numbers}, and started all its tasks anew')
        note("write it into the job file too: `tfk8s up` goes by that")
    else:
        say(f'cluster "{cluster.name}" has {numbers}: nothing changed')


def show(plan: Plan) -> None:
    """Print what would change: a line for each thing, and under it one for each field."""
    for line in _lines(plan):
        say(line)


def _lines(plan: Plan) -> Iterator[str]:
    from tfk8s.tasks import listed

    for change in plan.changes:
        sign, colour = _SIGNS[change.action]
        yield paint(f"{sign} {change.kind} {change.name}", colour, sys.stdout)
        for field in change.fields:
            yield f"    {field}"
    if plan.restarts:
        yield f"starts anew: {listed(plan.restarts)}"
