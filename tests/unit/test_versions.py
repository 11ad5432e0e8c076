"""docs/compatibility.md is what runs have found, and each test that shows a feature exists."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from documented_commands import ROOT
from versions import features, page, results
from versions.results import Result

REPORT = """<testsuites><testsuite timestamp="2026-01-02T10:00:00+00:00">
<testcase classname="tests.cluster.test_contract.TestKubernetesBackend" name="test_a[x]"/>
<testcase classname="tests.cluster.test_warm" name="test_b"><failure message="assert 1 == 2&#10;more">at</failure>
</testcase>
<testcase classname="tests.cluster.test_warm" name="test_c"/>
<testcase classname="tests.cluster.test_elastic" name="test_d"><skipped message="Keras 2 has no such thing"/></testcase>
</testsuite></testsuites>"""
ROWS = """
| Kubernetes | day | tests |
| --- | --- | --- |
| 1.9.0 | 2026-01-02 | 2 passed, 1 failed, 1 not applicable |
| 1.28.1 | 2026-01-02 | 151 passed of the whole suite |

- Kubernetes 1.9.0: `test_b` failed: assert 1 == 2.
- Kubernetes 1.9.0: Keras 2 has no such thing.
- Kubernetes 1.30: not tested: no cluster.
"""


def test_page_is_what_runs_have_found() -> None:
    assert page.PATH.read_text() == page.page(results.load())


def test_results_are_read_and_shown(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    found = results.read_report(report, {"Kubernetes": "1.9.0"}, features.KUBERNETES)
    assert found == Result(
        {"Kubernetes": "1.9.0"}, "2026-01-02", {"`up`, `status`, `logs`, `restart`, `down`": 1, "warm pods": 1},
        failed={"tests/cluster/test_warm.py::test_b": "assert 1 == 2"},
        skipped={"tests/cluster/test_elastic.py::test_d": "Keras 2 has no such thing"},
    )  # fmt: skip
    whole = Result({"Kubernetes": "1.28.1"}, "2026-01-02", {"the whole cluster suite": 151})
    absent = results.missing({"Kubernetes": "1.30"}, "no cluster")
    text = page.page({"kubernetes 1.28": whole, "kubernetes 1.9": found, "kubernetes 1.30": absent})
    assert text.partition("\n## Kubernetes\n")[2].partition("\n## ")[0].endswith(ROWS)
    assert text.count("Not tested yet.") == 7


def test_an_absent_run_keeps_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(results, "PATH", tmp_path / "results.json")
    absent = results.missing({"TensorFlow": "2.21", "Python": "3.14"}, "no wheels")
    results.save("tensorflow 2.21 python 3.14", absent)
    assert results.load() == {"tensorflow 2.21 python 3.14": absent}


def test_each_test_of_a_feature_exists() -> None:
    tables = (
        features.TENSORFLOW,
        features.IO,
        features.MIXED,
        features.LIBRARIES,
        features.LOWEST,
        features.KUBERNETES,
        features.WHOLE,
        features.SCHEDULING,
        features.HELM,
    )
    for node in itertools.chain.from_iterable(nodes for table in tables for nodes in table.values()):
        path, _, name = node.partition("::")
        assert (ROOT / path).exists(), node
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), node
