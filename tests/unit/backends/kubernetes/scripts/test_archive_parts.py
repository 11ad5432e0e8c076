"""Parts of a folder's archive: all together are the folder, and few change when a file changes."""

from __future__ import annotations

import io
import os
import random
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.backends.kubernetes.scripts import script_archive, sent_folder
from tfk8s.backends.kubernetes.scripts.programs import archive_parts

LIMIT = 8192
NAMES = [f"{folder}{name}" for folder in ("", "data/", "a/b/c/", "é/") for name in map(str, range(8))]
SIZES = st.sampled_from((0, 1, 500, 1000, 2000, 3000, 4000, 5000, 9000, 30_000))
FOLDERS = st.dictionaries(st.sampled_from(NAMES), SIZES, max_size=30)


def packed(sizes: Mapping[str, int], limit: int = LIMIT, most: int = 1000) -> list[bytes]:
    """Return the parts of a folder whose files have random bytes of these numbers."""
    with tempfile.TemporaryDirectory() as name:
        for path, size in sizes.items():
            (file := Path(name, path)).parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content(path, size))
        return archive_parts.cut(dict(script_archive.members(sent_folder.find(Path(name)))), limit, most)


def content(path: str, size: int) -> bytes:
    return random.Random(f"{path} {size}").randbytes(size)  # noqa: S311 - the same at each call


def files(archive: bytes) -> dict[str, bytes]:
    """Return the files of an archive, by their paths."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
        return {member.name: (members.extractfile(member) or io.BytesIO()).read() for member in members}


@given(FOLDERS, st.sampled_from((1, 1000)))
def test_parts_are_the_folder(sizes: dict[str, int], most: int) -> None:
    parts = packed(sizes, most=most)
    assert all(len(part) <= LIMIT for part in parts)
    assert files(b"".join(parts)) == {path: content(path, size) for path, size in sizes.items()}


@given(FOLDERS, st.sampled_from(NAMES), st.none() | SIZES)
def test_a_change_of_a_file_sends_few_parts(sizes: dict[str, int], changed: str, size: int | None) -> None:
    """A group that no longer fits into a part is halved, and the archive's end may move to another part."""
    without = {path: size for path, size in sizes.items() if path != changed}
    before, after = packed(sizes), packed(without if size is None else {**without, changed: size})
    own, sent = packed({changed: size or 0}), {*after} - {*before}
    assert len(sent) <= len(own) + 3
    assert sum(map(len, sent)) <= sum(map(len, own)) + 2 * LIMIT


@pytest.mark.parametrize(
    ("change", "sent"),
    [({"0": 7000}, 1), ({"29": 8000}, 1), ({"aa": 1}, 1), ({"zz": 60_000}, 2), ({"large": 400_001}, 9)],
    ids=["first", "in the middle", "new first", "new last", "large"],
)
def test_borders_do_not_depend_on_other_files(change: dict[str, int], sent: int) -> None:
    sizes = {str(number): 6000 for number in range(60)} | {"large": 400_000}
    before, after = packed(sizes, 50_000), packed(sizes | change, 50_000)
    assert (len(before), len({*after} - {*before})) == (20, sent)


@pytest.mark.parametrize(("place", "sent"), [(399_000, 1), (200_000, 1), (0, 1)])
def test_a_large_file_keeps_its_other_parts(place: int, sent: int) -> None:
    data = bytearray(content("large", 400_000))
    before = archive_parts.cut({"large": bytes(data)}, 50_000, 1000)
    data[place] ^= 1
    assert len({*archive_parts.cut({"large": bytes(data)}, 50_000, 1000)} - {*before}) == sent


def test_a_small_folder_is_one_part_and_others_have_few() -> None:
    assert len(packed({"a": 4000, "b/c": 2000})) == 1
    assert len(packed({str(number): 20 for number in range(200)}, 50_000)) == 1
    assert len(packed({str(number): 3000 for number in range(240)}, 1 << 20, 32)) == 1


def test_too_many_parts_are_refilled() -> None:
    sizes = {str(number): 4500 for number in range(20)}
    assert len(packed(sizes)) == 21
    assert len(packed(sizes, most=20)) == 12


def test_parts_do_not_depend_on_times_and_umasks(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("true")
    (tmp_path / "run.sh").chmod(0o700)
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "train.py").chmod(0o600)
    before = dict(script_archive.members(sent_folder.find(tmp_path)))
    (tmp_path / "run.sh").chmod(0o775)
    (tmp_path / "train.py").chmod(0o664)
    os.utime(tmp_path / "train.py", (1, 1))
    assert dict(script_archive.members(sent_folder.find(tmp_path))) == before
