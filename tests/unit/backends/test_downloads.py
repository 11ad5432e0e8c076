"""Files of a script: what users may ask for, and how an archive gets to its place."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from pathlib import Path

import pytest

from tfk8s.backends import downloads
from tfk8s.core.script import Outcome
from tfk8s.errors import ClusterError, InvalidInput, quoted
from tfk8s.sessions.pod import file_server


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_the_default_place_is_the_same_path() -> None:
    texts = ["logs/run1", "logs/run1:x", "/tmp/model", "/tmp/model:/tmp/y", "m:~/z"]
    assert [str(download) for download in downloads.parse(texts)] == [
        "logs/run1:logs/run1", "logs/run1:x", "/tmp/model:model", "/tmp/model:/tmp/y", f"m:{Path.home()}/z",
    ]  # fmt: skip


BAD = [
    ([""], '--get "" is not PATH or PATH:LOCAL'),
    (["model:"], '--get "model:" is not PATH or PATH:LOCAL'),
    ([":out"], '--get ":out" is not PATH or PATH:LOCAL'),
    (["a/../../b"], '--get "a/../../b" leads out of the script\'s folder'),
    (["/"], '--get "/" names no file'),
    (["a:~no-such-user/out"], '--get "a:~no-such-user/out": "~no-such-user" is no home folder'),
    (["a:/proc/none/out"], '--get "a:/proc/none/out": "/proc" is not a folder that you may write'),
]


def test_bad_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).startswith("/proc"))
    for texts, error in BAD:
        with pytest.raises(InvalidInput) as caught:
            downloads.parse(texts)
        assert str(caught.value) == error, texts


def test_two_files_for_one_place_are_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        downloads.parse(["a:/tmp/out", "b:/tmp/x/../out"])
    assert str(caught.value) == '--get "a:/tmp/out": another --get copies to "/tmp/out", too'


def test_an_old_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tarfile, "data_filter")
    assert downloads.parse([]) == ()
    with pytest.raises(InvalidInput, match=r"^--get needs Python 3\.11\.4 or later"):
        downloads.parse(["model"])


def archive(*paths: str) -> io.BytesIO:
    sink = io.BytesIO()
    file_server.pack(paths, sink)
    sink.seek(0)
    return sink


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file()
    }  # fmt: skip


def test_files_and_folders_are_copied_over_what_is_there(tmp_path: Path, folder: Path) -> None:
    pod = tmp_path / "pod"
    (pod / "sub").mkdir(parents=True)
    for name in ("a", "sub/b"):
        (pod / name).write_text(name)
    for name, target in (("link", "sub/b"), ("links", "sub"), ("bad", "/etc/passwd"), ("out", "../here")):
        (pod / name).symlink_to(target)
    (folder / "out").mkdir()
    for name in ("a", "old"):
        (folder / "out" / name).write_text("old")
    assert downloads.receive(archive(str(pod)), downloads.parse([f"{pod}:out"])) == [
        f"{quoted(f'{pod}/{name}')} was not copied: it is a link that leads out of the folder"
        for name in ("bad", "out")
    ]
    assert tree(folder / "out") == {"a": "a", "link": "sub/b", "links": "sub", "old": "old", "sub/b": "sub/b"}


def test_a_file_goes_into_a_folder_that_exists(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "file").write_text("text")
    path = str(tmp_path / "file")
    wanted = downloads.parse([f"{path}:.", f"{path}:new/name"])
    assert downloads.receive(archive(path, path), wanted) == []
    assert tree(folder) == {"file": "text", "new/name": "text"}


@pytest.mark.parametrize("size", [0, 600, 5000])
def test_an_incomplete_archive_changes_nothing(folder: Path, size: int) -> None:
    (folder / "file").write_text("x" * 6000)
    whole = archive("file")
    (folder / "file").write_text("old")
    with pytest.raises(ClusterError, match=r"^the script's files did not arrive whole: "):
        downloads.receive(io.BytesIO(whole.getvalue()[:size]), downloads.parse(["file"]))
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert tree(folder) == {"file": "old"}


def test_a_full_disk_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("new")
    whole = archive("file")
    (folder / "file").write_text("old")

    def is_full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tarfile.TarFile, "extract", is_full)
    problems = downloads.receive(whole, downloads.parse(["file"]))
    assert problems == ['its files can\'t be stored in "file": No space left on device']
    assert tree(folder) == {"file": "old"}


def test_members_that_nobody_asked_for_are_refused() -> None:
    with pytest.raises(ClusterError, match='unexpected member "0"'):
        downloads.receive(archive("/etc/hostname"), ())


def test_files_of_a_script_on_this_machine(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "model").mkdir()
    (folder / "model/a").write_text("A")
    assert downloads.copy_here(downloads.parse(["model", "model/a:copy"]), Outcome(3)) == Outcome(3)
    assert tree(folder) == {"copy": "A", "model/a": "A"}
    missing = '"none" was not copied: there is no such file or folder'
    assert downloads.copy_here(downloads.parse(["none"]), Outcome(3)) == Outcome(3)
    assert caplog.messages == [missing]
    with pytest.raises(ClusterError) as caught:
        downloads.copy_here(downloads.parse(["none"]), Outcome(0))
    assert str(caught.value) == f"the script succeeded, but {missing}"


@pytest.mark.parametrize("place", [".:results", "model:model/results"])
def test_a_folder_is_not_copied_into_itself(folder: Path, place: str) -> None:
    (folder / "model").mkdir()
    (folder / "model/a").write_text("A")
    path, _, local = place.partition(":")
    with pytest.raises(ClusterError) as caught:
        downloads.copy_here(downloads.parse([place, "model/a:../b"]), Outcome(0))
    assert str(caught.value) == f'the script succeeded, but "{path}" was not copied: it contains "{local}"'
    assert tree(folder.parent) == {"b": "A", "here/model/a": "A"}
