"""The JSON Schema of job files, made from the tables of `schema`: for editors, and for Helm's values."""

from __future__ import annotations

import json
import sys
from typing import Any

from tfk8s.jobfile.schema import JOB_FILE, RECORDS

_AS_WRITTEN = ("properties", "default")  # keywords whose values keep their order, which readers see


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a job file (draft 2020-12)."""
    definitions = {record.name: record.definition() for record in RECORDS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_sorted({"$defs": definitions, **JOB_FILE.definition()}),
    }


def _sorted(said: Any, keyword: str = "") -> Any:
    if isinstance(said, list):
        return [_sorted(one) for one in said]
    if not isinstance(said, dict):
        return said
    names = said if keyword in _AS_WRITTEN else sorted(said)
    return {name: _sorted(said[name], name) for name in names}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
