"""Tests that the JSON Schema accepts what `load` accepts, as far as a JSON Schema can."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml_text
from bad_files import HEAD, cases
from hypothesis import given, settings
from job_files import as_json, job_files
from jsonschema_rs import Draft202012Validator, meta

from tfk8s.errors import JobFileError
from tfk8s.jobfile import reader, values
from tfk8s.jobfile.loader import loads
from tfk8s.jobfile.scalars import AmbiguousScalar
from tfk8s.jobfile.schema import json_schema

REPOSITORY = Path(__file__).parents[3]
SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)

# Codes of the problems that the schema finds as well.
STRUCTURAL = {
    "bad-cluster-name", "bad-duration", "bad-env-name", "bad-env-source", "bad-image", "bad-job-name", "bad-label",
    "bad-module", "bad-name", "bad-path", "bad-peer", "bad-toleration", "bad-topology", "bad-value", "bad-volume",
    "empty", "missing-key", "needs-gpus", "out-of-range", "out-of-scope", "reserved-key", "reserved-name",
    "reserved-path", "too-many", "unknown-key", "wrong-type",
}  # fmt: skip

# JSON Schema can't tell 2.0 from the integer 2.
FOUND_BY_LOAD_ONLY = {HEAD + "jobs: {worker: {tasks: 2.0}}"}


def properties(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every property that the schema describes."""
    for name, value in node.get("properties", {}).items():
        yield f"{path}{name}", value
    for name, value in node.get("$defs", {}).items():
        yield from properties(value, f"{name}.")


def test_schema_is_valid_and_self_contained() -> None:
    meta.validate(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    references = re.findall(r'"\$ref": "([^"]*)"', json.dumps(SCHEMA))
    assert {reference.rpartition("/")[0] for reference in references} == {"#/$defs"}


def test_committed_schema_is_current() -> None:
    committed = (REPOSITORY / "docs" / "job-file.schema.json").read_text()
    assert committed == json.dumps(SCHEMA, indent=2) + "\n", "run: make update"


def test_every_key_has_a_description() -> None:
    for name, schema in properties(SCHEMA):
        if "$ref" in schema:
            schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]] | schema
        assert schema["description"].endswith("."), name
        assert schema["title"], name
        assert "properties" in schema or schema["examples"], name


def test_patterns_need_no_look_around_or_flags() -> None:
    patterns = re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', json.dumps(SCHEMA))
    assert patterns
    for pattern in map(json.loads, patterns):
        assert not re.search(r"\(\?[^:]|\\[^.x\[\]]", pattern), pattern


def test_every_example_is_valid() -> None:
    for name, schema in properties(SCHEMA):
        validator = Draft202012Validator(schema | {"$defs": SCHEMA["$defs"]})
        assert all(map(validator.is_valid, schema.get("examples", []))), name


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("examples/**/*.yaml")), ids=str)
def test_examples_match_the_schema(path: Path) -> None:
    VALIDATOR.validate(yaml_text.read(path.read_text()))


def test_schema_finds_structural_problems() -> None:
    valid = set()
    for text, problems in cases():
        codes = {line.split(": ")[0].split()[-1] for line in problems}
        document = reader.read(text.encode())
        is_structural = codes <= STRUCTURAL - {"bad-duration"} and not is_ambiguous(document.data)
        if is_structural and VALIDATOR.is_valid(document.data):
            valid.add(text)
    assert valid == FOUND_BY_LOAD_ONLY


def test_reserved_paths_match_the_pattern() -> None:
    parts = ["/", "/./", "..", "opt", "tfk8s", "tmp", "work", "a"]
    for chosen in itertools.chain.from_iterable(itertools.product(parts, repeat=count) for count in range(5)):
        path = f"/{''.join(chosen)}"
        try:
            values.mount_path(path)
        except values.Invalid:
            assert re.search(values.RESERVED_PATH, path), path
        else:
            assert not re.search(values.RESERVED_PATH, path), path


def is_ambiguous(data: object) -> bool:
    if isinstance(data, dict):
        return any(map(is_ambiguous, data.values()))
    return any(map(is_ambiguous, data)) if isinstance(data, list) else isinstance(data, AmbiguousScalar)


# ---- generated job files -------------------------------------------------------------------------------------------


def problems(data: object) -> set[str]:
    try:
        loads(as_json(data), "job.json")
    except JobFileError as error:
        return {problem.code for problem in error.problems}
    return set()


@given(job_files(wrong=True))
@settings(max_examples=3 * settings().max_examples)
def test_schema_and_load_accept_the_same_files(data: object) -> None:
    codes = problems(data)
    if VALIDATOR.is_valid(data):
        assert not codes & STRUCTURAL
    else:
        assert codes
