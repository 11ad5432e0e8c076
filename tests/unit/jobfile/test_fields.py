"""Tests that a field of the job file is declared in one place. TFK8S_UPDATE=1 writes the tables of docs/job-file.md."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from tfk8s.backends.plain_data import as_plain, from_plain
from tfk8s.cli import completion
from tfk8s.core.job_file.keys import key
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import JobFile
from tfk8s.features.explain.here import explain
from tfk8s.jobfile import reader
from tfk8s.jobfile.declared import struct
from tfk8s.jobfile.schema import json_schema
from tfk8s.jobfile.types import DEFINITIONS
from tfk8s.jobfile.validation import List, Validator

PAGE = Path(__file__).parents[3] / "docs" / "job-file.md"
SCHEMA = json_schema()
# What a job file has in another form, or not at all.
NO_KEYS = {"Job.name", "Job.addresses", "Job.folder", "JobFile.lease", "Program.words", "Program.folder"}


def dataclasses_in(kind: Any) -> set[type]:
    """Return the dataclasses that values of a type have, with itself."""
    if kind is Quantity:
        return set()
    if dataclasses.is_dataclass(kind):
        return {kind}.union(*map(dataclasses_in, get_type_hints(kind).values()))  # type: ignore[arg-type]
    return set().union(*map(dataclasses_in, get_args(kind)))


def test_each_field_of_the_spec_is_a_key_with_its_default() -> None:
    without = set()
    for kind in dataclasses_in(JobFile):
        name = kind.__name__.replace("RunPolicy", "Run")
        definition = SCHEMA if kind is JobFile else SCHEMA["$defs"].get(name)
        for field in dataclasses.fields(kind):
            if not field.metadata:
                without.add(f"{kind.__name__}.{field.name}")
                continue
            found = definition["properties"][field.name.removesuffix("_")]
            assert found["description"] == field.metadata["description"]
            if "default" in found:
                made = from_plain(kind, {**required(kind), field.name: found["default"]})
                assert made == from_plain(kind, required(kind)), field.name
    assert without == NO_KEYS


def test_each_key_is_explained_and_completed() -> None:
    job = SCHEMA["$defs"]["Job"]["properties"]
    fields = {**SCHEMA["properties"], **{f"worker.{name}": value for name, value in job.items()}}
    assert completion.fields() == list(fields)
    for name, value in fields.items():
        assert value["description"] in " ".join(explain(name).split()), name


def required(kind: type) -> dict[str, Any]:
    """Return plain data of a dataclass, with a value for each field that needs one."""
    values = {"jobs": [], "master": "a", "name": "a", "key": "a", "path": "/a", "claim": "a"}
    return {field.name: values[field.name] for field in dataclasses.fields(kind) if field.name in values}


@pytest.fixture
def nap() -> Any:
    """Return a dataclass with new fields."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Nap:
        """A rest of tasks.

        It is short.

        Attributes:
            why: no key.
        """

        length: int = key("DURATION", "The time.", "5m", default=60)
        bed: Quantity | None = key("SIZE", "The size of the bed.", "1Gi")
        in_: str = key("NAME", "The place.", "attic", required=True)
        why: str = ""

    yield Nap
    del DEFINITIONS["Nap"]


def test_a_new_field_needs_one_declaration(nap: Any) -> None:
    made = struct(nap)
    definition = made.definition()
    assert (definition["title"], definition["description"]) == ("Nap", "A rest of tasks. It is short.")
    assert (list(definition["properties"]), definition["required"]) == (["length", "bed", "in"], ["in"])
    length = definition["properties"]["length"]
    assert (length["description"], length["examples"], length["default"]) == ("The time.", ["5m"], 60)
    assert "default" not in definition["properties"]["bed"]
    document = reader.read(b"[{length: 2m, bed: 4Gi, in: attic}]")
    (value,) = Validator(document).read(List(made), document.data, ())
    assert value == nap(length=120, bed=Quantity.parse("4Gi"), in_="attic")
    assert from_plain(nap, json.loads(json.dumps(as_plain(value)))) == value
    wrong = reader.read(b"[{length: 2 minutes, beds: 1}]")
    validator = Validator(wrong)
    validator.read(List(made), wrong.data, ())
    assert [problem.message for problem in validator.problems] == [
        '"in" is missing', '"2 minutes" is not a duration', 'there is no key "beds" here',
    ]  # fmt: skip


# ---- the tables of the page ----------------------------------------------------------------------------------------


def table(definition: dict[str, Any], page: str) -> str:
    """Return the table of a mapping's keys. A key of which the page defines a link is a link."""
    rows = []
    for name, value in definition["properties"].items():
        code = f"[`{name}`]" if f"\n[`{name}`]: " in page else f"`{name}`"
        note = " Required." if name in definition.get("required", ()) else ""
        if value.get("default") not in (None, [], {}):
            note += f" Default: `{json.dumps(value['default']).strip(chr(34))}`."
        sentences = re.split(r"(?<=\.) (?=[\w`])", value["description"])
        while len(row := f"| {code} | {' '.join(sentences)}{note} |") > 120:
            sentences.pop()
            assert sentences, f"the first sentence about {name} is too long for a table"
        rows.append(row)
    return "\n".join(("| field | meaning |", "| --- | --- |", *rows)) + "\n"


def test_the_tables_of_the_page_are_current() -> None:
    page = PAGE.read_text()
    written = page
    jobs, volumes = SCHEMA["$defs"]["Job"], SCHEMA["$defs"]["Volume"]
    tables = {"Fields of the cluster": SCHEMA, "Fields of a job": jobs, "Volumes": volumes}
    for heading, definition in tables.items():
        before, after = written.split(f"\n## {heading}\n")
        new = re.sub(r"^\| field .*\n(?:\|.*\n)*", lambda _, of=definition: table(of, page), after, count=1, flags=re.M)
        written = f"{before}\n## {heading}\n{new}"
    if os.environ.get("TFK8S_UPDATE"):
        PAGE.write_text(written)
    assert PAGE.read_text() == written, "run: make update"
