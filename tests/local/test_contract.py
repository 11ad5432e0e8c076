"""Clusters on this machine keep the promises of every backend."""

import pytest
from backend_contract import BackendContract


@pytest.mark.usefixtures("servers_only")
class TestLocalBackend(BackendContract):
    """With the fixture `backend` of all tests on this machine."""
