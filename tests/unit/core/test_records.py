"""The records of a shared history as a pod sends them."""

from __future__ import annotations

import gzip
import io
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.history import records, shared
from tfk8s.core.history.records import RecordStream, SharedRecord

UID = "0f7d3c1e-0000-4000-8000-00000000000a"
NAME = f"mnist.{UID}"
MARK = "0123456789abcdef"
END = b'{"left_out": 0}\n'


def sent(header: dict[str, Any], *parts: bytes) -> bytes:
    return json.dumps(header).encode() + b"\n" + b"".join(parts)


def read(data: bytes, most: int = 9) -> list[SharedRecord]:
    return list(RecordStream(io.BytesIO(data)).records(most))


def test_a_record_has_facts_events_and_logs() -> None:
    parts = [gzip.compress(b'{"kind": "start", "time": 1}\n{"torn'), gzip.compress(b'{"id": "a"}\n'), b"packed"]
    names = ["facts.jsonl", "events.jsonl", "logs/worker-1.gz"]
    header = {
        "record": NAME,
        "mark": MARK,
        "parts": [[name, len(part)] for name, part in zip(names, parts, strict=True)],
    }
    stream = RecordStream(io.BytesIO(sent(header, *parts) + b'{"left_out": 7}\n'))
    assert list(stream.records(1)) == [
        SharedRecord(
            cluster="mnist", uid=UID, mark=MARK, facts=({"kind": "start", "time": 1},), events=({"id": "a"},),
            logs={"worker-1": b"packed"},
        )
    ]  # fmt: skip
    assert stream.left_out == 7


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it ends too early"),
        (b'{"record": ', "it is cut off"),
        (b"[]\n", "it is cut off, or has a line of a wrong form"),
        (b'{"left_out": -1}\n', "a number is none"),
        (b'{"left_out": true}\n', "a number is none"),
        (sent({"record": "../x"}), "a name is not that of a record"),
        (sent({"record": f"Mnist.{UID}"}), "a name is not that of a record"),
        (sent({"record": [NAME]}), "a name is not that of a record"),
        (sent({"record": NAME, "parts": {}}), "the parts of a record are no list"),
        (sent({"record": NAME, "parts": [["a"]]}), "a part of a record has a wrong form"),
        (sent({"record": NAME, "parts": [["a", "1"]]}), "a number is none"),
        (sent({"record": NAME, "parts": [["a", 5]]}, b"1234"), "it ends too early"),
        (sent({"record": NAME, "parts": [["a", records.MAX_RECORDS + 1]]}), "it has more than 67,108,864 bytes"),
        (sent({"record": NAME}) * 10 + END, "it has more than 9 records"),
        (b"{" + b" " * (2 << 20) + b"}\n", "it is cut off"),
    ],
)
def test_another_answer_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(data)


@pytest.mark.parametrize(
    ("part", "content", "problem"),
    [
        ("facts.jsonl", b"nothing", "facts.jsonl is damaged"),
        ("facts.jsonl", gzip.compress(b"x" * (records.MAX_FACTS + 1)), "facts.jsonl has more than 6,291,456 bytes"),
        ("events.jsonl", gzip.compress(b"\n" * (records.MAX_EVENTS + 1)), "events.jsonl has more than 2,097,152 bytes"),
        ("events.jsonl", gzip.compress(b"{}\n" * 200_001), "events.jsonl has more than 200,000 lines"),
        ("logs/../../evil.gz", b"", ""),
        ("logs/\x1b.gz", b"", ""),
        ("other", b"x", ""),
    ],
)
def test_a_damaged_part_is_named_and_another_left_out(part: str, content: bytes, problem: str) -> None:
    (record,) = read(sent({"record": NAME, "mark": "../", "parts": [[part, len(content)]]}, content) + END)
    assert record == SharedRecord(cluster="mnist", uid=UID, problem=problem)


def test_a_problem_shows_no_control_characters() -> None:
    (record,) = read(sent({"record": NAME, "problem": "\x1b[2J" + "x" * 999}) + END)
    assert record.problem == "?[2J" + "x" * 196


def test_members_of_a_log_cost_what_they_contain() -> None:
    """zlib copies what follows a member; of so many, that took 8 seconds."""
    empty, begin = gzip.compress(b""), time.process_time()
    assert records.unpack(empty * ((4 << 20) // len(empty)) + gzip.compress(b"end"), 3) == b"end"
    assert time.process_time() - begin < 3


@given(st.lists(st.binary(max_size=9000), max_size=4), st.integers(0, 40), st.integers(0, 30_000))
def test_members_are_unpacked_up_to_what_is_torn(parts: list[bytes], torn: int, most: int) -> None:
    packed, content = b"".join(map(gzip.compress, parts)), b"".join(parts)
    if len(content) > most:
        with pytest.raises(ValueError, match=f"has more than {most:,} bytes"):
            records.unpack(packed, most)
    else:
        assert records.unpack(packed + gzip.compress(b"")[:torn], most) == content
        assert content.startswith(records.unpack(packed[: max(0, len(packed) - torn)], most))


def test_facts_of_one_answer_have_a_size_after_which_the_others_wait() -> None:
    packed = gzip.compress((b"x" * 1023 + b"\n") * (records.MAX_FACTS >> 10))
    one = sent({"record": NAME, "parts": [["facts.jsonl", len(packed)]]}, packed)
    stream = RecordStream(io.BytesIO(one * 15 + END))
    assert len(list(stream.records(15))) == 11
    assert stream.left_out == 4


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(NAME),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3), max_leaves=5,
)  # fmt: skip
_HEADERS = st.dictionaries(st.sampled_from(["record", "mark", "problem", "parts", "left_out"]), _JSON).map(sent)
_RECORDS = st.tuples(st.sampled_from(["facts.jsonl", "events.jsonl", "logs/a.gz"]), st.binary(max_size=40)).map(
    lambda part: sent({"record": NAME, "mark": MARK, "parts": [[part[0], len(part[1])]]}, part[1])
)


@given(st.lists(_HEADERS | _RECORDS | st.binary(max_size=20) | st.just(END), max_size=5))
def test_hostile_bytes_are_records_or_one_error(parts: list[bytes]) -> None:
    try:
        found = read(b"".join(parts))
    except ValueError:
        return
    for record in found:
        assert shared.parse_record_name(record.name) == ("mnist", UID)
        assert record.problem.isprintable()


def test_logs_that_a_record_is_too_large_for_are_counted() -> None:
    assert [records.lacks_logs(count) for count in (0, 1, 2)] == [
        "", "lacks 1 log: it is too large", "lacks 2 logs: it is too large"
    ]  # fmt: skip
