"""Unit tests need nothing installed, start no programs, and reach nothing beyond this machine."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

from tfk8s.backends.history import git

for name, examples in (("quick", 4), ("thorough", 30)):
    settings.register_profile(name, max_examples=examples, deadline=None, derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

_HERE = ("127.", "::1", "::ffff:127.", "localhost", "/", "\0")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "programs: starts programs, which unit tests otherwise must not")


_connect = socket.socket.connect


class _NoCommit:
    """Stands for git, which is a program."""

    def __init__(self, folder: Path) -> None:
        pass

    def read(self) -> tuple[str, str]:
        return "", ""


def _connect_here(self: socket.socket, address: Any) -> None:
    host = address[0] if isinstance(address, tuple) else os.fsdecode(address)
    assert host.startswith(_HERE), f"a unit test connects to {host}"
    _connect(self, address)


def _refuse(*arguments: object, **_: object) -> NoReturn:
    raise AssertionError(f"a unit test starts a program: {arguments[-1]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Forbid programs to tests without the mark `programs`, and other machines to all; a fixture would cost more."""
    if not item.path.is_relative_to(Path(__file__).parent):  # pytest calls this hook for the tests of all folders
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", _connect_here)
        if item.get_closest_marker("programs") is None:
            patch.setattr(subprocess.Popen, "__init__", _refuse)
            patch.setattr(git, "Commit", _NoCommit)
            for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system"):
                patch.setattr(os, name, _refuse)
        return (yield)
