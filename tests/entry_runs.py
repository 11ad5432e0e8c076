"""Runs of the table of entries that both kinds of clusters have in common."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import entries
from notebooks import kernel

TIMEOUT = 240


def own_process(folder: Path, entry: str, *arguments: str) -> None:
    """Run all uses in a process of the user's own, which has its address or its cluster from its arguments."""
    entries.require(entry, entries.ALL, _run(write(folder, entry, entries.ALL), *arguments))


def _run(path: Path, *arguments: str) -> str:
    """Run a file as Python does; return what it prints."""
    done = subprocess.run(
        [sys.executable, path, *arguments], check=False, timeout=TIMEOUT, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return done.stdout


def connected(folder: Path, start: Callable[..., subprocess.Popen[str]], *arguments: object) -> None:
    """Run all uses in a process at the address of `tfk8s connect`, and some in a process without tfk8s."""
    forward = start("connect", *arguments)
    try:
        assert forward.stdout is not None
        target = forward.stdout.readline().strip()
        own_process(folder, "connect", target)
        alone = folder / "alone.py"
        alone.write_text(entries.plain())
        output = _run(alone, target)
        for words in entries.ALONE.values():
            assert words in output, output
    finally:
        forward.terminate()
        forward.communicate(timeout=60)


def python(folder: Path, name: str, **where: Any) -> None:
    """Run all uses in a process that calls `tfk8s.connect`."""
    own_process(folder, "python", name, json.dumps(where))


def notebook(folder: Path, name: str, uses: Iterable[str], *, tf1: bool = False, **where: Any) -> None:
    """Run uses in the cells of one notebook."""
    with kernel(folder, name, tf1=tf1, **where) as started:
        for use in uses:
            cell = started.run(entries.script("notebook", [use]))
            entries.require("notebook", [use], cell.text + cell.error)


def write(folder: Path, entry: str, uses: Iterable[str]) -> Path:
    """Write the script of an entry; return its path."""
    path = folder / "entry.py"
    path.write_text(entries.script(entry, uses))
    return path


def programs(uses: Iterable[str], **settings: object) -> dict[str, object]:
    """Return the jobs of a cluster whose program is the script of these uses; the settings are those of each job."""
    uses = list(uses)
    program = {"program": ["entry.py"], **settings, **({"tf1": True} if "tf1" in uses else {})}
    if uses == ["multi-worker"]:
        return {"worker": {"tasks": 2, **program}}
    return {"worker": {"tasks": 2, **settings}, "ps": {"tasks": 1, **settings}, "chief": program}
