"""The command that tells what happened: events."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tfk8s.cli import options
from tfk8s.cli.output import age, document, line, note, say, table

if TYPE_CHECKING:
    from tfk8s.events import Event

_HEAD = ("AGE", "TYPE", "ABOUT", "REASON", "COUNT", "MESSAGE")


def events(
    name: options.Name,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on with what happens, until Ctrl-C.")] = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Tell what happened to a cluster, in the order of time.

    On Kubernetes these are the events of its objects and pods, which the API server keeps for an hour; on this machine
    the starts and ends of its tasks.

    Examples:
        tfk8s events mnist
        tfk8s events --watch mnist -o json

    JSON: a list of events, each with id, time, about, warning, reason, message, count; one a line with --watch.
    """
    from tfk8s.api import find
    from tfk8s.cli import documents
    from tfk8s.where import Where

    found = find(name, Where(local or None, context, namespace)).events(follow=watch)
    if watch:
        for event in found:
            line(documents.event(event)) if output is not None else say("  ".join(_row(event)))
    elif output is not None:
        document([documents.event(event) for event in found])
    elif rows := [_row(event) for event in found]:
        say(table(_HEAD, rows, sys.stdout))
    else:
        note("no events")


def _row(event: Event) -> tuple[str, ...]:
    kind = "Warning" if event.warning else "Normal"
    return age(event.time), kind, event.about, event.reason, str(event.count), " ".join(event.message.split())
