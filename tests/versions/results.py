"""The results of runs: read from pytest's reports, and kept in results.json."""

from __future__ import annotations

import dataclasses
import datetime
import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from versions import features

PATH = Path(__file__).with_name("results.json")
_LONGEST = 160


@dataclass(frozen=True)
class Result:
    """A run of tests with certain versions.

    Attributes:
        versions: what was tested, such as {"TensorFlow": "2.21.0"}.
        day: of the run, YYYY-MM-DD.
        passed: the number of tests that passed, by feature.
        failed: the message of each test that failed.
        skipped: the reason of each test that does not apply.
        missing: why no test ran; "" if tests ran.
    """

    versions: dict[str, str]
    day: str
    passed: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    missing: str = ""


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def missing(versions: Mapping[str, str], reason: str) -> Result:
    """Return the result of versions that can't be tested here."""
    return Result(dict(versions), today(), missing=reason)


def read_report(report: Path, versions: Mapping[str, str], shown: Mapping[str, Sequence[str]]) -> Result:
    """Return the result of a run.

    Args:
        report: which `pytest --junit-xml` has written.
        versions: what was tested.
        shown: the tests of each feature.
    """
    suite = ElementTree.parse(report).getroot()[0]  # noqa: S314
    passed, failed, skipped = Counter[str](), {}, {}
    for case in suite.iter("testcase"):
        node = _node(case.get("classname", ""), case.get("name", ""))
        bad = next((child for kind in ("failure", "error") for child in case.iter(kind)), None)
        if bad is not None:
            failed[node] = _first_line(bad.get("message", ""))
        elif (skip := case.find("skipped")) is not None:
            skipped[node] = _first_line(skip.get("message", ""))
        else:
            passed[features.of(node, shown)] += 1
    return Result(dict(versions), suite.get("timestamp", today())[:10], dict(passed), failed, skipped)


def _node(classname: str, name: str) -> str:
    """Return a test's name as pytest prints it, from a report's: tests.a.test_b.TestC and test_d."""
    if not classname:  # a file that can't be collected
        return name
    module, separator, group = classname.partition(".Test")
    path = f"{module.replace('.', '/')}.py"
    return f"{path}::Test{group}::{name}" if separator else f"{path}::{name}"


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def load() -> dict[str, Result]:
    """Return the results so far, by the name of their run."""
    kept = json.loads(PATH.read_text()) if PATH.exists() else {}
    return {name: Result(**result) for name, result in kept.items()}


def save(name: str, result: Result) -> None:
    """Keep a result in place of the one of an earlier run."""
    kept = {run: dataclasses.asdict(result) for run, result in {**load(), name: result}.items()}
    PATH.write_text(json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False) + "\n")
