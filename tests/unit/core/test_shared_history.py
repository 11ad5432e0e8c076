"""The notes by which commands bring their facts into a shared history."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.history import shared

TIMES = st.floats(0, 1e10)
TOKENS = st.text("0123456789abcdef", min_size=8, max_size=8)
VERBS = st.fixed_dictionaries({"kind": st.just("verb"), "time": TIMES, "verb": st.just("up"), "token": TOKENS})
ENDS = st.fixed_dictionaries({"kind": st.just("verb_end"), "time": TIMES, "token": TOKENS, "exit_code": st.integers()})


@given(st.lists(VERBS | ENDS, max_size=5, unique_by=lambda fact: (fact["kind"], fact["token"])))
def test_facts_come_back_in_the_order_of_time(facts: list[dict[str, Any]]) -> None:
    notes = shared.to_notes(facts)
    assert shared.of_notes({"another": "annotation", **notes}) == sorted(facts, key=lambda fact: float(fact["time"]))


@given(
    st.dictionaries(
        st.text(max_size=20).map("fact.tfk8s.dev/{}".format) | st.text(), st.text() | st.none() | st.integers()
    )
)
def test_annotations_of_others_are_no_facts(annotations: dict[str, Any]) -> None:
    assert shared.of_notes(annotations) == []


def test_a_long_fact_loses_its_longest_parts() -> None:
    verb = {"kind": "verb", "time": 1.0, "verb": "submit", "token": "0a", "words": ["a" * 1500] * 2, "who": "ada"}
    start = {"kind": "start", "time": 0.0, "who": "ada", "job_file": {"name": "a" * 20_000}}
    (first, second) = shared.of_notes(shared.to_notes([verb, start]))
    assert first == start
    assert second == {key: value for key, value in verb.items() if key != "words"}
    (huge,) = shared.of_notes(shared.to_notes([{**start, "job_file": {"name": "a" * 90_000}}]))
    assert huge == {"kind": "start", "time": 0.0, "who": "ada"}


def test_of_what_a_command_saw_of_tasks_the_progress_and_the_requests_are_left() -> None:
    tasks = {"kind": "tasks", "time": 2.0, "tasks": [{"task": "a/0"}], "progress": "step 3", "requests": {"cpu": 0.0}}
    assert shared.of_notes(shared.to_notes([tasks])) == [
        {"kind": "script", "time": 2.0, "progress": "step 3", "requests": {"cpu": 0.0}}
    ]


def test_the_oldest_of_many_notes_are_surplus() -> None:
    start = {"kind": "start", "time": 0.0, "job_file": {"name": "demo"}}
    verbs = [{"kind": "verb", "time": time + 1.0, "token": f"{time:08x}"} for time in range(2000)]
    annotations = {"another": "annotation", **shared.to_notes([start, *verbs])}
    surplus = shared.surplus_notes(annotations)
    left = {key: note for key, note in annotations.items() if key not in (*surplus, "another")}
    (first, *others) = shared.of_notes(left)
    assert first == start
    assert others == verbs[-len(others) :]
    assert shared.MAX_NOTES // 2 - 200 < sum(map(len, (*left, *left.values()))) < shared.MAX_NOTES // 2
    assert shared.surplus_notes(left) == []
    assert shared.of_notes(shared.missing_note(annotations, surplus)) == [
        {"kind": "missing", "time": verbs[len(surplus) - 1]["time"], "count": len(surplus)}
    ]


def test_facts_that_are_missing_are_counted_on() -> None:
    gone = [{"kind": "missing", "time": 1.0, "count": 7}, {"kind": "verb", "time": 2.0}, {"kind": "verb", "time": 3.0}]
    notes = shared.to_notes(gone)
    assert shared.of_notes(shared.missing_note(notes, list(notes))) == [{"kind": "missing", "time": 3.0, "count": 9}]
    assert shared.missing_note({"another": "one"}, []) == {}


@given(st.dictionaries(st.text(max_size=9).map("fact.tfk8s.dev/{}".format), st.text(max_size=200_000), max_size=3))
def test_notes_of_others_are_surplus_by_their_bytes(notes: dict[str, str]) -> None:
    left = {key: note for key, note in notes.items() if key not in shared.surplus_notes(notes)}
    assert sum(len(note.encode(errors="replace")) for note in left.values()) <= shared.MAX_NOTES


@given(st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True), st.uuids().map(str))
def test_names_of_records(cluster: str, uid: str) -> None:
    assert shared.parse_record_name(shared.record_name(cluster, uid)) == (cluster, uid)
    assert shared.parse_record_name(f"../{cluster}.{uid}") is None
    assert shared.parse_record_name(f"{cluster}.{uid}\n") is None
