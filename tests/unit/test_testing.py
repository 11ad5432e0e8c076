"""The fake backend keeps the promises of the real ones, and stands in for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from backend_contract import BackendContract

import tfk8s
from tfk8s.core.script import Script
from tfk8s.testing import FakeBackend, use_backend


class TestFakeBackend(BackendContract):
    @pytest.fixture(scope="class")
    @classmethod
    def backend(cls) -> Iterator[FakeBackend]:
        backend = FakeBackend()
        backend.exit_code = 7
        yield backend
        backend.close()

    @pytest.fixture
    def script(self) -> Script:
        return Script(path=Path("script.py"))


def test_the_api_uses_the_fake_backend_in_the_block(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("apiVersion: tfk8s.dev/v1\nname: mnist\njobs: {worker: 2}\n")
    with use_backend(FakeBackend()) as backend, tfk8s.up(tmp_path / "cluster.yaml") as cluster:
        cluster.restart("worker/1")
        assert [task.restarts for task in cluster.tasks()] == [0, 1]
    assert backend.calls == ["apply mnist", "restart mnist worker/1", "delete mnist"]
