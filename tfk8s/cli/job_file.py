"""The command that checks a job file: validate."""

from __future__ import annotations

from tfk8s.cli import json_output, options
from tfk8s.cli.output import document, say
from tfk8s.core.task_names import format_tasks
from tfk8s.errors import JobFileError


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

    say(f'{file} is valid: cluster "{job_file.name}", tasks {format_tasks(job_file)}, master {job_file.master_task}')
    return None
