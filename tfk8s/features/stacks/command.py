"""The command for the question why nothing moves: stacks."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence

from tfk8s.backends.stacks import PythonThread, Stacks, TensorFlowCall, explainer, needed_by
from tfk8s.cli import json_output, options
from tfk8s.cli.output import document, say, table
from tfk8s.core.status import ClusterStatus
from tfk8s.core.task_names import choose

_STACKS = ("TASK", "PHASE", "DOES", "NEEDED BY")


def stacks(
    name: options.Name,
    chosen: options.TasksAndScripts = None,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> None:
    """Show where tasks and scripts are, if nothing moves.

    Prints the Python stack of each thread of scripts and programs, the innermost frame last. A line before each stack
    says what TensorFlow does there, and which tasks the call waits for. Servers are C++, and have no Python stack.

    Examples:
        tfk8s stacks --local mnist
        tfk8s stacks mnist worker/1
        tfk8s stacks mnist script-4e9c21
        tfk8s stacks mnist -o json

    JSON: tasks, each with task, job, index, phase, reason, needed_by, problem, processes; and scripts, each with
    script, command, problem, processes. A process has pid, state, computes, activity, problem,
    and threads (null for C++), each with name, is_main, frames (file, line, function, source), and call (null, or
    name, seconds, needs, is_same, text).
    """
    cluster = options.find_cluster(name, local, context, namespace)
    status = cluster.status()
    found = cluster.backend.inside.stacks(cluster.name, choose(status, chosen or ()))
    if output is not None:
        document(_document(status, found))
        return
    for number, part in enumerate(_stack_parts(status, found)):
        say(f"\n{part}" if number else part)


def _stack_parts(status: ClusterStatus, found: Sequence[Stacks]) -> Iterator[str]:
    """Yield the table of tasks, then each thread of Python."""
    explain, needing = explainer(status, found), needed_by(found)
    by_name = {entry.name: entry for entry in found}
    rows = [
        (
            str(task.task), task.phase, entry.activity if task.is_up else task.reason or entry.activity,
            ", ".join(needing.get(entry.name, ())),
        )
        for task in status.tasks if (entry := by_name.get(str(task.task)))
    ]  # fmt: skip
    if rows:
        yield table(_STACKS, rows, sys.stdout, ("NEEDED BY",))
    commands = {script.name: script.command for script in status.scripts}
    for entry in found:
        threads = [thread for process in entry.processes for thread in process.threads or ()]
        problems = [process.problem for process in entry.processes if process.problem]
        if entry.name in commands:
            problems = problems or ([] if threads else [entry.activity])
        if threads or problems:
            command = f": {commands[entry.name]}" if entry.name in commands else ""
            yield "\n".join([f"{entry.name}{command}", *problems])
        for thread in threads:
            yield _thread(thread, explain)


def _thread(thread: PythonThread, explain: Callable[[TensorFlowCall], str]) -> str:
    what = f", {explain(thread.call)}" if thread.call else ""
    lines = [f"{thread.name}{what}"]
    for frame in thread.frames:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        lines += [f"    {frame.source}"] if frame.source else []
    return "\n".join(lines)


def _document(status: ClusterStatus, found: Sequence[Stacks]) -> json_output.Document:
    """Return the document that `stacks -o json` prints."""
    by_name = {entry.name: entry for entry in found}
    explain, needing = explainer(status, found), needed_by(found)
    tasks = [
        {
            **json_output.task_name(task.task), "phase": task.phase, "reason": task.reason, **_stacks(entry, explain),
            "needed_by": needing.get(entry.name, []),
        }
        for task in status.tasks if (entry := by_name.get(str(task.task)))
    ]  # fmt: skip
    scripts = [
        {"script": script.name, "command": script.command, **_stacks(by_name[script.name], explain)}
        for script in status.scripts
        if script.name in by_name
    ]
    return {"tasks": tasks, "scripts": scripts}


def _stacks(entry: Stacks, explain: Callable[[TensorFlowCall], str]) -> json_output.Document:
    processes = []
    for process in entry.processes:
        listed = {**dataclasses.asdict(process), "activity": process.activity}
        for shown, thread in zip(listed["threads"] or (), process.threads or (), strict=True):
            shown["call"] = thread.call and {**shown["call"], "text": explain(thread.call)}
        processes.append(listed)
    return {"problem": entry.problem, "processes": processes}
