"""Clusters on this machine keep the promises of every backend."""

from backend_contract import BackendContract


class TestLocalBackend(BackendContract):
    """With the fixture `backend` of all tests on this machine."""
