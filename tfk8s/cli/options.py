"""The arguments and options that several commands share, the parsers of their values, and the cluster they name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfk8s.cli import completion

if TYPE_CHECKING:
    from tfk8s.cluster.handle import Cluster
    from tfk8s.core.spec import JobFile

TIMEOUT = 120.0
DEFAULT_FILE = "cluster.yaml"  # `tfk8s init` writes it

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.ASCII)


def seconds(text: str | float) -> float:
    """Parse a duration.

    Raises:
        BadParameter: the text is invalid.
    """
    if isinstance(text, float):  # the default
        return text
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise typer.BadParameter(f'"{text}" is not a duration, such as 90s, 2m or 1h30m')
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + rest


def whole_number(least: int) -> Callable[[str | int], int]:
    """Return a parser of whole numbers from `least` on, which raises BadParameter for an invalid text."""

    def parse(text: str | int) -> int:
        if not str(text).isdecimal() or int(text) < least:
            raise typer.BadParameter(f'"{text}" is not a whole number of {least} or more')
        return int(text)

    return parse


def port(text: str | int) -> int:
    """Parse a port number.

    Raises:
        BadParameter: the text is invalid.
    """
    if not str(text).isdecimal() or not 0 <= int(text) < 65536:
        raise typer.BadParameter(f'"{text}" is not a port number from 0 to 65535')
    return int(text)


def port_option(text: str) -> Any:
    """Return the declaration of the option `--port` with this help."""
    return typer.Option("--port", metavar="PORT", callback=port, show_default=False, help=text)


def number_option(name: str, metavar: str, least: int, text: str) -> Any:
    """Return the declaration of an option whose value is a whole number from `least` on, with this help."""
    return typer.Option(name, metavar=metavar, callback=whole_number(least), show_default=False, help=text)


def form(text: str) -> str:
    """Check the name of an output format.

    Raises:
        BadParameter: the format is unknown.
    """
    if text != "json":
        raise typer.BadParameter(f'"{text}" is not an output format; use json')
    return text


def file_or_default(file: str | None) -> str:
    """Return the job file that a command line names; without a name, cluster.yaml.

    Raises:
        InvalidInput: no file is named, and there is no cluster.yaml.
    """
    if file is None and not Path(DEFAULT_FILE).is_file():
        from tfk8s.errors import InvalidInput

        raise InvalidInput(
            f'no job file is named, and this folder has no "{DEFAULT_FILE}"',
            help="name a job file; `tfk8s init` writes one, and `tfk8s ls` lists the clusters that run",
        )
    return DEFAULT_FILE if file is None else file


def argument(metavar: str, text: str, completer: Callable[..., list[str]] | None = None) -> Any:
    """Return the declaration of an argument with this help."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, autocompletion=completer)


File = Annotated[str, argument("FILE", "The job file.")]
FileOrDefault = Annotated[str | None, argument("FILE", "The job file; default: ./cluster.yaml.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Replace a value of the job file, such as worker.tasks=4; repeatable.",
        autocompletion=completion.fields,
    ),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="Set an environment variable of every task; without VALUE, to this shell's value; repeatable.",
    ),
]
Avoided = Annotated[
    list[str] | None,
    typer.Option("--avoid", metavar="NODE", help="Keep the cluster away from a node of Kubernetes; repeatable."),
]
Name = Annotated[str, argument("NAME|FILE", "The cluster's name, or its job file.", completion.clusters)]
NameOrDefault = Annotated[
    str | None,
    argument("NAME|FILE", "The cluster's name, or its job file; default: ./cluster.yaml.", completion.clusters),
]
NameOrAll = Annotated[
    str | None, argument("NAME|FILE", "The cluster's name, or its job file; default: all.", completion.clusters)
]
TasksAndScripts = Annotated[
    list[str] | None,
    argument(
        "TASK",
        "JOB/INDEX, JOB, or a script's name or process id; default: all tasks and running scripts.",
        completion.tasks_and_scripts,
    ),
]
Script = Annotated[str, argument("SCRIPT", "A Python file.")]
ScriptArguments = Annotated[list[str] | None, argument("ARGS", "The script's own arguments.")]

