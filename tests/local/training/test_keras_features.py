"""Layers, constraints and optimizers of Keras 3 and tf_keras under `tfk8s.strategy()`, compared with one process.

The sample has most options, each with another optimizer. `make test-keras` runs all pairs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import pytest
import tf_keras
from clusters import is_ready, tfk8s, wait_for
from job_files import job_file
from keras_features import cases, page, results
from keras_features.cases import Outcome

from tfk8s.backends.local.backend import LocalBackend

SCRIPT = Path(results.__file__).with_name("script.py")
LIBRARIES = {"keras": keras, "tf_keras": tf_keras}


@pytest.fixture(scope="module")
def workers(backend: LocalBackend, state_home: Path) -> Iterator[str]:
    del state_home
    backend.apply(job_file("features", ps=1, worker=2))
    wait_for(backend, "features", is_ready)
    yield "features"
    backend.delete("features")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_sample_gives_the_kept_outcomes(workers: str, library: str) -> None:
    variables = {**os.environ, **results.VARIABLES[library]}
    ended = tfk8s("submit", "--local", workers, str(SCRIPT), library, "sample", timeout=500, env=variables)
    assert ended.returncode == 0, ended.stderr
    found = results.read(ended.stdout.splitlines()).outcomes
    assert list(found) == cases.sample(LIBRARIES[library])
    assert cases.unknown(library, [name for name, outcome in found.items() if outcome.how == "differs"]) == []
    kept = results.load()[library].outcomes
    both = [name for name in found if name in kept]  # a run may have been interrupted
    assert {name: found[name].how for name in both} == {name: kept[name].how for name in both}


@pytest.mark.parametrize("library", LIBRARIES)
def test_only_known_cases_differ_from_other_strategies(library: str) -> None:
    result = results.load()[library]
    unknown = cases.unknown(library, [name for name, outcome in result.outcomes.items() if outcome.how == "differs"])
    assert unknown == []
    assert set(result.outcomes) <= set(cases.names(LIBRARIES[library])), "remove outcomes of cases that are gone"


def test_the_page_shows_the_kept_results() -> None:
    text = page.PATH.read_text()
    assert text == page.page(text, results.load())


ONE, OTHER, RANDOM = [1.0, 0.5], [1.0, 0.7], "draws random numbers on each replica"


@pytest.mark.parametrize(
    ("case", "here", "mirrored", "how"),
    [
        ("layer Dense", [1.0001, 0.5], "", Outcome("exact")),
        ("layer Dropout", OTHER, OTHER, Outcome("near", RANDOM)),
        ("optimizer Adam", OTHER, [1.0, 0.7001], Outcome("mirrored")),
        ("optimizer Adam", OTHER, ONE, Outcome("differs", "[1.0, 0.7] instead of [1.0, 0.5]")),
        ("optimizer Adam", "ValueError: \x1b[1mno", "no", Outcome("refused", "ValueError: no")),
        (
            "optimizer Adam",
            'E: File "/a.py", line 1\n\n    ValueError: no\n',
            "no",
            Outcome("refused", "ValueError: no"),
        ),
        ("optimizer Adam", "ValueError: no", ONE, Outcome("differs", "ValueError: no")),
    ],
)
def test_outcomes(case: str, here: Any, mirrored: Any, how: Outcome) -> None:
    assert cases.outcome(case, ONE, here, mirrored) == how
