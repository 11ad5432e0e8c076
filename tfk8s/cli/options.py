"""The arguments and options that several commands share, and the forms that they take."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from tfk8s.cli import completion

TIMEOUT = 120.0

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.ASCII)


def seconds(text: str | float) -> float:
    """Read a duration.

    Raises:
        BadParameter: it is none.
    """
    if isinstance(text, float):  # the default
        return text
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise typer.BadParameter(f'"{text}" is not a duration, such as 90s, 2m or 1h30m')
    hours, minutes, rest = (float(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + rest


def count(text: str | int) -> int:
    """Read a number of lines, or of GPUs.

    Raises:
        BadParameter: it is none.
    """
    if not str(text).isdecimal():
        raise typer.BadParameter(f'"{text}" is not a number from 0')
    return int(text)


def port(text: str | int) -> int:
    """Read a port.

    Raises:
        BadParameter: it is none.
    """
    if not str(text).isdecimal() or not 0 <= int(text) < 65536:
        raise typer.BadParameter(f'"{text}" is not a port: a number up to 65535')
    return int(text)


def form(text: str) -> str:
    """Read the name of a form of output.

    Raises:
        BadParameter: there is no such.
    """
    if text != "json":
        raise typer.BadParameter(f'"{text}" is not a form of output; there is json')
    return text


File = Annotated[str, typer.Argument(metavar="FILE", help="The job file.", show_default=False)]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE",
        help="The cluster's name, or its job file.",
        show_default=False,
        autocompletion=completion.clusters,
    ),
]
Script = Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file.", show_default=False)]
ScriptArguments = Annotated[
    list[str] | None, typer.Argument(metavar="ARGS", help="The script's own arguments.", show_default=False)
]

Local = Annotated[bool, typer.Option("--local", help="On this machine (TFK8S_LOCAL=1 makes that the default).")]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="The kubeconfig's context; default: its current one.")
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Default: the job file's, else the context's.")
]
ExposedPorts = Annotated[
    bool,
    typer.Option(
        "--allow-exposed-ports",
        help="Without namespaces on this machine: start all the same. Who reaches a task's port runs programs as you.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="TIME", callback=seconds, show_default=False, help="How long to wait; default: 120s."
    ),
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Don't wait until the tasks answer.")]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FORM",
        callback=form,
        help="json: a stable document.",
        autocompletion=completion.one_of("json"),
    ),
]
Tf1 = Annotated[bool, typer.Option("--tf1", help="`import tensorflow` gives the script TensorFlow 1's.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="In an interpreter of its own, that imports all anew.")]
Requirements = Annotated[
    str | None,
    typer.Option("--requirements", "-r", metavar="FILE", help="On Kubernetes: pip installs these first."),
]
Gpus = Annotated[
    int,
    typer.Option("--gpus", metavar="N", callback=count, show_default=False, help="On Kubernetes: GPUs it asks for."),
]
Isolate = Annotated[bool, typer.Option("--isolate", help="Its sessions share no variables with others.")]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="TASK",
        help="Leave this task out of its sessions.",
        autocompletion=completion.tasks,
    ),
]
Retries = Annotated[
    int,
    typer.Option(
        "--retries",
        metavar="N",
        callback=count,
        show_default=False,
        help="Run it again, at most so often, after the loss of a task.",
    ),
]
