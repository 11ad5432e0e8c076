"""Commands that only look: status, ls, devices, logs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tfk8s.cli import completion, options
from tfk8s.cli.output import age, document, line, memory, note, paint, prefix_colour, say, table

if TYPE_CHECKING:
    from tfk8s.backends.devices import TaskDevices
    from tfk8s.cluster.handle import Cluster
    from tfk8s.core.status import ClusterStatus, ScriptStatus


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfk8s.core.events import Event

_CLUSTER = ("NAME", "PHASE", "READY", "MASTER", "TARGET", "SCRIPTS", "AGE", "LOCATION")
_SCRIPT = ("SCRIPT", "PHASE", "EXIT", "AGE", "COMMAND", "REASON")


def status(
    name: options.Name,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on showing what changes, until Ctrl-C.")] = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Show a cluster and its tasks.

    Examples:
        tfk8s status --local mnist
        tfk8s status mnist -o json
        tfk8s status --watch mnist

    JSON: name, backend, location, phase, reason, target, master, created, and tasks, each with task, job, index, phase,
    address, where, restarts, since, reason; and scripts, each with script, phase, exit_code, command, where, since,
    reason.
    """
    from tfk8s.api import find
    from tfk8s.backends.options import BackendOptions
    from tfk8s.cli import json_output
    from tfk8s.cli.progress import Progress

    cluster = find(name, BackendOptions(local or None, context, namespace))
    if not watch:
        _show(cluster.status(), output)
    elif output is not None:
        for found in _watched(cluster):
            line(json_output.cluster(found))
    else:
        with Progress(sys.stdout) as progress:
            for found in _watched(cluster):
                progress.update(found)


def _watched(cluster: Cluster) -> Iterator[ClusterStatus]:
    """Yield what is there of a cluster, and whenever that has changed, until it is removed."""
    from tfk8s.errors import NoSuchCluster
    from tfk8s.polling import changes

    seen = False
    try:
        with cluster.backend.observer(cluster.name) as observer:
            for found in changes(observer.status):
                seen = True
                yield found
    except NoSuchCluster:
        if not seen:
            raise
        note(f'cluster "{cluster.name}" is gone')


def ls(
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """List your clusters.

    Examples:
        tfk8s ls --local
        tfk8s ls -o json

    JSON: a list of what `tfk8s status -o json` prints.
    """
    from tfk8s.api import list_clusters
    from tfk8s.backends.options import BackendOptions
    from tfk8s.cli import json_output

    found = list_clusters(BackendOptions(local or None, context, namespace))
    if output is not None:
        document([json_output.cluster(status) for status in found])
    elif found:
        say(table(_CLUSTER, map(_cluster, found), sys.stdout))
    else:
        note("no clusters")


def devices(
    name: options.Name,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Show the devices of each task: CPUs, GPUs, their memory.

    It is the servers that are asked. The exit code is 3 where a task does not answer.

    Examples:
        tfk8s devices --local mnist
        tfk8s devices mnist -o json

    JSON: a list of tasks, each with task, job, index, error, and devices, each with name, kind, memory, description.
    """
    from tfk8s.api import find
    from tfk8s.backends.devices import require_all
    from tfk8s.backends.options import BackendOptions
    from tfk8s.cli import json_output

    answers = find(name, BackendOptions(local or None, context, namespace)).devices()
    if output is not None:
        document(json_output.devices(answers))
    elif any(answer.devices for answer in answers):
        rows = [row for answer in answers for row in _devices(answer)]
        say(table(("TASK", "DEVICE", "MEMORY", "DESCRIPTION"), rows))
    require_all(answers)


def logs(
    name: options.Name,
    tasks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TASK",
            help="JOB/INDEX, or JOB for all its tasks; default: all tasks. Or a script's name.",
            show_default=False,
            autocompletion=completion.tasks_and_scripts,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written, until Ctrl-C.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", metavar="N", callback=options.count, help="Only the last N lines of each.")
    ] = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Print what tasks wrote, or what a script wrote.

    With --follow, a script's exit code is the command's.

    Examples:
        tfk8s logs --local mnist
        tfk8s logs -f --tail 10 mnist worker/0 worker/1
        tfk8s logs -f mnist script-4e9c21
    """
    from tfk8s.api import find
    from tfk8s.backends.options import BackendOptions
    from tfk8s.render import script_job

    cluster = find(name, BackendOptions(local or None, context, namespace))
    if tasks and script_job.is_name(tasks[0]) and len(tasks) == 1:
        return cluster.show(tasks[0], follow=follow, tail=tail)
    chosen, lines = cluster.logs(tasks or (), follow=follow, tail=tail)
    width = max(len(str(task)) for task in chosen)
    prefixes = {
        task: paint(f"{str(task).ljust(width)} | ", prefix_colour(number), sys.stdout) if len(chosen) > 1 else ""
        for number, task in enumerate(chosen)
    }
    written = None
    for written in lines:
        say(f"{prefixes[written.task]}{written.text}")
    if written is None:
        note(f"nothing was written; tfk8s status{cluster.backend.flags} {cluster.name} shows what runs")
    return 0


def _show(found: ClusterStatus, output: str | None) -> None:
    from tfk8s.cli import json_output
    from tfk8s.cli.progress import HEAD, row

    if output is not None:
        document(json_output.cluster(found))
        return
    say(table(_CLUSTER, [_cluster(found)], sys.stdout))
    if found.reason:
        say(f"\n{found.reason}")
    say("\n" + table(HEAD, map(row, found.tasks), sys.stdout))
    if found.scripts:
        say("\n" + table(_SCRIPT, map(_script, found.scripts), sys.stdout))


def _cluster(found: ClusterStatus) -> tuple[str, ...]:
    return (
        found.name, found.phase, f"{found.ready}/{len(found.tasks)}", str(found.master), found.target,
        str(found.running), age(found.created), found.location,
    )  # fmt: skip


def _script(found: ScriptStatus) -> tuple[str, ...]:
    code = "" if found.exit_code is None else str(found.exit_code)
    return found.name, found.phase, code, age(found.since), found.command, found.reason


def _devices(answer: TaskDevices) -> list[tuple[str, ...]]:
    return [
        (str(answer.task), device.name.rpartition("/device:")[2], memory(device.memory), device.description)
        for device in answer.devices
    ]


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
    from tfk8s.backends.options import BackendOptions
    from tfk8s.cli import json_output

    found = find(name, BackendOptions(local or None, context, namespace)).events(follow=watch)
    if watch:
        for event in found:
            line(json_output.event(event)) if output is not None else say("  ".join(_row(event)))
    elif output is not None:
        document([json_output.event(event) for event in found])
    elif rows := [_row(event) for event in found]:
        say(table(_HEAD, rows, sys.stdout))
    else:
        note("no events")


def _row(event: Event) -> tuple[str, ...]:
    kind = "Warning" if event.warning else "Normal"
    return age(event.time), kind, event.about, event.reason, str(event.count), " ".join(event.message.split())
