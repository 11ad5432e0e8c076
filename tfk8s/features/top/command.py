"""The command `tfk8s top`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from tfk8s import polling
from tfk8s.backends.usage import Usage
from tfk8s.cli import json_output, options
from tfk8s.cli.output import document, line, say, table
from tfk8s.cli.start_progress import Panel, cell, until_removed
from tfk8s.cluster.handle import Cluster
from tfk8s.core.status import ClusterStatus
from tfk8s.core.task_names import choose

PAUSE = 5.0  # between two looks of --watch, each of which takes a second
_HEAD = ("TASK", "PHASE", "CPU", "MEMORY", "IN", "OUT", "GPU", "GPU MEMORY", "PROGRESS", "REASON")
_OPTIONAL = ("IN", "OUT", "GPU", "GPU MEMORY", "PROGRESS")


def top(
    name: options.Name,
    chosen: options.TasksAndScripts = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Measure again until Ctrl-C.")] = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Show what tasks and scripts use: CPU, memory, network, GPUs.

    CPU is in cores, and IN and OUT are bytes a second of the task's own network. Amounts stand before their limits.

    Examples:
        tfk8s top --local mnist
        tfk8s top --watch mnist worker
        tfk8s top mnist -o json

    JSON: tasks, each with task, job, index, phase, reason, and scripts, each with script, command. Both have cpu and
    cpu_limit (cores), memory and memory_limit (bytes), received and sent (bytes a second), gpu (0 to 1), gpu_memory
    and gpu_memory_limit (bytes), each null if nobody measures it, and problem; one document a line with --watch.
    """
    cluster = options.find_cluster(name, local, context, namespace)
    if not watch:
        status, found = _look(cluster, chosen or ())
        document(_document(status, found)) if output is not None else say(_table(status, found))
    elif output is not None:
        for status, found in _looks(cluster, chosen or ()):
            line(_document(status, found))
    else:
        _show(cluster, chosen or ())


def _looks(cluster: Cluster, words: Sequence[str]) -> Iterator[tuple[ClusterStatus, list[Usage]]]:
    """Return the status and the usage again and again, until the cluster is removed."""
    return until_removed(cluster.name, (_look(cluster, words) for _ in polling.poll(None, least_interval=PAUSE)))


def _look(cluster: Cluster, words: Sequence[str]) -> tuple[ClusterStatus, list[Usage]]:
    status = cluster.status()
    return status, cluster.backend.inside.usage(cluster.name, choose(status, words))


def _show(cluster: Cluster, words: Sequence[str]) -> None:
    """Show each look in place of the last on a terminal, else below."""
    panel = Panel(sys.stdout, transient=False) if sys.stdout.isatty() else None
    try:
        for status, found in _looks(cluster, words):
            text = _table(status, found)
            say(text) if panel is None else panel.show(text)
    finally:
        if panel is not None:
            panel.close()


def _table(status: ClusterStatus, found: Sequence[Usage]) -> str:
    tasks = {str(task.task): task for task in status.tasks}
    scripts = {script.name: script for script in status.scripts}
    rows = []
    for usage in found:
        task, script = tasks.get(usage.name), scripts.get(usage.name)
        phase, progress, reason = (
            (task.phase, task.progress, task.reason) if task else (script.phase, script.progress, script.command)
            if script else ("", None, "")
        )  # fmt: skip
        rows.append(
            (usage.name, phase, *_amounts(usage), cell(progress, sys.stdout, short=True), reason or usage.problem)
        )
    return table(_HEAD, rows, sys.stdout, _OPTIONAL)


def _amounts(usage: Usage) -> tuple[str, ...]:
    """Return the cells of what was measured."""
    return (
        _cores(usage.cpu, usage.cpu_limit), _bytes(usage.memory, usage.memory_limit),
        *("" if rate is None else f"{_size(rate)}/s" for rate in (usage.received, usage.sent)),
        "" if usage.gpu is None else f"{usage.gpu:.0%}", _bytes(usage.gpu_memory, usage.gpu_memory_limit),
    )  # fmt: skip


def _cores(used: float | None, limit: float | None) -> str:
    if used is None:
        return ""
    return f"{used:.2f}" if limit is None else f"{used:.2f} of {limit:g}"


def _bytes(used: float | None, limit: float | None) -> str:
    if used is None:
        return ""
    return _size(used) if limit is None else f"{_size(used)} of {_size(limit)}"


def _size(amount: float) -> str:
    """Return bytes with three digits: `1.25Mi`."""
    for unit in ("", "Ki", "Mi", "Gi"):
        if amount < 1000:
            return f"{amount:.3g}{unit}"
        amount /= 1024
    return f"{amount:.3g}Ti"


def _document(status: ClusterStatus, found: Sequence[Usage]) -> json_output.Document:
    """Return the document that `top -o json` prints."""
    by_name = {usage.name: {**dataclasses.asdict(usage)} for usage in found}
    for usage in by_name.values():
        del usage["name"]
    tasks = [
        {**json_output.task_name(task.task), "phase": task.phase, "reason": task.reason, **by_name[str(task.task)]}
        for task in status.tasks if str(task.task) in by_name
    ]  # fmt: skip
    scripts = [
        {"script": script.name, "command": script.command, **by_name[script.name]}
        for script in status.scripts if script.name in by_name
    ]  # fmt: skip
    return {"tasks": tasks, "scripts": scripts}
