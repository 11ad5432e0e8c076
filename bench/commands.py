"""Measures commands that must be quick, relative to the same of kubectl and of a plain program with Typer.

python bench/commands.py
"""

from __future__ import annotations

import functools
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import page
from measure import TFK8S, Bound, Comparison, call, compare, seconds, take_turns

TITLE = "Commands"
TURNS = 7
RUNS = 3  # of each command in a turn, whose median counts
TYPER_PROGRAM = """\
import typer

app = typer.Typer()

def show_version(wanted: bool) -> None:
    if wanted:
        print("1.0")
        raise typer.Exit

@app.callback()
def main(version: bool = typer.Option(False, callback=show_version, is_eager=True)) -> None:
    pass

@app.command()
def greet(name: str = "world", times: int = 1) -> None:
    "Greet somebody."

@app.command()
def leave(name: str = "world") -> None:
    "Say goodbye."

app(prog_name="plain")
"""
TASKS = "apiVersion: tfk8s.dev/v1\nname: large\nimage: tf:1\njobs: {{master: 1, ps: {ps}, worker: {workers}}}\n"


def command(*words: str | Path, **environment: str) -> Callable[[], float]:
    """Return a function that measures a command."""
    run = functools.partial(call, *words, **environment)
    return lambda: statistics.median(seconds(run) for _ in range(RUNS))


def completion(program: str, beginning: str, *words: str | Path) -> Callable[[], float]:
    """Return a function that measures a TAB in bash after the beginning of a command's name."""
    line = {"COMP_WORDS": f"{program} {beginning}", "COMP_CWORD": "1"}
    return command(*words, **{f"_{program.upper()}_COMPLETE": "complete_bash"}, **line)


def comparisons() -> Iterator[Comparison | str]:
    """Measure the start of programs, and `render`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plain.py").write_text(TYPER_PROGRAM)
        yield from starts((sys.executable, folder / "plain.py"))
        yield render(folder)


def starts(plain: tuple[str | Path, ...]) -> Iterator[Comparison | str]:
    """Measure the start of programs."""
    rows: tuple[tuple[str, Bound | None, dict[str, Callable[[], float]]], ...] = (
        ("--help", Bound(highest=0.12, unit="s"), {
            "tfk8s": command(*TFK8S, "--help"),
            "plain Typer program": command(*plain, "--help"),
            "kubectl": command("kubectl", "--help"),
        }),
        ("--version", Bound(highest=0.06, unit="s"), {
            "tfk8s": command(*TFK8S, "--version"),
            "plain Typer program": command(*plain, "--version"),
            "kubectl": command("kubectl", "version", "--client"),
        }),
        ("completion", None, {
            "tfk8s": completion("tfk8s", "stat", *TFK8S),
            "plain Typer program": completion("plain", "gre", *plain),
            "kubectl": command("kubectl", "__complete", "des"),
        }),
    )  # fmt: skip
    has_kubectl = shutil.which("kubectl") is not None
    if not has_kubectl:
        yield "kubectl is not installed, so nothing is compared with kubectl."
    for name, bound, ways in rows:
        if not has_kubectl:
            del ways["kubectl"]
        figures = take_turns(ways, TURNS)
        for other in list(ways)[1:]:
            yield compare(f"`{name}`", other, "s", figures["tfk8s"], figures[other], bound)


def render(folder: Path) -> Comparison:
    """Measure `render` of 10,000 tasks."""
    large, small = folder / "large.yaml", folder / "small.yaml"
    large.write_text(TASKS.format(ps=999, workers=9000))
    small.write_text(TASKS.format(ps=1, workers=2))
    ways = {path: command(*TFK8S, "render", path) for path in (large, small)}
    figures = take_turns(ways, TURNS)
    return compare(
        "`render` of 10,000 tasks", "`render` of 4 tasks", "s", *figures.values(), Bound(highest=0.2, unit="s")
    )


if __name__ == "__main__":
    page.show(TITLE, comparisons())
