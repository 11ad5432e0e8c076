"""Unit tests need nothing installed, start no programs, and reach nothing beyond this machine."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import Any, NoReturn

import pytest
from hypothesis import settings

settings.register_profile("unit", max_examples=15, deadline=None, derandomize=True, database=None)
settings.load_profile("unit")

_HERE = ("127.", "::1", "::ffff:127.", "localhost", "/", "\0")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "programs: starts programs, which unit tests otherwise must not")


@pytest.fixture(autouse=True)
def _nothing_from_outside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forbid programs to tests without the mark `programs`, and other machines to all."""
    connect = socket.socket.connect

    def connect_here(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else os.fsdecode(address)
        assert host.startswith(_HERE), f"a unit test connects to {host}"
        connect(self, address)

    def refuse(*arguments: object, **_: object) -> NoReturn:
        raise AssertionError(f"a unit test starts a program: {arguments[-1]}")

    monkeypatch.setattr(socket.socket, "connect", connect_here)
    if request.node.get_closest_marker("programs") is None:
        monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
        for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
            monkeypatch.setattr(os, name, refuse)
