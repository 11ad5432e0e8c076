"""The place of rates: the user's file before the ConfigMap of the namespace, and neither is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes.config_map import NamespaceSettings

from tfk8s.backends.kubernetes import rates
from tfk8s.backends.kubernetes.pods.total_requests import billed_jobs, billed_workloads
from tfk8s.core.price.rates import EXAMPLE
from tfk8s.errors import ClusterError
from tfk8s.jobfile.loader import loads
from tfk8s.render import objects

JOB_FILE = """\
apiVersion: tfk8s.dev/v1
name: mnist
image: x
jobs:
  master: {cpu: 2, memory: 4Gi}
  worker: {tasks: 3, cpu: 1, memory: 2Gi, gpus: 2, accelerator: nvidia-l4, spot: true}
  ps: {tasks: 2, pod: {containers: [{name: server, resources: {requests: {cpu: "1"}}}]}}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the user's file, which does not exist."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "tfk8s").mkdir()
    return tmp_path / "tfk8s" / "rates.yaml"


def config_map(text: str) -> dict[str, Any]:
    return {"data": {"rates.yaml": text}}


def test_rates_come_from_the_namespace(own: Path) -> None:
    namespace = NamespaceSettings(config_map(EXAMPLE))
    found = rates.read(namespace, "ns")  # type: ignore[arg-type]
    assert found is not None
    assert found.currency == "EUR"
    assert namespace.asked == ["/api/v1/namespaces/ns/configmaps/tfk8s-rates"]


def test_the_own_file_comes_first_and_asks_nobody(own: Path) -> None:
    own.write_text("{currency: USD, cpu: 1}")
    namespace = NamespaceSettings(config_map(EXAMPLE))
    found = rates.read(namespace, "ns")  # type: ignore[arg-type]
    assert found is not None
    assert (found.currency, namespace.asked) == ("USD", [])


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        {"data": None},
        {"data": {"other": "1"}},
        {"data": "x"},
        {"data": {"rates.yaml": 5}},
        ClusterError("no"),
    ],
)
def test_nobody_gives_rates(own: Path, found: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert rates.read(NamespaceSettings(found), "ns") is None  # type: ignore[arg-type]
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{currency: EUR, cpu: x}", "cpu: expected a price an hour, such as 0.03"),
        ("a: &a [1]\nb: *a\n", "line 1: "),
        ("currency: EUR\ncurrency: USD\n", "line 2: "),
    ],
)
def test_wrong_rates_are_left_out_with_a_warning(
    own: Path, text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert rates.read(NamespaceSettings(config_map(text)), "ns") is None  # type: ignore[arg-type]
    own.write_text(text)
    assert rates.read(NamespaceSettings(), "ns") is None  # type: ignore[arg-type]
    there, here = caplog.messages
    assert there.startswith(f"the rates in ConfigMap tfk8s-rates of namespace ns, rates.yaml are left out: {reason}")
    assert here.startswith(f"the rates in {own} are left out: {reason}")


def test_a_job_file_and_its_objects_are_billed_alike() -> None:
    job_file = loads(JOB_FILE, "job.yaml")
    workloads = [item for item in objects(job_file, "ns") if item["kind"] == "StatefulSet"]
    billed = billed_jobs(job_file)
    assert billed == billed_workloads(workloads)
    assert {name: float(amount) for name, amount in billed.amounts.items() if "memory" not in name} == {
        "cpu": 4.0, "spot/cpu": 3.0, "spot/nvidia-l4": 6.0,
    }  # fmt: skip
