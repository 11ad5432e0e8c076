"""The command that writes a job file: init."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tfk8s.cli import options
from tfk8s.cli.output import note, say
from tfk8s.cluster.scripts import require_script
from tfk8s.errors import InvalidInput
from tfk8s.features.init import kubeflow, script_guess, template

_OBJECT_FILES = (".yaml", ".yml", ".json")


def init(
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Convert a TFJob (.yaml, .json), or guess the jobs and the port from a script.",
        ),
    ] = None,
) -> None:
    """Write a commented job file, cluster.yaml.

    Of a TFJob, the command says what a job file can't say, here and as comments in the job file.

    Examples:
        tfk8s init
        tfk8s init --from train.py
        tfk8s init --from tfjob.yaml
    """
    if source is not None and Path(source).suffix in _OBJECT_FILES:
        converted = kubeflow.load(source)
        path = _write_job_file(converted.text(source))
        for sentence in converted.notes:
            note(f"note: {sentence}")
        note(f"run the programs: tfk8s run {path}")
        return

    guess, name = script_guess.Guess(), Path.cwd().name
    if source is not None:
        script = require_script(source)
        guess, name = script_guess.guess(source, script.read_bytes()), script.stem
    path = _write_job_file(template.job_file_text(template.cluster_name(name), guess))
    note(f"start the cluster on this machine: tfk8s up --local {path}")


def _write_job_file(text: str) -> Path:
    """Write cluster.yaml, which must not exist, and return its path."""
    path = Path(options.DEFAULT_FILE)
    try:
        with path.open("x") as file:
            file.write(template.FOR_EDITORS + text)
    except FileExistsError as error:
        raise InvalidInput(f'"{path}" already exists', help="rename it first; tfk8s does not overwrite it") from error
    except OSError as error:
        raise InvalidInput(f'can\'t write "{path}": {error.strerror}') from error
    say(f"wrote {path}")
    return path
