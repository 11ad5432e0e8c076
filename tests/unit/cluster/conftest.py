"""A cluster on the fake backend."""

from __future__ import annotations

import pytest
from job_files import job_file

from tfk8s.cluster.handle import Cluster
from tfk8s.testing import FakeBackend


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(job_file())


@pytest.fixture
def cluster(backend: FakeBackend) -> Cluster:
    return Cluster(backend, "mnist")
