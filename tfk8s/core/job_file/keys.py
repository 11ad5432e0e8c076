"""The declaration of the keys of a job file: each is a field of a dataclass.

The checks of the reader, the JSON Schema, `tfk8s explain`, the completion of names, and the tables of docs/job-file.md
follow from the declaration.
"""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Any


def key(type_: str, description: str, *examples: object, default: Any = None, required: bool = False) -> Any:
    """Return the field of a dataclass that is a key of a job file.

    Args:
        type_: the values: the name of a type of `jobfile.types`, or of one that `jobfile` gives to the struct.
        description: sentences about the field. A table has as many of them as a line holds, from the first on.
        examples: values as a job file has them.
        default: the value without the key, as the dataclass has it; MISSING if the reader of the job file finds one.
        required: whether each job file, or each mapping, has the key.
    """
    metadata = {"type": type_, "description": description, "examples": examples, "required": required}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=MISSING if required else default, metadata=metadata)
