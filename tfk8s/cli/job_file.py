"""Commands about job files and objects, which start nothing: init, validate, explain, schema, render, roles."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfk8s.cli import completion, options
from tfk8s.cli.output import document, note, say

if TYPE_CHECKING:
    from tfk8s.core.spec import JobFile, Task

_FORMATS = ("cluster-spec", "tf-config", "flags", "env")  # of a task's configuration
_OBJECT_FILES = (".yaml", ".yml", ".json")


def _format(text: str | None) -> str | None:
    if text is not None and text not in _FORMATS:
        raise typer.BadParameter(f'"{text}" is not a format; use {", ".join(_FORMATS)}')
    return text


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
        from tfk8s.tools import kubeflow

        converted = kubeflow.load(source)
        path = _write_job_file(converted.text(source))
        for sentence in converted.notes:
            note(f"note: {sentence}")
        note(f"run the programs: tfk8s run {path}")
        return
    from tfk8s.cluster.scripts import require_script
    from tfk8s.tools import script_guess, template

    guess, name = script_guess.Guess(), Path.cwd().name
    if source is not None:
        script = require_script(source)
        guess, name = script_guess.guess(source, script.read_bytes()), script.stem
    path = _write_job_file(template.job_file_text(template.cluster_name(name), guess))
    note(f"start the cluster on this machine: tfk8s up --local {path}")


def _write_job_file(text: str) -> Path:
    """Write cluster.yaml, which must not exist, and return its path."""
    from tfk8s.errors import InvalidInput
    from tfk8s.tools import template

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


def validate(
    file: options.FileOrDefault = None,
    settings: options.Settings = None,
    variables: options.Variables = None,
    output: options.Output = None,
) -> int | None:
    """Check a job file, and print every problem.

    Examples:
        tfk8s validate
        tfk8s validate cluster.yaml -o json

    JSON: file, valid, and problems, each with code, message, path, line, column, length, source, label, help, and the
    option that gave the value.
    """
    from tfk8s.cli import json_output
    from tfk8s.errors import JobFileError

    file = options.file_or_default(file)
    try:
        job_file = options.load_job_file(file, settings, variables)
    except JobFileError as error:
        if output is None:
            raise
        document(json_output.problems(file, error.problems))
        return error.exit_code
    if output is not None:
        document(json_output.problems(file, ()))
        return None
    from tfk8s.core.task_names import format_tasks

    say(f'{file} is valid: cluster "{job_file.name}", tasks {format_tasks(job_file)}, master {job_file.master_task}')
    return None


def schema() -> None:
    """Print the JSON Schema of job files.

    Editors use the schema to complete and check job files.

    Examples:
        tfk8s schema > tfk8s.schema.json
    """
    from tfk8s.jobfile.schema import json_schema

    document(json_schema())


def explain(
    field: Annotated[
        str | None,
        typer.Argument(
            metavar="FIELD",
            help="A field, such as worker.gpus or network; default: the whole job file.",
            show_default=False,
            autocompletion=completion.fields,
        ),
    ] = None,
) -> None:
    """Describe a field of job files.

    Examples:
        tfk8s explain
        tfk8s explain jobs
        tfk8s explain worker.gpus
    """
    from tfk8s.tools import explain

    say(explain.explain(field or ""))


def render(
    file: options.File,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="JOB/INDEX",
            help="Print this task's configuration.",
            autocompletion=completion.tasks_of_job_file,
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            callback=_format,
            help=f"With --task, one of {', '.join(_FORMATS)}; default: tf-config.",
            autocompletion=completion.one_of(*_FORMATS),
        ),
    ] = None,
    files: Annotated[
        str | None,
        typer.Option("--files", metavar="FOLDER", help="Unpack tfk8s.zip of the objects into a new folder instead."),
    ] = None,
    settings: options.Settings = None,
    variables: options.Variables = None,
    local: options.Local = False,
    namespace: options.Namespace = None,
) -> None:
    """Print Kubernetes objects, or a task's configuration.

    Prints the objects as YAML, as `up` applies them. With --task, prints addresses of pods. With --local, prints
    addresses on this machine. Addresses in the job file replace both.

    Tasks run the files in tfk8s.zip, which is in the ConfigMap. With --files, writes them into a folder, to be read.

    Examples:
        tfk8s render cluster.yaml | kubectl apply -f -
        tfk8s render cluster.yaml --files tfk8s-files
        tfk8s render cluster.yaml --task worker/1
        tfk8s render --local cluster.yaml --task worker/1 --format flags
    """
    from tfk8s.backends.options import BackendOptions

    job_file = options.load_job_file(file, settings, variables)
    on_this_machine = BackendOptions(local or None, namespace=namespace).is_local(os.environ)
    if files is not None:
        _unpack(files, is_alone=not (task or form or on_this_machine))
        return
    if task is None and form is not None:
        from tfk8s.errors import InvalidInput

        raise InvalidInput(
            f"--format {form} is for a task's configuration: it needs --task",
            help=f"tfk8s render {file} --task {job_file.master_task} --format {form}",
        )
    if task is None and not on_this_machine:
        from tfk8s import render as render_module

        say(render_module.text(job_file, namespace).rstrip("\n"))
        if any(job.program and job.program.is_script for job in job_file.jobs):
            secret = f'the Secret "{job_file.name}-program", with the folder of the scripts'
            note(f"the pods also need {secret}: `tfk8s up` creates it")
        return
    from tfk8s.core import addresses, task_names
    from tfk8s.errors import InvalidInput

    if task is None:
        raise InvalidInput(
            "on this machine, render needs --task",
            help=f"--task JOB/INDEX; the tasks are {task_names.format_tasks(job_file)}",
        )
    if job_file.has_addresses:
        address = addresses.given_address(job_file)
    elif on_this_machine:
        address = addresses.local_address(job_file)
    else:
        address = addresses.pod_address(job_file, namespace or job_file.namespace or "default")
    say(_configuration(job_file, task_names.parse_task(task, job_file), form or "tf-config", address))


def _unpack(folder: str, *, is_alone: bool) -> None:
    from tfk8s.errors import InvalidInput
    from tfk8s.tools.unpack import unpack

    if not is_alone:
        raise InvalidInput("--files is for Kubernetes objects: it can't be combined with --task, --format or --local")
    say(f"wrote the files of tfk8s.zip, whose SHA-256 is {unpack(Path(folder))}, into {folder}")


def roles() -> None:
    """Print the Roles that users of a shared namespace need.

    tfk8s-user allows everything except reading Secrets. tfk8s-submit allows submitting scripts to clusters of others.

    Examples:
        tfk8s roles | kubectl apply -n team -f -
        kubectl create rolebinding jo -n team --role=tfk8s-user --user=jo
    """
    from tfk8s.render import rbac, yaml

    say(yaml.dump(rbac.roles()).rstrip("\n"))


def _configuration(job_file: JobFile, task: Task, form: str, address: Callable[[Task], str]) -> str:
    """Return the configuration of a task, in one of `_FORMATS`."""
    from tfk8s.core import cluster_spec, environment

    cluster = job_file.cluster_spec(address, task.job)
    if form == "cluster-spec":
        return cluster_spec.cluster_spec(cluster)
    if form == "flags":
        return cluster_spec.flags(cluster, task)
    config = cluster_spec.tf_config(cluster, task.job, task.index)
    if form == "tf-config":
        return config
    variables = environment.cluster_variables(cluster, f"grpc://{address(job_file.master_task)}")
    return environment.environment_lines({"TF_CONFIG": config, **variables})
