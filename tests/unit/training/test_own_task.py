"""The task of a program that calls `tfk8s.strategy()`."""

from __future__ import annotations

import json

import pytest

from tfk8s.training import strategy

CLUSTER = {"worker": ["w:1", "w:2"], "chief": ["c:1"]}


@pytest.mark.parametrize(
    ("config", "own"),
    [
        ({"cluster": CLUSTER, "task": {"type": "chief", "index": 0}}, ["chief/0"]),
        ({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}}, ["worker/1"]),
        ({"cluster": {**CLUSTER, "chief": ["localhost:5"]}, "task": {"type": "chief", "index": 0}}, []),  # a script
        ({"cluster": CLUSTER, "task": {"type": "chief", "index": 1}}, []),
        (None, []),
        ([], []),
    ],
)
def test_the_task_of_a_program_takes_no_part(config: object, own: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert strategy.own_task(CLUSTER) == own
