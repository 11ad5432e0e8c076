"""Writes docs/compatibility.md from the results of runs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from versions import features, results
from versions.results import Result

PATH = Path(__file__).parents[2] / "docs" / "compatibility.md"

_HEAD = """# Compatibility

`make test-versions`, `make test-libraries` and `make test-kubernetes-versions` write this page from their results. Each
result has the day of its run. A version that is in no table was not tested.
"""
_TENSORFLOW = "On this machine. Each row is a virtual environment with the newest packages that fit. The tests show:"
_MIXED = """TensorFlow promises nothing for such a pair, and `tfk8s submit` warns of it. The tests show a session,
ParameterServerStrategy and `tfk8s.strategy()`."""
_LOWEST = """The lowest versions that `pyproject.toml` allows, as `uv pip install --resolution lowest-direct` installs
them. The tests show:"""
_IO = """The library for S3 reads no variables of proxies. So it needs slirp4netns or pasta on this machine, and nothing
on Kubernetes. The tests show:"""
_LIBRARIES = """`make test-libraries`, on this machine. Each library has an environment of its own, without tfk8s. Its
program prints the same numbers on a cluster of two workers and a ps as in one process. [Libraries](libraries.md) has
the setting of each."""
_KUBERNETES = "In kind clusters. Some rows are a run of the whole cluster suite. In the others, the tests show:"
_SCHEDULING = """`make test-gang`, `make test-kueue` and `make test-karpenter`, in kind clusters. The tests show:"""
_SECTIONS = {
    "tensorflow": ("TensorFlow and Python", _TENSORFLOW, features.TENSORFLOW),
    "mixed": ("A script and servers of different versions", _MIXED, {}),
    "lowest": ("The lowest dependencies", _LOWEST, features.LOWEST),
    "io": ("tensorflow-io", _IO, features.IO),
    "library": ("Libraries", _LIBRARIES, {}),
    "kubernetes": ("Kubernetes", _KUBERNETES, features.KUBERNETES),
    "scheduling": ("Gangs, queues and autoscalers", _SCHEDULING, features.SCHEDULING),
    "helm": ("Helm", "The tests show the chart's objects, and a release in a cluster.", {}),
}
_WIDE = 5  # more versions are rows of a table


def page(found: Mapping[str, Result]) -> str:
    """Return the page.

    Args:
        found: the results, by the name of their run, whose first word is the section.
    """
    names = sorted(found, key=_order)
    texts = [_HEAD]
    for kind, (title, about, shown) in _SECTIONS.items():
        texts += _section(title, about, shown, [found[name] for name in names if name.partition(" ")[0] == kind])
    return "".join(texts)


def write() -> None:
    """Write the page from the results that are kept."""
    PATH.write_text(page(results.load()))


def _order(name: str) -> list[tuple[int, ...]]:
    """Return what sorts 2.9 before 2.10."""
    return [tuple(map(int, word.split("."))) for word in name.split() if word[0].isdigit()]


def _section(title: str, about: str, shown: Mapping[str, Sequence[str]], runs: Sequence[Result]) -> Iterator[str]:
    yield f"\n## {title}\n\n{textwrap.fill(about, 120)}\n"
    if shown:
        yield f"\n{item('; '.join(shown))}"
    if not runs:
        yield "\nNot tested yet.\n"
    for run in runs:
        if len(run.versions) > _WIDE:
            yield table(["package", "version"], [[f"`{name}`", version] for name, version in run.versions.items()])
            yield f"\n{run.day}: {_counts(run)}\n"
    if tested := [run for run in runs if not run.missing and len(run.versions) <= _WIDE]:
        rows = [[*run.versions.values(), run.day, _counts(run)] for run in tested]
        yield table([*tested[0].versions, "day", "tests"], rows)
    if notes := [note for run in runs for note in _notes(run)]:
        yield "\n" + "".join(map(item, notes))


def item(text: str) -> str:
    text = f"{text.rstrip('.')}."
    return textwrap.fill(text, 120, initial_indent="- ", subsequent_indent="  ", break_long_words=False) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _counts(run: Result) -> str:
    counts = {"passed": sum(run.passed.values()), "failed": len(run.failed), "not applicable": len(run.skipped)}
    text = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{text} of the whole suite" if run.passed and set(run.passed) <= set(features.WHOLE) else text


def _notes(run: Result) -> list[str]:
    """Return what did not pass."""
    ends = [*run.versions.items()][:: max(1, len(run.versions) - 1)]
    versions = ", ".join(f"{name} {version}" for name, version in ends)
    notes = [f"not tested: {run.missing}"] if run.missing else []
    notes += [f"`{node.rpartition('::')[2]}` failed: {message}" for node, message in run.failed.items()]
    notes += dict.fromkeys(run.skipped.values())
    return [f"{versions}: {note}" for note in notes]
