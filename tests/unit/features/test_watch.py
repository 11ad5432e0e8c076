"""`submit --watch` of a folder that can't be watched any longer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tfk8s.backends import child_process
from tfk8s.errors import InvalidInput
from tfk8s.features.watch.here import run_again


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def replace(folder: Path) -> None:
    folder.rename(folder.with_name("old"))
    folder.mkdir()


def add_name(folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.py")).touch()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (remove, "was removed or replaced"),
        (replace, "was removed or replaced"),
        (add_name, "can't be watched: .*FF.py"),
    ],
)
def test_what_cannot_be_watched_any_longer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: Callable[[Path], None], problem: str
) -> None:
    folder = tmp_path / "example"
    folder.mkdir()
    (folder / "train.py").touch()

    class Ended:
        """A command that changes the folder at its end."""

        def poll(self) -> int:
            if not hasattr(self, "ended"):
                self.ended = True
                change(folder)
            return 0

    monkeypatch.setattr(child_process, "start", lambda *_: Ended())
    with pytest.raises(InvalidInput, match=f'"{folder}" {problem}'):
        run_again(["submit", "--watch"], folder / "train.py")
