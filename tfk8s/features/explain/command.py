"""The commands that describe job files: explain, schema."""

from __future__ import annotations

from typing import Annotated

from tfk8s.cli import completion, options
from tfk8s.cli.output import document, say
from tfk8s.features.explain.here import explain as text_of
from tfk8s.jobfile.schema import json_schema


def schema() -> None:
    """Print the JSON Schema of job files.

    Editors use the schema to complete and check job files.

    Examples:
        tfk8s schema > tfk8s.schema.json
    """
    document(json_schema())


def explain(
    field: Annotated[
        str | None,
        options.argument(
            "FIELD", "A field, such as worker.gpus or network; default: the whole job file.", completion.fields
        ),
    ] = None,
) -> None:
    """Describe a field of job files.

    Examples:
        tfk8s explain
        tfk8s explain jobs
        tfk8s explain worker.gpus
    """
    say(text_of(field or ""))
