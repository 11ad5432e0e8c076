"""Commands that only read: status, ls, devices, events."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from tfk8s.api import feature, list_with_claims, past
from tfk8s.backends.devices import TaskDevices, require_all
from tfk8s.backends.options import BackendOptions
from tfk8s.cli import json_output, options
from tfk8s.cli.output import age, document, line, memory, moment, note, one_line, say, table
from tfk8s.cli.start_progress import Progress, cell, task_table, until_removed
from tfk8s.cluster.handle import Cluster
from tfk8s.core.events import Event
from tfk8s.core.lifetime import NOTICE, format_duration
from tfk8s.core.price.rates import money
from tfk8s.core.progress import duration
from tfk8s.core.status import ClusterStatus, ScriptStatus
from tfk8s.errors import InvalidInput, TaskError
from tfk8s.polling import changes
from tfk8s.task.probe import Device

_CLUSTER = (
    "NAME", "PHASE", "READY", "CPU", "MEMORY", "GPUS", "MASTER", "TARGET", "SCRIPTS", "PROGRESS", "AGE", "LOCATION",
)  # fmt: skip

_OPTIONAL = ("CPU", "MEMORY", "GPUS", "PROGRESS")  # left out if they are empty

_SCRIPT = ("SCRIPT", "PHASE", "EXIT", "AGE", "PROGRESS", "COMMAND", "REASON")


def status(
    name: options.NameOrDefault = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show changes until Ctrl-C.")] = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Show a cluster and its tasks.

    CPU, MEMORY and GPUS are what all tasks request together. PROGRESS is what a program or a script has said by
    `tfk8s.progress`.

    Examples:
        tfk8s status --local mnist
        tfk8s status mnist -o json
        tfk8s status --watch mnist
        tfk8s status mnist@3

    JSON: name, backend, location, phase, exit_code (of the run of programs), reason, target, master, created,
    removed_at, idle, idle_suspend, lease, idle_since, limits_problem, history (place, problem), suspended (since, by,
    idle), gang ("PodGroup", "Kueue" or ""), isolation, way_out, python (the interpreter's path), tensorflow (its
    version), requests (cpu, memory, gpus), cost (amount, currency; null without rates), and tasks, each with task, job,
    index, phase, address, where, restarts, exit_code, since, progress (step, total, rate, remaining, metrics), reason;
    and scripts, each with script, phase, exit_code, command, where, since, progress, reason; and stragglers, each with
    task, job, index, rate (steps in a second), and the median of its job; and bad_nodes, each with task, job, index,
    node, reason.
    """
    if name is not None and (entry := past(name)):
        _show_past(entry, output, watch=watch)
        return
    cluster = options.find_cluster(options.file_or_default(name), local, context, namespace)
    if not watch:
        _show(cluster.status(), output)
    elif output is not None:
        for status in _watched(cluster):
            line(json_output.cluster(status))
    else:
        with Progress(sys.stdout) as progress:
            for status in _watched(cluster):
                progress.update(status)


def _show_past(entry: Any, output: str | None, *, watch: bool) -> None:
    _require_no_watch(watch)
    found, show = entry.read(), feature("history").show()
    document(show.whole_document(found)) if output is not None else say(show.text(found))


def _require_no_watch(watch: bool) -> None:
    if watch:
        raise InvalidInput("an entry of the history can't be watched", help="leave out --watch, or name a cluster")


def _watched(cluster: Cluster) -> Iterator[ClusterStatus]:
    """Yield the status of a cluster now and after each change, until the cluster is removed."""
    with cluster.backend.observer(cluster.name) as observer:
        yield from until_removed(cluster.name, changes(observer.status))


