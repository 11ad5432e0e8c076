"""Tests of the table of error codes. TFK8S_UPDATE=1 writes the table."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_files import RAW_FILES, TOO_MANY_PROBLEMS, cases

from tfk8s.errors import JobFileError, Problem
from tfk8s.jobfile.loader import load, loads

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "job-file-errors.md"
HEAD = """\
# Errors of job files

Every problem that `tfk8s validate` finds in a job file has a stable code. This table shows an example of each code.

| Code | Message | Help |
| --- | --- | --- |
"""


def problems() -> Iterator[Problem]:
    for name in ("missing.yaml", ".", "\0"):
        with pytest.raises(JobFileError) as caught:
            load(name)
        yield from caught.value.problems
    for data in (*(text for text, _ in cases()), *(data for data, _ in RAW_FILES), TOO_MANY_PROBLEMS):
        with pytest.raises(JobFileError) as caught:
            loads(data, "job.yaml")
        yield from caught.value.problems


def codes_in_the_source() -> Iterator[str]:
    """Yield the first argument of each call that makes a problem."""
    for path in (ROOT / "tfk8s" / "jobfile").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
                if name in ("Problem", "Invalid", "Rule", "problem", "_problem", "_unreadable", "_one_source"):
                    yield str(node.args[0].value)


def row(problem: Problem) -> str:
    cells = (f"`{problem.code}`", problem.message, problem.help or "")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def test_error_page_has_every_code() -> None:
    by_quality = sorted(problems(), key=lambda problem: (bool(problem.help), -len(row(problem))))
    rows = {problem.code: row(problem) for problem in by_quality}  # the last one, with help and short
    assert set(codes_in_the_source()) == rows.keys()
    page = HEAD + "".join(f"{rows[code]}\n" for code in sorted(rows))
    if os.environ.get("TFK8S_UPDATE"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "run: make update"
