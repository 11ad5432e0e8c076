"""Comparison of objects."""

from __future__ import annotations

from tfk8s.core.plan import Action, Change, Field, Plan, compare, fields
from tfk8s.core.spec import Task

DIFFERENCES = [
    ({"a": 1}, {"a": 1}, []),
    ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, ["a.b: 1 → 3", "a.c: 2 → none"]),
    ({"labels": {"x.io/y": "1"}}, {"labels": {}}, ["labels[x.io/y]: 1 → none"]),
    ({"a": [1, 2]}, {"a": [1]}, ["a: [1, 2] → [1]"]),
    ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, ["env[A].value: 1 → 2"]),
    (
        {"env": [{"name": "A"}, {"name": "B"}]},
        {"env": [{"name": "B"}, {"name": "C"}]},
        ['env[A]: {"name": "A"} → none', 'env[C]: none → {"name": "C"}'],
    ),
    ({"a": [{"name": "A"}, {"name": "A"}]}, {"a": []}, ['a: [{"name": "A"}, {"name": "A"}] → []']),
    ({"a": {}}, {"a": "x"}, ["a: {} → x"]),
    ({"text": "a\nb\n"}, {"text": "a\n"}, ["text: a text of 2 lines → a text of 1 lines"]),
    ({"a": "x" * 200}, {"a": ""}, [f'a: {"x" * 100}… → ""']),
    ({"a": "x" * 200 + "y"}, {"a": "x" * 200 + "z"}, [f"a: …{'x' * 20}y → …{'x' * 20}z"]),
    ({"a": "x" * 200}, {"a": "x" * 300}, [f"a: …{'x' * 20} → …{'x' * 100}…"]),
    ({}, {"chief": {"tasks": 1}}, ["chief: none → 1 task"]),
    ({"max_duration": 12, "ttl": 60}, {"max_duration": 180}, ["max_duration: 12s → 3m", "ttl: 1m → none"]),
    ({"grace": 30, "run": {"timeout": 60}}, {"grace": 120, "run": {}}, ["grace: 30s → 2m", "run.timeout: 1m → none"]),
]


def test_fields_that_differ() -> None:
    for before, after, lines in DIFFERENCES:
        assert [str(field) for field in fields(before, after)] == lines, before


def test_each_action() -> None:
    assert compare("Service", "a", None, {}) == Change(kind="Service", name="a", action=Action.CREATE)
    assert compare("Service", "a", {}, None) == Change(kind="Service", name="a", action=Action.REMOVE)
    assert compare("Service", "a", {"b": 1}, {"b": 2}) == Change(
        kind="Service", name="a", action=Action.CHANGE, fields=(Field("b", 1, 2),)
    )
    assert compare("Service", "a", {"b": 1}, {"b": 1}) is None


def test_an_empty_plan_is_false() -> None:
    assert not Plan(name="a")
    assert Plan(name="a", restarts=(Task("worker", 0),))
