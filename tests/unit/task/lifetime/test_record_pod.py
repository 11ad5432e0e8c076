"""The program of the record's Job, and its last word, which `status` shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.task.lifetime.test_record_writer import OBJECTS, RecordedCluster
from tfk8s.core import naming
from tfk8s.core.history.shared import FOLDER
from tfk8s.task.lifetime.record import record_pod

NO_KEYS = "the pod has no keys for the bucket: the history's secret in the job file names some"


@pytest.mark.parametrize(
    ("variables", "is_damaged", "problem"),
    [({}, True, "Not a directory"), ({"TFK8S_BUCKET": "s3://team"}, False, NO_KEYS)],
)
def test_a_place_that_takes_nothing_is_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], is_damaged: bool, problem: str
) -> None:
    message, volume = tmp_path / "message", tmp_path / "volume"
    volume.mkdir()
    if is_damaged:
        (volume / FOLDER).write_text("")  # no folder
    monkeypatch.setattr(naming, "TERMINATION_MESSAGE", str(message))
    monkeypatch.setattr(record_pod, "MOUNT_PATH", str(volume))
    cluster = RecordedCluster(volume)
    environment = {"TFK8S_NAME": "demo", "TFK8S_HISTORY": "logs", **variables}
    assert record_pod.keep(cluster, OBJECTS, environment, cluster.said.append) == 1  # type: ignore[arg-type]
    assert message.read_text() == problem
    assert cluster.said == [
        'keeping the record of cluster "demo"',
        f"error: the history is not written: {problem}",
    ]


def test_a_cluster_that_is_gone_ends_the_program_with_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "TERMINATION_MESSAGE", str(tmp_path / "message"))
    monkeypatch.setattr(record_pod, "MOUNT_PATH", str(tmp_path))
    cluster = RecordedCluster(tmp_path)
    cluster.config_map = None
    environment = {"TFK8S_NAME": "demo", "TFK8S_HISTORY": "logs"}
    assert record_pod.keep(cluster, OBJECTS, environment, cluster.said.append) == 0  # type: ignore[arg-type]
    assert (tmp_path / "message").read_text() == ""
