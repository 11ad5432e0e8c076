"""Copies between this machine and tasks, as users name them."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_files import job_file

from tfk8s.cluster.handle import Cluster
from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.features.file_copies import here as files
from tfk8s.testing import FakeBackend


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(job_file())


@pytest.fixture
def cluster(backend: FakeBackend) -> Cluster:
    return Cluster(backend, "mnist")


def test_the_path_of_a_task_says_the_direction(cluster: Cluster, backend: FakeBackend, tmp_path: Path) -> None:
    files.copy(cluster, "worker/1:/ckpt/a:b", "model")
    files.copy(cluster, str(tmp_path), "worker/0:data")
    assert backend.calls == ["fetch mnist worker/1 /ckpt/a:b:model", f"send mnist worker/0 {tmp_path} data"]


@pytest.mark.parametrize("words", [("a", "b"), ("worker/0:a", "worker/1:b"), ("worker/0", "b"), ("worker/0:", "b")])
def test_exactly_one_path_is_a_task_s(cluster: Cluster, words: tuple[str, str]) -> None:
    with pytest.raises(InvalidInput, match=r"^one of SOURCE and TARGET is a path of a task, TASK:PATH"):
        files.copy(cluster, *words)


def test_what_is_missing_is_named(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match='no task "worker/9"'):
        files.copy(cluster, "worker/9:a", "b")
    with pytest.raises(InvalidInput, match=r'^there is no file or folder ".*/none"'):
        files.copy(cluster, str(tmp_path / "none"), "worker/0:b")
    with pytest.raises(ClusterError, match=r'^"none" was not copied'):
        files.copy(cluster, "worker/0:none", "b")