Local = Annotated[
    bool, typer.Option("--local", help="Use this machine, not Kubernetes (the default with TFK8S_LOCAL=1).")
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="The kubeconfig context; default: the current context.",
        autocompletion=completion.contexts,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NAME", help="Default: the job file's namespace, else the context's."),
]
ExposedPorts = Annotated[
    bool,
    typer.Option(
        "--allow-exposed-ports",
        help="Start in this machine's own network. Anyone who can reach a task's port can run code as you.",
    ),
]
Python = Annotated[
    str | None,
    typer.Option(
        "--python", metavar="PATH", help="With --local: an interpreter or environment; default: the active environment."
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="TIME",
        callback=seconds,
        show_default=False,
        help="Wait up to TIME; default: 120s, or 15m while a node starts or pulls an image.",
    ),
]
StartTimeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        callback=seconds,
        help="Wait up to TIME for the cluster to be ready, and as long for the script's pod to start.",
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Don't wait until the tasks are ready.")]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORM",
        callback=form,
        help="Output format: json (stable keys).",
        autocompletion=completion.one_of("json"),
    ),
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address, and open no browser.")]
AllLines = Annotated[bool, typer.Option("--all", help="Also print the lines of TensorFlow's own log.")]
Tf1 = Annotated[bool, typer.Option("--tf1", help="`import tensorflow` gives the script the TensorFlow 1 API.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Run in a fresh Python interpreter.")]
Requirements = Annotated[
    str | None,
    typer.Option(
        "--requirements", "-r", metavar="FILE", help="On Kubernetes: install this requirements file with pip first."
    ),
]
Gpus = Annotated[int | None, number_option("--gpus", "N", 0, "On Kubernetes: the number of GPUs for the script.")]
Cpu = Annotated[
    str | None, typer.Option("--cpu", metavar="CORES", help="On Kubernetes: the cores for the script, such as 500m.")
]
Memory = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="On Kubernetes: the memory for the script, such as 4Gi.")
]
Get = Annotated[
    list[str] | None,
    typer.Option("--get", metavar="PATH[:LOCAL]", help="Copy a file or folder of the script when it ends; repeatable."),
]
Trace = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Record steps of the script's sessions; FILE becomes a page (.html) of them.",
    ),
]
TraceEvery = Annotated[
    int | None,
    number_option("--trace-every", "N", 1, "With --trace: record every N-th call of session.run; default: 100."),
]
Isolate = Annotated[bool, typer.Option("--isolate", help="Don't share variables with other sessions.")]
OnMaster = Annotated[bool, typer.Option("--on-master", help="Run sessions without a target on the master.")]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="TASK",
        help="Exclude this task from sessions.",
        autocompletion=completion.tasks_to_leave_out,
    ),
]
Retries = Annotated[int, number_option("--retries", "N", 0, "Retry up to N times if a task is lost.")]


def load_job_file(
    file: str, settings: list[str] | None, variables: list[str] | None, avoided: list[str] | None = None
) -> JobFile:
    """Load a job file, with the values of `--set`, `--env` and `--avoid`.

    Raises:
        JobFileError: the file or an option's value has problems.
        InvalidInput: an option's argument has the wrong form.
    """
    import os

    from tfk8s.jobfile import overrides
    from tfk8s.jobfile.loader import load

    chosen = [overrides.parse(text) for text in settings or ()]
    chosen += [overrides.parse_variable(text, os.environ) for text in variables or ()]
    return load(file, [*chosen, *map(overrides.parse_node, avoided or ())])


def find_cluster(
    name: str, local: bool, context: str | None, namespace: str | None, python: str | None = None
) -> Cluster:
    """Return a handle on the cluster that these arguments of a command name."""
    from tfk8s.api import find
    from tfk8s.backends.options import BackendOptions

    return find(name, BackendOptions(local or None, context, namespace, python=python))
