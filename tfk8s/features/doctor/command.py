"""The command that checks this installation: doctor."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from tfk8s.backends.options import BackendOptions
from tfk8s.cli import options
from tfk8s.cli.output import document, paint, say
from tfk8s.features.doctor import examine
from tfk8s.features.doctor.check import Check, complete
from tfk8s.jobfile.loader import load

_COLOURS = {"ok": "32", "note": "33", "missing": "31", "unknown": "33"}

_WIDTHS = max(map(len, _COLOURS)), len("permissions: submit")


def doctor(
    file: Annotated[str | None, options.argument("FILE", "A job file whose tasks need room.")] = None,
    image: Annotated[
        str | None,
        typer.Option(
            "--image",
            metavar="IMAGE",
            help="Test NetworkPolicy, and what pods reach, with two short-lived pods of this image.",
        ),
    ] = None,
    output: options.Output = None,
    python: options.Python = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Check what is missing here, and say how to fix it.

    Checks Kubernetes or, with --local, this machine. With FILE, also checks the room for its tasks. Prints one line per
    check: ok, note, missing or unknown. The exit code is 1 if something required is missing.

    Examples:
        tfk8s doctor --local
        tfk8s doctor cluster.yaml
        tfk8s doctor --context kind-tfk8s --image tensorflow/tensorflow:2.21.0
        tfk8s doctor -o json

    JSON: a list of checks, each with name, state, detail, help.
    """
    job_file = None
    if file is not None:
        job_file = load(file)
    checks = []
    for check in examine(BackendOptions(local or None, context, namespace, python=python), image, job_file):
        checks.append(check)
        if output is None:
            say(_line(check))
    if output is not None:
        document([dataclasses.asdict(check) for check in checks])
    return 0 if complete(checks) else 1


def _line(check: Check) -> str:
    state = paint(check.state.ljust(_WIDTHS[0]), _COLOURS[check.state], sys.stdout)
    advice = f"; {check.help}" if check.help else ""
    return f"{state}  {check.name.ljust(_WIDTHS[1])}  {check.detail}{advice}"
