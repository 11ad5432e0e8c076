"""Objects with any value at any place: a job file that is valid, or one error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml_text
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.errors import InvalidInput
from tfk8s.features.init import kubeflow
from tfk8s.jobfile.loader import loads

HERE = Path(__file__).parent
JUNK = [
    None, True, 0, -1, 2.5, 10**12, "", "A b", "é\u2028", "$(X)", "/", "/tmp", "1Gi", [], ["a"], [1], [None], [[]],
    [{}], {}, {"a": 1}, {"name": []}, "x" * 300,
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in data."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


@given(number=st.integers(0, 10_000), junk=st.sampled_from(JUNK))
def test_any_value_at_any_place(number: int, junk: Any) -> None:
    documents = yaml_text.read_all((HERE / "tfjob.yaml").read_text())
    paths = list(places(documents))
    *path, last = paths[number % len(paths)]
    parent: Any = documents
    for step in path:
        parent = parent[step]
    parent[last] = junk
    with contextlib.suppress(InvalidInput):
        loads(kubeflow.convert("\n---\n".join(map(json.dumps, documents)).encode(), "a.yaml").text("a.yaml"), "b.yaml")
