"""Hostile archives leave no file outside of their folder, and end at once.

TFK8S_ARCHIVES is how many of each kind are tried; `make fuzz` tries 100,000.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fuzz import archives
from tfk8s.core.script import Download
from tfk8s.errors import ClusterError
from tfk8s.task.files import received
from tfk8s.task.programs import archive
from tfk8s.task.programs.folder_writer import InvalidPath

COUNT = int(os.environ.get("TFK8S_ARCHIVES", "2000"))
SAME_PLACE = 20  # archives for one place: what one leaves may help the next one out of the place
LIMIT = 1.0  # second of processor time for each: a busy machine takes longer


def receive(seed: int) -> None:
    """Unpack an archive of a pod on this machine."""
    with contextlib.suppress(ClusterError):  # a problem with a single file is a text
        received.receive(io.BytesIO(archives.entries(seed)), [Download("model", Path("place"))])


def unpack(seed: int) -> None:
    """Unpack an archive in a pod."""
    Path("sent").write_bytes(archives.tar(seed))
    with contextlib.suppress(tarfile.TarError, InvalidPath, OSError), contextlib.chdir("place"):
        archive.unpack(Path("../sent"))


@contextlib.contextmanager
def scene(folder: Path) -> Iterator[None]:
    """A place whose links an earlier download or script has left, beside files that nobody may change."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "home/place/a").mkdir(parents=True)
    (folder / "home/x").write_text("old")
    (folder / "home/place/link").symlink_to("..")
    (folder / "home/place/a/link").symlink_to(folder / "home")
    (folder / "home/place/b").symlink_to("../x")
    with contextlib.chdir(folder / "home"):
        yield


def outside(folder: Path) -> dict[str, str]:
    """Return the files beside the place, with their texts."""
    found = {}
    for path, folders, names in os.walk(folder):
        if "place" in folders:
            folders.remove("place")
        texts = {str(Path(path, name)): Path(path, name).read_text() for name in names if name != "sent"}
        found |= texts | {str(Path(path, name)): "" for name in folders}
    return found


@pytest.mark.parametrize("work", [receive, unpack])
def test_hostile_archives_leave_no_file_outside(
    work: Callable[[int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfk8s.log.log.disabled", True)  # links are warnings
    slowest = 0.0
    for first in range(0, COUNT, SAME_PLACE):
        with scene(tmp_path / "root"):
            before = outside(tmp_path)
            for seed in range(first, first + SAME_PLACE):
                start = time.process_time()
                work(seed)
                slowest = max(slowest, time.process_time() - start)
                assert outside(tmp_path) == before, f"archive {seed}"
    assert slowest < LIMIT
