"""A state folder of the tests' own, for those that start clusters on this machine."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfk8s.backends.local import state
from tfk8s.backends.local.backend import LocalBackend


@contextlib.contextmanager
def own_state(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the tests' clusters apart from the user's, and fail where one is left over."""
    # Where the tests run in a shell's background, SIGINT is ignored, and would be in all that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    home = factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(home))
        patch.delenv("TFK8S_LOCAL", raising=False)
        yield home
        left = [folder.path.name for folder in state.folders()]
        for name in left:
            LocalBackend().delete(name)
        assert not left, f"clusters left over: {left}"
