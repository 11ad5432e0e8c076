from __future__ import annotations

import json
import re

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tfk8s.jobfile import reader
from tfk8s.jobfile.document import Location, dotted
from tfk8s.jobfile.scalars import AmbiguousScalar, resolve
from tfk8s.jobfile.text import BAD_ASCII, BAD_CHARACTER


def test_data_and_locations() -> None:
    document = reader.read(
        b"a: 1\nbe:\n  - x y\n  - {c: 'd', \"e\": [1.5, true]}\nf: |\n  two\n  lines\n\xc3\xa9: g # h\n"
    )
    assert document.problems == []
    assert document.complete
    assert document.data == {"a": 1, "be": ["x y", {"c": "d", "e": [1.5, True]}], "f": "two\nlines\n", "é": "g"}
    assert document.keys == {
        ("a",): Location(1, 1, 1),
        ("be",): Location(2, 1, 2),
        ("be", 1, "c"): Location(4, 6, 1),
        ("be", 1, "e"): Location(4, 14, 3),
        ("f",): Location(5, 1, 1),
        ("é",): Location(8, 1, 1),
    }
    assert document.values == {
        (): Location(1, 1, 1),
        ("a",): Location(1, 4, 1),
        ("be",): Location(3, 3, 1),
        ("be", 0): Location(3, 5, 3),
        ("be", 1): Location(4, 5, 26),
        ("be", 1, "c"): Location(4, 9, 3),
        ("be", 1, "e"): Location(4, 19, 11),
        ("be", 1, "e", 0): Location(4, 20, 3),
        ("be", 1, "e", 1): Location(4, 25, 4),
        ("f",): Location(5, 4, 1),
        ("é",): Location(8, 4, 1),
    }


def test_problem_has_its_line() -> None:
    document = reader.read(b"a:\n  b: 1\n  b: 2\n")
    (problem,) = document.problems
    assert (problem.path, problem.line, problem.column, problem.source) == ("a.b", 3, 3, "  b: 2")


def test_location_of_an_absent_value_is_its_key() -> None:
    document = reader.read(b"a:\nb: ~\n")
    assert document.data == {"a": AmbiguousScalar(""), "b": AmbiguousScalar("~")}
    assert document.values[("a",)] == Location(1, 1, 1)
    assert document.values[("b",)] == Location(2, 1, 1)


def test_problems_in_skipped_values_are_ignored() -> None:
    document = reader.read(b"a: 1\na: {b: &c 1, b: *c}\n<<: [*d, *d]\n")
    assert [problem.code for problem in document.problems] == ["duplicate-key", "merge-key"]
    assert document.data == {"a": 1}


def test_dotted_paths() -> None:
    assert dotted(()) == ""
    assert dotted(("jobs", "worker_", "volumes", 0, "path")) == "jobs.worker_.volumes[0].path"
    assert dotted(("env", "a.b", "node-pool")) == 'env["a.b"].node-pool'
    assert dotted(("", "x")) == '[""].x'


_AMBIGUOUS = """
    y Y yes Yes YES n N no No NO on On ON off Off OFF ~ null Null NULL = << 010 0o10 0x1F 0b1 1_000 +1 -0 1. .5 1e3 1E5
    22:30 190:20:30.15 .inf -.Inf .nan 2026-11-21 2026-11-21T10:00:00Z 1.2345678 1234567890123456.5 1234567890123456
"""


def test_ambiguous_scalars() -> None:
    for text in ("", *_AMBIGUOUS.split()):
        assert resolve(text) == AmbiguousScalar(text)


UNAMBIGUOUS = [
    ("true", True), ("FALSE", False), ("0", 0), ("-17", -17), ("123456789012345", 123456789012345),
    ("0.5", 0.5), ("-1.50", -1.5), ("yEs", "yEs"), ("nope", "nope"), ("1a", "1a"), ("1.2.3", "1.2.3"),
    ("22:60", "22:60"), ("10.0.0.5:2222", "10.0.0.5:2222"), ("500m", "500m"), ("-", "-"), (".", "."),
    ("2026-11-21-rc1", "2026-11-21-rc1"),
]  # fmt: skip


def test_unambiguous_scalars() -> None:
    for text, value in UNAMBIGUOUS:
        assert resolve(text) == value, text
        assert type(resolve(text)) is type(value), text


@given(st.text(st.sampled_from("0123456789._-+eExobTZynaftrul:"), min_size=1, max_size=8))
@settings(max_examples=5 * settings().max_examples)
def test_unambiguous_scalars_equal_yaml_1_1(text: str) -> None:
    assume(":" not in (text[0], text[-1]) and text[0] != "-")
    value = resolve(text)
    if not isinstance(value, AmbiguousScalar):
        other = yaml.safe_load(f"v: {text}")["v"]
        assert (value, type(value)) == (other, type(other))


_JSON = st.recursive(
    st.booleans() | st.integers(1 - 10**15, 10**15 - 1) | st.text(st.characters(exclude_categories=["C", "Z"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc:#- ", max_size=5), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(st.dictionaries(st.text("abc", min_size=1), _JSON, min_size=1), st.sampled_from([None, 2]), st.booleans())
def test_json_and_yaml_writers_are_read(data: dict[str, object], indent: int | None, flow: bool) -> None:
    assert reader.read(json.dumps(data, indent=indent, ensure_ascii=False).encode()).data == data
    written = yaml.safe_dump(data, allow_unicode=True, default_flow_style=flow)
    if "? " not in written and not reader.read(written.encode()).problems:
        assert reader.read(written.encode()).data == data


@given(st.binary() | st.text("ab:-[]{},\n \"'\\ud0&*!#|>%?\t", max_size=40).map(str.encode))
def test_parsers_with_and_without_libyaml_agree(data: bytes) -> None:
    fast = reader.read(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "PARSER", yaml.SafeLoader)
        slow = reader.read(data)
    if fast.complete and slow.complete and not fast.problems and not slow.problems:
        assert fast == slow


def test_ascii_pattern_equals_the_full_pattern() -> None:
    for code in range(128):
        ascii_bad, bad = (re.search(pattern, chr(code)) for pattern in (BAD_ASCII, BAD_CHARACTER))
        assert bool(ascii_bad) == bool(bad), code
