"""Writes the table of docs/strategy.md from the results of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from versions.page import item, table

from keras_features import results
from keras_features.results import Result

PATH = Path(__file__).parents[2] / "docs" / "strategy.md"
_BEGIN = "<!-- `make test-keras` writes what follows. -->\n"
_END = "<!-- The end of the results. -->\n"
_TITLES = {
    "exact": "exact",
    "near": "near",
    "mirrored": "as MirroredStrategy",
    "refused": "refused by both",
    "differs": "differs from both",
    "fails": "fails alone, too",
}
_KINDS = {
    "layer": "layers", "constraint": "constraints", "regularizer": "regularizers",
    "optimizer": "optimizers with an option",
}  # fmt: skip


def page(text: str, found: Mapping[str, Result]) -> str:
    """Return the page with the results in it.

    Args:
        text: the page.
        found: the results, by the library.
    """
    before, rest = text.split(_BEGIN)
    after = rest.split(_END)[1]
    return f"{before}{_BEGIN}{_results(found)}\n{_END}{after}"


def write() -> None:
    """Write the results into the page."""
    PATH.write_text(page(PATH.read_text(), results.load()))


def _results(found: Mapping[str, Result]) -> str:
    """Return a table of counts, and what is not exact."""
    shown = [how for how in _TITLES if any(one.how == how for run in found.values() for one in run.outcomes.values())]
    rows = [
        [title, f"`{library}` {run.keras}", *(str(_count(run, kind, how) or "–") for how in shown), _not_run(run, kind)]
        for library, run in found.items()
        for kind, title in _KINDS.items()
    ]
    notes = [note for library, run in found.items() for note in _notes(library, run)]
    return table(["", "Keras", *map(_TITLES.get, shown), "not run"], rows) + "\n" + "".join(map(item, notes))


def _count(run: Result, kind: str, how: str) -> int:
    return sum(name.split()[0] == kind and outcome.how == how for name, outcome in run.outcomes.items())


def _not_run(run: Result, kind: str) -> str:
    return str(run.cases[kind] - sum(name.split()[0] == kind for name in run.outcomes) or "–")


def _notes(library: str, result: Result) -> list[str]:
    """Return what is not exact, with the reason."""
    grouped = defaultdict(list)
    for name, (how, detail) in result.outcomes.items():
        if how != "exact":
            grouped[how, detail].append(f"`{name.partition(' ')[2]}`")
    return [
        f"`{library}`, {_TITLES[how]}: {', '.join(names)}{f' ({detail})' if detail else ''}"
        for (how, detail), names in sorted(grouped.items(), key=lambda kept: list(_TITLES).index(kept[0][0]))
    ]
