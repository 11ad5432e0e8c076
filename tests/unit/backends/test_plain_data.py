"""Frozen data as JSON and back."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given
from job_files import EVERYTHING, PROGRAMS, as_json, job_files

from tfk8s.backends.plain_data import as_plain, from_plain, job_file_from_dict, job_file_to_dict
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import JobFile
from tfk8s.errors import JobFileError
from tfk8s.jobfile.loader import loads


def again(job_file: JobFile) -> JobFile:
    return job_file_from_dict(json.loads(json.dumps(job_file_to_dict(job_file))))


@pytest.mark.parametrize("text", [EVERYTHING, PROGRAMS])
def test_a_job_file_survives_json(text: str) -> None:
    job_file = loads(text, "job.yaml", "/here")
    assert again(job_file) == job_file


@given(job_files())
def test_any_job_file_survives_json(data: object) -> None:
    try:
        job_file = loads(as_json(data), "job.json")
    except JobFileError:
        assume(False)
    assert again(job_file) == job_file


@dataclass(frozen=True)
class Inner:
    size: Quantity | None = None


@dataclass(frozen=True)
class Outer:
    count: int
    rate: float = 0.0
    words: tuple[str, ...] = ()
    ends: str | tuple[int, ...] = ""
    inner: tuple[Inner, ...] = ()
    names: dict[str, str] = dataclasses.field(default_factory=dict)


def test_each_part_has_its_type_again() -> None:
    value = Outer(1, 2, ("a",), (3, 4), (Inner(Quantity.parse("4Gi")), Inner()), {"a": "b"})
    assert from_plain(Outer, json.loads(json.dumps(as_plain(value)))) == value


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"count": "1"}, "Outer.count is str, expected int"),
        ({"count": True}, "Outer.count is bool, expected int"),
        ({"count": 1, "rate": None}, "Outer.rate is NoneType, expected float"),
        ({"count": 1, "words": "ab"}, "Outer.words is str, expected tuple[str, ...]"),
        ({"count": 1, "words": ["a", 2]}, "Outer.words[1] is int, expected str"),
        ({"count": 1, "ends": ["a"]}, "Outer.ends[0] is str, expected int"),
        ({"count": 1, "inner": [{"size": 4}]}, "Outer.inner[0].size is int, expected Quantity"),
        ({"count": 1, "inner": [{"size": "x"}]}, "'x' is not a quantity"),
        ({"count": 1, "inner": [3]}, "Outer.inner[0] is int, expected Inner"),
        ({"count": 1, "names": {"a": 1}}, "Outer.names['a'] is int, expected str"),
        ({"count": 1, "names": ["a"]}, "Outer.names is list, expected dict[str, str]"),
        ({"count": 1, "more": 2}, "Outer.__init__() got an unexpected keyword argument 'more'"),
        ([], "Outer is list, expected Outer"),
    ],
)
def test_hostile_data_is_refused_with_its_place(plain: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        from_plain(Outer, plain)
    assert str(caught.value) == message
