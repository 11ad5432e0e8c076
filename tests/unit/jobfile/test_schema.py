"""The JSON Schema says the same as `load`, as far as a JSON Schema can."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from bad_files import HEAD, cases
from hypothesis import given, settings
from job_files import as_json, job_files
from jsonschema import Draft202012Validator

from tfk8s.core import spec
from tfk8s.errors import JobFileError
from tfk8s.jobfile import reader, values
from tfk8s.jobfile.loader import loads, schema
from tfk8s.jobfile.scalars import AmbiguousScalar

REPOSITORY = Path(__file__).parents[3]
SCHEMA = schema()
VALIDATOR = Draft202012Validator(SCHEMA)

# Problems that the schema sees too, wherever they are.
STRUCTURAL = {
    "bad-cluster-name", "bad-duration", "bad-env-name", "bad-image", "bad-job-name", "bad-label", "bad-module",
    "bad-name", "bad-path", "bad-peer", "bad-toleration", "bad-value", "bad-volume", "empty", "missing-key",
    "needs-gpus", "out-of-range", "reserved-name", "reserved-path", "too-many", "unknown-key", "wrong-type",
}  # fmt: skip


# 2.0 is an integer in JSON: no schema tells it from 2.
SEEN_BY_LOAD_ALONE = {HEAD + "jobs: {worker: {tasks: 2.0}}"}


def properties(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every property that the schema describes."""
    for name, value in node.get("properties", {}).items():
        yield f"{path}{name}", value
    for name, value in node.get("$defs", {}).items():
        yield from properties(value, f"{name}.")


def test_it_is_a_json_schema_of_its_own() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    references = re.findall(r'"\$ref": "([^"]*)"', json.dumps(SCHEMA))
    assert {reference.rpartition("/")[0] for reference in references} == {"#/$defs"}


def test_the_committed_file_is_up_to_date() -> None:
    committed = (REPOSITORY / "docs" / "job-file.schema.json").read_text()
    assert committed == json.dumps(SCHEMA, indent=2) + "\n", "write it again with: make update"


@pytest.mark.programs
def test_it_is_written_by_the_module() -> None:
    done = subprocess.run([sys.executable, "-m", "tfk8s.jobfile.schema"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == SCHEMA


@pytest.mark.parametrize(
    ("name", "said"), list(properties(SCHEMA)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_key_is_described(name: str, said: dict[str, Any]) -> None:
    if "$ref" in said:
        said = SCHEMA["$defs"][said["$ref"].rpartition("/")[2]] | said
    assert said["description"].endswith(".")
    assert said["title"]
    assert "properties" in said or said["examples"]


def test_the_defaults_are_those_of_the_spec() -> None:
    said = {name: value["default"] for name, value in properties(SCHEMA) if "default" in value}
    models = {"": spec.JobFile, "Job.": spec.Job, "Volume.": spec.Volume, "Security.": spec.Security}
    real = {
        f"{prefix}{field.name}": field.default_factory() if callable(field.default_factory) else field.default
        for prefix, model in models.items()
        for field in dataclasses.fields(model)
    }
    elsewhere = {
        "Destination.pods": {},
        "Destination.ports": [],
        "Network.allow_from": [],
        "Network.allow_to": [],
        "Source.pods": {},
        "Toleration.operator": "Equal",
    }
    assert said == elsewhere | {name: [] if real[name] == () else real[name] for name in said.keys() - elsewhere.keys()}
    assert {name for name, value in real.items() if value not in (None, dataclasses.MISSING)} - said.keys() == {
        "Job.addresses",  # a form of its own
        "network",
        "security",
    }


def test_patterns_are_understood_by_every_reader() -> None:
    patterns = re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(SCHEMA))
    assert patterns
    for pattern in map(json.loads, patterns):
        assert not re.search(r"\(\?[^:]|\\[^.x\[\]]", pattern), pattern


@pytest.mark.parametrize(
    ("name", "said"), list(properties(SCHEMA)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_example_is_valid(name: str, said: dict[str, Any]) -> None:
    for example in said.get("examples", []):
        Draft202012Validator(said | {"$defs": SCHEMA["$defs"]}).validate(example)


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("examples/**/*.yaml")), ids=str)
def test_the_examples(path: Path) -> None:
    VALIDATOR.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    ("text", "problems"), cases(), ids=lambda value: repr(value)[:60] if isinstance(value, str) else ""
)
def test_structural_problems_are_seen(text: str, problems: list[str]) -> None:
    codes = {line.split(": ")[0].split()[-1] for line in problems}
    document = reader.read(text.encode())
    if codes <= STRUCTURAL - {"bad-duration"} and not unclear(document.data):
        assert VALIDATOR.is_valid(document.data) == (text in SEEN_BY_LOAD_ALONE)


@pytest.mark.parametrize("count", range(5))
def test_reserved_paths_are_those_that_the_pattern_says(count: int) -> None:
    for parts in itertools.product(["/", "/./", "..", "opt", "tfk8s", "tmp", "work", "a"], repeat=count):
        path = f"/{''.join(parts)}"
        try:
            values.mount_path(path)
        except values.Invalid:
            assert re.search(values.RESERVED_PATH, path), path
        else:
            assert not re.search(values.RESERVED_PATH, path), path


def unclear(data: object) -> bool:
    if isinstance(data, dict):
        return any(map(unclear, data.values()))
    return any(map(unclear, data)) if isinstance(data, list) else isinstance(data, AmbiguousScalar)


# ---- generated job files -------------------------------------------------------------------------------------------


def problems(data: object) -> set[str]:
    try:
        loads(as_json(data), "job.json")
    except JobFileError as error:
        return {problem.code for problem in error.problems}
    return set()


@given(job_files(wrong=True))
@settings(max_examples=100)
def test_what_load_accepts_the_schema_accepts_and_the_reverse(data: object) -> None:
    codes = problems(data)
    if VALIDATOR.is_valid(data):
        assert not codes & STRUCTURAL
    else:
        assert codes
