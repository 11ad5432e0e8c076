"""Runs of `make test-keras` keep each outcome as it comes, and go on where an earlier run ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from keras_features import results
from keras_features.cases import Outcome

VERSIONS = json.dumps(["3.1", "2.21.0", {"layer": 2}])


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(results, "PATH", tmp_path / "results.json")


def test_an_interrupted_run_keeps_what_it_has_found() -> None:
    def lines() -> Iterator[str]:
        yield from ("a log line", VERSIONS, '["layer Dense", "exact", ""]')
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        results.follow("keras", lines())
    assert results.load()["keras"].outcomes == {"layer Dense": Outcome("exact")}


def test_a_continued_run_adds_to_the_earlier_one() -> None:
    earlier = results.follow("keras", [VERSIONS, '["layer Dense", "exact", ""]'])
    results.follow("keras", [VERSIONS, '["layer GRU", "near", "x"]'], earlier)
    both = {"layer Dense": Outcome("exact"), "layer GRU": Outcome("near", "x")}
    assert results.load()["keras"].outcomes == both


def test_other_versions_are_not_continued() -> None:
    earlier = results.follow("keras", [VERSIONS, '["layer Dense", "exact", ""]'])
    with pytest.raises(SystemExit, match=r"of Keras 3\.1: run without --continue"):
        results.follow("keras", [VERSIONS.replace("3.1", "3.2")], earlier)
    assert results.load()["keras"] == earlier
