"""Measures the ladder of examples/data_parallel: workers that share the examples of a step, relative to one process.

    python bench/ladder.py

Each turn is a run of `compare.py`, whose CSV has the seconds of each step. Then each worker gets one core, and so does
the one process.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import page
from measure import Bound, Comparison, call, compare

TITLE = "Data parallelism"
TURNS = 5
STEPS = 400
COMPARE = Path(__file__).parents[1] / "examples" / "data_parallel" / "compare.py"
ONE_PROCESS = "one process"
BOUNDS = {"fused": 0.9, "many steps a run": 1.0, "local SGD": 1.3}
ONE_CORE = ("--one-core", "--rungs", "single.py", "fused.py", "many_steps.py", "local_sgd.py")
ONE_CORE_BOUNDS = {"local SGD": 1.7}


def rates(*options: str) -> dict[str, float]:
    """Return the steps/s of each method in a run of all."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder, "curves.png")
        call(sys.executable, COMPARE, picture, "--steps", str(STEPS), *options)
        with picture.with_suffix(".csv").open() as file:
            return {line["method"]: (int(line["step"]) + 1) / float(line["seconds"]) for line in csv.DictReader(file)}


def ladder(cores: str, bounds: dict[str, float], *options: str) -> Iterator[Comparison]:
    """Measure the methods in some turns."""
    turns = [rates(*options) for _ in range(TURNS)]
    for method in (method for method in turns[0] if method != ONE_PROCESS):
        ours, theirs = ([turn[name] for turn in turns] for name in (method, ONE_PROCESS))
        bound = Bound(lowest=bounds[method]) if method in bounds else None
        yield compare(f"{method}{cores}", f"{ONE_PROCESS}{cores}", "steps/s", ours, theirs, bound)


def comparisons() -> Iterator[Comparison]:
    """Measure the methods with all cores, and with a core for each worker."""
    yield from ladder("", BOUNDS)
    yield from ladder(", one core", ONE_CORE_BOUNDS, *ONE_CORE)


if __name__ == "__main__":
    page.show(TITLE, comparisons())
