"""A cluster on the fake backend."""

from __future__ import annotations

import pytest
from fakes.backend import FakeBackend, job_file

from tfk8s.cluster.handle import Cluster


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(job_file())


@pytest.fixture
def cluster(backend: FakeBackend) -> Cluster:
    return Cluster(backend, "mnist")
