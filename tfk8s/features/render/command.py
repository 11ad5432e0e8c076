"""The commands that print objects and configurations: render, roles."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tfk8s import render as render_module
from tfk8s.backends.options import BackendOptions
from tfk8s.cli import completion, options
from tfk8s.cli.output import note, say
from tfk8s.core import addresses, cluster_spec, environment, task_names
from tfk8s.core.spec import JobFile, Task
from tfk8s.errors import InvalidInput
from tfk8s.features.render.unpack import unpack
from tfk8s.render import metrics, rbac, yaml

_FORMATS = ("cluster-spec", "tf-config", "flags", "env")  # of a task's configuration
_POD_MONITOR = "podmonitor"  # of the whole cluster


def _format(text: str | None) -> str | None:
    if text is not None and text not in (*_FORMATS, _POD_MONITOR):
        raise typer.BadParameter(f'"{text}" is not a format; use {", ".join((*_FORMATS, _POD_MONITOR))}')
    return text


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
            help=f"With --task, one of {', '.join(_FORMATS)}; default: tf-config. Without, {_POD_MONITOR}.",
            autocompletion=completion.one_of(*_FORMATS, _POD_MONITOR),
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

    With --format podmonitor, prints the object by which the Prometheus Operator finds the metrics of the tasks.

    Tasks run the files in tfk8s.zip, which is in the ConfigMap. With --files, writes them into a folder, to be read.

    Examples:
        tfk8s render cluster.yaml | kubectl apply -f -
        tfk8s render cluster.yaml --files tfk8s-files
        tfk8s render cluster.yaml --set metrics=true --format podmonitor | kubectl apply -f -
        tfk8s render cluster.yaml --task worker/1
        tfk8s render --local cluster.yaml --task worker/1 --format flags
    """
    job_file = options.load_job_file(file, settings, variables)
    on_this_machine = BackendOptions(local or None, namespace=namespace).is_local(os.environ)
    if files is not None:
        _unpack(files, is_alone=not (task or form or on_this_machine))
        return
    if form == _POD_MONITOR:
        if task or on_this_machine:
            raise InvalidInput(f"--format {form} is for the whole cluster, on Kubernetes: leave --task and --local out")
        say(yaml.dump([metrics.pod_monitor(job_file, namespace)]).rstrip("\n"))
        return
    if task is None and form is not None:
        raise InvalidInput(
            f"--format {form} is for a task's configuration: it needs --task",
            help=f"tfk8s render {file} --task {job_file.master_task} --format {form}",
        )
    if task is None and not on_this_machine:
        say(render_module.text(job_file, namespace).rstrip("\n"))
        if any(job.program and job.program.is_script for job in job_file.jobs):
            secret = f'the Secret "{job_file.name}-program", with the folder of the scripts'
            note(f"the pods also need {secret}: `tfk8s up` creates it")
        return

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
    say(yaml.dump(rbac.roles()).rstrip("\n"))


def _configuration(job_file: JobFile, task: Task, form: str, address: Callable[[Task], str]) -> str:
    """Return the configuration of a task, in one of `_FORMATS`."""
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