def ls(
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """List your clusters, of all namespaces without -n.

    CPU, MEMORY and GPUS are what all tasks of a cluster request together. PROGRESS is what a program or a script has
    said by `tfk8s.progress`. COST is what a cluster has cost since your first command, where rates are known. REASON is
    why all tasks of a cluster wait, as in a queue. Also names the claims that are kept of clusters that were removed.

    Examples:
        tfk8s ls --local
        tfk8s ls -o json

    JSON: a list of what `tfk8s status -o json` prints.
    """
    clusters, claims = list_with_claims(BackendOptions(local or None, context, namespace))
    if output is not None:
        document([json_output.cluster(status) for status in clusters])
    elif clusters:
        say(_clusters(clusters, [cluster.common_reason for cluster in clusters]))
    else:
        note("no clusters")
    if output is None:
        for claim in claims:
            what = f'claim {claim.name} ({claim.size}) of cluster "{claim.cluster}", which was removed'
            note(f"kept: {what}; {claim.location}")


def devices(
    name: options.Name,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Show the devices of each task: CPUs, GPUs, their memory.

    Asks the tasks' servers. The exit code is 3 if a task does not respond. On Kubernetes, also shows the free GPUs of
    each node.

    Examples:
        tfk8s devices --local mnist
        tfk8s devices mnist -o json

    JSON: a list of tasks, each with task, job, index, error, and devices, each with name, kind, memory, description.
    The memory of a CPU is null: it is the task's.
    """
    cluster = options.find_cluster(name, local, context, namespace)
    answers = cluster.devices()
    if output is not None:
        document(json_output.devices(answers))
        return TaskError.exit_code if any(answer.error for answer in answers) else 0
    if any(answer.devices for answer in answers):
        rows = [row for answer in answers for row in _devices(answer)]
        say(table(("TASK", "DEVICE", "MEMORY", "DESCRIPTION"), rows))
        shared = cluster.backend.shared
        if shared and (free := shared.free_gpus()):
            note(f"GPUs: {free}")
    require_all(answers)
    return 0


def _show(cluster: ClusterStatus, output: str | None) -> None:
    if output is not None:
        document(json_output.cluster(cluster))
        return
    say(_clusters([cluster], [""]))
    if cluster.reason:
        say(f"\n{cluster.reason}")
    is_limited = any(limit is not None for limit in cluster.limits)
    if cluster.limits_problem or (is_limited and not cluster.reason):
        say(f"\n{_limits(cluster)}")
    say("\n" + task_table(cluster.tasks, sys.stdout))
    notes = [*(f"slow: {one}" for one in cluster.stragglers), *(f"bad node {one}" for one in cluster.bad_nodes)]
    if notes:
        say("\n" + "\n".join(notes))
    for title, text in (("gang", cluster.gang), ("history", cluster.record), ("python", cluster.interpreter)):
        if text:
            say(f"\n{title}: {text}")
    if cluster.isolation:
        say(f"isolation: {cluster.isolation}")
    if cluster.way_out:
        say(f"way out: {cluster.way_out}")
    if cluster.scripts:
        say("\n" + table(_SCRIPT, map(_script, cluster.scripts), sys.stdout, _OPTIONAL))


def _clusters(clusters: Sequence[ClusterStatus], reasons: Sequence[str]) -> str:
    """Return the table of clusters, their costs and reasons, without the columns that are empty."""
    costs = map(feature("history").cost_so_far, clusters)
    cells = (currency and money(amount, currency) for amount, currency in costs)
    rows = ((*_cluster(cluster), *rest) for cluster, *rest in zip(clusters, cells, reasons, strict=True))
    return table((*_CLUSTER, "COST", "REASON"), rows, sys.stdout, (*_OPTIONAL, "COST", "REASON"))


def _cluster(cluster: ClusterStatus) -> tuple[str, ...]:
    return (
        cluster.name, cluster.phase, f"{cluster.ready}/{len(cluster.tasks)}", *cluster.requests.cells,
        str(cluster.master), cluster.target, str(cluster.running), cell(cluster.progress, sys.stdout, short=True),
        age(cluster.created), cluster.location,
    )  # fmt: skip


def _limits(cluster: ClusterStatus) -> str:
    """Return when tfk8s suspends and removes the cluster, or why the cluster is still there."""
    if cluster.limits_problem:
        limits = [name for name, limit in cluster.limits._asdict().items() if limit is not None]
        limits = list(dict.fromkeys("idle" if name == "suspend" else name for name in limits))
        names = limits or ["drain: idle"]  # the same Job keeps them
        return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not kept: {cluster.limits_problem}"
    if cluster.removed_at is not None and cluster.removed_at <= time.time():
        return f"tfk8s has not removed the cluster yet: max_duration ended at {moment(cluster.removed_at)}"
    ends = []
    if cluster.removed_at is not None:
        left = cluster.removed_at - time.time()
        soon = f", in {duration(left)}" if left < NOTICE else ""
        ends.append(f"at {moment(cluster.removed_at)} (max_duration){soon}")
    unused = "without a session and a script (idle)"
    if cluster.idle_since is not None:
        unused += f", {age(cluster.idle_since)} so far"
    if cluster.limits.idle is not None:
        of_that = unused if cluster.limits.suspend is None else "of that"
        ends.append(f"after {format_duration(cluster.limits.idle)} {of_that}")
    if cluster.limits.lease is not None:
        after = f"after its `run` has been gone for {format_duration(cluster.limits.lease)}"
        ends.append(f"{after if cluster.limits.lease else 'when its `run` is gone'} (lease)")
    acts = [f"removes the cluster {', or '.join(ends)}"] if ends else []
    if cluster.limits.suspend is not None:
        acts.insert(0, f"suspends the cluster after {format_duration(cluster.limits.suspend)} {unused}")
    return f"tfk8s {', and '.join(acts)}"


def _script(script: ScriptStatus) -> tuple[str, ...]:
    code = "" if script.exit_code is None else str(script.exit_code)
    progress = cell(script.progress, sys.stdout)
    return script.name, script.phase, code, age(script.since), progress, script.command, script.reason


def _devices(answer: TaskDevices) -> list[tuple[str, ...]]:
    return [
        (str(answer.task), device.name.rpartition("/device:")[2], _memory(device), device.description)
        for device in answer.devices
    ]


def _memory(device: Device) -> str:
    return "-" if device.own_memory is None else memory(device.own_memory)


_HEAD = ("AGE", "TYPE", "ABOUT", "REASON", "COUNT", "MESSAGE")


def events(
    name: options.Name,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print new events until Ctrl-C.")] = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """List the events of a cluster, oldest first.

    On Kubernetes, prints the events of its objects and pods. The API server keeps them for an hour. On this machine,
    prints the starts and ends of its tasks.

    Examples:
        tfk8s events mnist
        tfk8s events --watch mnist -o json
        tfk8s events mnist@3

    JSON: a list of events, each with id, time, about, warning, reason, message, count; one a line with --watch.
    """
    if entry := past(name):
        _require_no_watch(watch)
        happened = iter(entry.events())
    else:
        happened = options.find_cluster(name, local, context, namespace).events(follow=watch)
    if watch:
        for event in happened:
            line(json_output.event(event)) if output is not None else say(one_line("  ".join(_row(event))))
    elif output is not None:
        document([json_output.event(event) for event in happened])
    elif rows := [_row(event) for event in happened]:
        say(table(_HEAD, rows, sys.stdout))
    else:
        note("no events")


def _row(event: Event) -> tuple[str, ...]:
    kind = "Warning" if event.warning else "Normal"
    return age(event.time), kind, event.about, event.reason, str(event.count), " ".join(event.message.split())
