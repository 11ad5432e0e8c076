"""Commands that inspect tasks: logs, exec."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Annotated, TextIO

import typer

from tfk8s import api
from tfk8s.cli import completion, json_output, options
from tfk8s.cli.output import line as json_line
from tfk8s.cli.output import note, paint, prefix_colour, say
from tfk8s.cli.result_file import Result
from tfk8s.cluster.removal_notice import RemovalNotice
from tfk8s.core.output.tensorflow_log import TensorFlowLines
from tfk8s.core.script import LogLine, Logs
from tfk8s.core.spec import Task
from tfk8s.errors import InvalidInput
from tfk8s.render import script_job


def logs(
    name: options.Name,
    tasks: Annotated[
        list[str] | None,
        options.argument(
            "TASK",
            "JOB/INDEX, or JOB for all its tasks; default: all tasks. Or a script's name.",
            completion.tasks_and_scripts,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new output until Ctrl-C.")] = False,
    tail: Annotated[int | None, options.number_option("--tail", "N", 0, "Print only the last N lines of each.")] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Print the output before each task's last restart.")
    ] = False,
    since: Annotated[
        float | None,
        typer.Option(
            "--since", metavar="TIME", callback=options.seconds, help="Print only the output of the last TIME."
        ),
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Begin each line with its time.")] = False,
    all_lines: options.AllLines = False,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Print the output of tasks, or of a script.

    Leaves out informational lines and warnings of TensorFlow's own log, but those of failures. With --follow, returns
    the script's exit code.

    Examples:
        tfk8s logs --local mnist
        tfk8s logs -f --tail 10 mnist worker/0 worker/1
        tfk8s logs --previous mnist worker/1
        tfk8s logs --since 5m --timestamps mnist
        tfk8s logs -f mnist script-4e9c21
        tfk8s logs -o json mnist worker
        tfk8s logs mnist@3 worker/1

    JSON: a line for each line of the output, with task, job, index, time, text.
    """
    if previous and follow:
        raise InvalidInput("--previous can't be combined with --follow: a run that has ended writes nothing more")
    as_json = output is not None
    part = {
        "follow": follow, "tail": tail, "previous": previous, "since": since, "timestamps": timestamps or as_json,
    }  # fmt: skip
    if past := api.past(name):
        return _print(past.logs(tasks or (), **part), all_lines=all_lines, as_json=as_json)
    cluster = options.find_cluster(name, local, context, namespace)
    with RemovalNotice(cluster.backend, cluster.name) if follow else nullcontext():
        if tasks and script_job.is_name(tasks[0]) and len(tasks) == 1:
            if as_json:
                raise InvalidInput("-o json is for the output of tasks, and a script's is printed as it was written")
            return cluster.show(tasks[0], **part, brief=not all_lines)
        advice = f"tfk8s status{cluster.backend.flags} {cluster.name} shows what runs"
        return _print(cluster.logs(tasks or (), **part), advice, all_lines=all_lines, as_json=as_json)


def _print(found: Logs, advice: str = "", *, all_lines: bool, as_json: bool) -> int:
    """Print the output of tasks, or say that there is none."""
    shown = ShownLines(found, all_lines=all_lines)
    if as_json:
        for line in shown:
            json_line(json_output.log_line(line))
        return 0
    last = print_lines(found.tasks, shown)
    shown.note_left_out()
    if last is None and not shown.left_out:
        none = "no output from before a restart" if found.options.previous else "no output"
        note(f"{none}; {advice}" if advice and not found.options.previous else none)
    return 0


def print_lines(
    chosen: Sequence[Task], lines: Iterable[LogLine], on_line: Callable[[], None] = lambda: None
) -> LogLine | None:
    """Print lines, each with its task if there are several; return the last line.

    Args:
        chosen: the tasks.
        on_line: called before each line.
    """
    marks = prefixes(chosen, sys.stdout)
    last = None
    for last in lines:
        on_line()
        say(f"{marks[last.task]}{last.text}", is_raw=True)
    return last


class ShownLines:
    """Lines without those of TensorFlow's own log, unless the user wants all lines.

    Attributes:
        left_out: the number of lines left out so far.
    """

    def __init__(self, lines: Iterable[LogLine], *, all_lines: bool) -> None:
        self._lines, self._all_lines = lines, all_lines
        self.left_out = 0

    def __iter__(self) -> Iterator[LogLine]:
        own: defaultdict[Task, TensorFlowLines] = defaultdict(TensorFlowLines)
        for line in self._lines:
            if self._all_lines or not own[line.task].include(line.text):
                yield line
            else:
                self.left_out += 1

    def note_left_out(self) -> None:
        """Say how many lines were left out."""
        if self.left_out:
            plural = "s" * (self.left_out > 1)
            note(f"{self.left_out} line{plural} of TensorFlow's own log left out: --all prints them")


def prefixes(chosen: Sequence[Task], stream: TextIO) -> dict[Task, str]:
    """Return what stands before each line of a task; nothing if there is only one task."""
    width = max(len(str(task)) for task in chosen)
    return {
        task: paint(f"{str(task).ljust(width)} | ", prefix_colour(number), stream) if len(chosen) > 1 else ""
        for number, task in enumerate(chosen)
    }


def exec(  # noqa: A001 - the command's name
    name: options.Name,
    task: Annotated[str, options.argument("TASK", "JOB/INDEX.", completion.tasks)],
    command: Annotated[list[str], options.argument("COMMAND", "The command and its arguments.")],
    result: Result = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Run a command beside a task's server.

    On Kubernetes, runs in the task's container. On this machine, runs in the network of the tasks, with the task's
    variables. The command gets a terminal if this one has a terminal. Returns the command's exit code.

    Examples:
        tfk8s exec mnist worker/0 -- bash
        tfk8s exec --local mnist ps/0 -- python3 -c "import os; print(os.environ)"
    """
    del result  # `Command.invoke` writes the file
    cluster = options.find_cluster(name, local, context, namespace)
    return cluster.exec(task, *command)
