"""Files of a script: what users may ask for, and how an archive gets to its place."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.backends import downloads
from tfk8s.core.script import Outcome
from tfk8s.errors import ClusterError, InvalidInput, Tfk8sError, quoted
from tfk8s.task.files import packed, received
from tfk8s.task.programs import folder_writer


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


def test_a_system_without_opened_folders_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "supports_dir_fd", set())
    monkeypatch.setattr("sys.platform", "win32")
    assert downloads.parse([]) == ()
    with pytest.raises(InvalidInput, match=r"^files of scripts need Linux, not Windows"):
        downloads.parse(["model"])


def archive(*paths: str) -> io.BytesIO:
    sink = io.BytesIO()
    packed.pack(paths, sink)
    sink.seek(0)
    return sink


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file()
    }  # fmt: skip


def test_files_and_folders_are_copied_over_what_is_there(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pod = tmp_path / "pod"
    (pod / "sub").mkdir(parents=True)
    (pod / "empty").mkdir()
    for name in ("a", "sub/b"):
        (pod / name).write_text(name)
    (pod / "a").chmod(0o4777)
    for name, target in (("link", "sub/b"), ("links", "sub"), ("bad", "/etc/passwd"), ("out", "../here")):
        (pod / name).symlink_to(target)
    (folder / "out").mkdir()
    for name in ("a", "old"):
        (folder / "out" / name).write_text("old")
    assert received.receive(archive(str(pod)), downloads.parse([f"{pod}:out"])) == []
    links = [quoted(f"{pod}/{name}") for name in ("bad", "link", "links", "out")]
    assert caplog.messages == [f"{link} was not copied: a link" for link in links]
    assert tree(folder / "out") == {"a": "a", "old": "old", "sub/b": "sub/b"}
    assert (folder / "out/empty").is_dir()
    assert [(folder / "out" / name).stat().st_mode & 0o6111 for name in ("a", "sub/b")] == [0o111, 0]


def test_a_link_in_the_place_is_not_followed(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "pod/sub").mkdir(parents=True)
    (tmp_path / "pod/sub/x").write_text("new")
    (tmp_path / "pod/y").write_text("new")
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/x").write_text("old")
    (folder / "real").mkdir()
    (folder / "out").symlink_to("real")  # the user's own choice
    (folder / "real/sub").symlink_to(tmp_path / "victim")
    (folder / "real/y").symlink_to(tmp_path / "victim/x")
    problems = received.receive(archive(str(tmp_path / "pod")), downloads.parse([f"{tmp_path}/pod:out"]))
    assert problems == [f'"{tmp_path}/pod/sub" was not copied: "out/sub" is a link']
    assert tree(tmp_path / "victim") == {"x": "old"}
    assert tree(folder / "real") == {"sub": str(tmp_path / "victim"), "y": "new"}


def entries(*values: object, content: bytes = b"") -> io.BytesIO:
    return io.BytesIO(b"".join(json.dumps(value).encode() + b"\n" for value in values) + content)


DAMAGED = [
    (["file", "0/../../x", 0, False], "a path leads out of the folder"),
    (["file", "0//etc/x", 0, False], "a path leads out of the folder"),
    (["folder", "0/" + "/".join("d" * 101)], "a path has more than 100 folders"),
    (["file", "0/x", 1 << 30, False], "unexpected end"),
    (["file", "0/x", -1, False], "the archive is damaged"),
    (["file", "0/x", "1", False], "the archive is damaged"),
    (["file", "7/x", 0, False], 'unexpected file "7/x"'),
    (["device", "0/x", 0], '"device" is no kind of file'),
    (["end", [["x"]]], "the archive is damaged"),
    (["end", {}], "the archive is damaged"),
    (["end"], "the archive is damaged"),
    ([], "the archive is damaged"),
    ({"a": 1}, "the archive is damaged"),
]


def test_each_lie_of_an_archive_is_one_error(folder: Path) -> None:
    for entry, reason in DAMAGED:
        with pytest.raises(ClusterError) as caught:
            received.receive(entries(entry), downloads.parse(["file"]))
        assert str(caught.value) == f"the files did not arrive whole: {reason}", entry
        assert list(folder.iterdir()) == [], entry


def test_sizes_and_names_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFK8S_GET_LIMIT", "1Ki")
    with pytest.raises(ClusterError, match=r"^the files have more than 1Ki\b"):
        received.receive(entries(["file", "0", 1 << 60, False]), downloads.parse(["file"]))
    monkeypatch.setenv("TFK8S_GET_LIMIT", "big")
    with pytest.raises(InvalidInput, match=r'^TFK8S_GET_LIMIT="big" is no quantity\b'):
        downloads.parse(["file"])
    monkeypatch.delenv("TFK8S_GET_LIMIT")
    with pytest.raises(ClusterError, match="a name is too long"):
        received.receive(io.BytesIO(b"[" * (1 << 20)), downloads.parse(["file"]))
    with pytest.raises(ClusterError, match="the archive is damaged"):
        received.receive(io.BytesIO(b"[" * 100_000 + b"\n"), downloads.parse(["file"]))
    many = received.receive(entries(["end", ["x"] * 50]), downloads.parse(["file"]))
    assert many[-1] == "30 more files were not copied"


def test_limits_of_files_and_problems_can_be_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TFK8S_GET_FILES", "3")
    monkeypatch.setenv("TFK8S_GET_PROBLEMS", "2")
    links = [["link", "0/x"]] * 3
    assert received.receive(entries(*links, ["end", ["y"] * 3]), downloads.parse(["file"])) == [
        "y", "y", "1 more files were not copied",
    ]  # fmt: skip
    assert caplog.messages[-1] == "1 more links were not copied"
    with pytest.raises(ClusterError, match=r"the files have more than 3 files\b") as caught:
        received.receive(entries(*links, ["link", "0/x"], ["end", []]), downloads.parse(["file"]))
    assert caught.value.help == "TFK8S_GET_FILES sets another limit; or copy fewer files"


def test_many_links_are_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    link = b'["link", "0/x"]\n'
    assert received.receive(io.BytesIO(link * 1000 + b'["end", []]\n'), downloads.parse(["model"])) == []
    assert len(caplog.messages) == 21
    assert caplog.messages[-1] == "980 more links were not copied"


def test_many_deep_paths_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFK8S_GET_FILES", "50")
    deep = ["folder", "0/" + "/".join("a" * 40)]
    with pytest.raises(ClusterError, match="the files have more than 10 × 50 folders in their paths"):
        received.receive(entries(*[deep] * 30), downloads.parse(["model"]))


def test_entries_that_make_many_folders_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFK8S_GET_FILES", "50")
    deep = [["folder", f"0/{number}/" + "/".join("a" * 40)] for number in range(3)]
    with pytest.raises(ClusterError, match="the files have more than 50 folders"):
        received.receive(entries(*deep), downloads.parse(["model"]))


def test_an_archive_that_drips_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(0, 10_000, 30))
    monkeypatch.setattr(received.time, "monotonic", lambda: float(next(times)))
    with pytest.raises(ClusterError, match="came slower than 1000 bytes a second"):
        received.receive(entries(*[["folder", "0"]] * 100), downloads.parse(["file"]))


_NAMES = st.lists(st.sampled_from(["..", ".", "", "p", "x", "sub", "\0", "n" * 300]), max_size=4).map("/".join)
_KINDS = st.sampled_from(["folder", "file", "link", "end", "device"])
_ENTRIES = st.lists(st.tuples(_KINDS, _NAMES.map("0/{}".format), st.integers(-1, 9), st.booleans()), max_size=9)


@given(_ENTRIES, st.binary(max_size=40))
def test_no_archive_leaves_a_file_outside(
    tmp_path_factory: pytest.TempPathFactory, given_entries: list[tuple[str, str, int, bool]], noise: bytes
) -> None:
    top = tmp_path_factory.mktemp("hostile")
    (top / "victim").mkdir()
    (top / "place").mkdir()
    (top / "place/p").symlink_to("../victim")
    blocks = []
    for kind, name, size, is_executable in given_entries:
        row = [kind, name, size, is_executable] if kind in ("file", "device") else [kind, name]
        blocks.append(json.dumps(row).encode() + b"\n" + b"x" * (size if kind == "file" else 0))
    with contextlib.suppress(Tfk8sError):
        whole = b"".join(blocks) + noise + b'["end", []]\n'
        received.receive(io.BytesIO(whole), downloads.parse([f"model:{top}/place"]))
    assert sorted(path.name for path in top.iterdir()) == ["place", "victim"]
    assert list((top / "victim").iterdir()) == []


def test_a_file_goes_into_a_folder_that_exists(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "file").write_text("text")
    path = str(tmp_path / "file")
    wanted = downloads.parse([f"{path}:.", f"{path}:new/name"])
    assert received.receive(archive(path, path), wanted) == []
    assert tree(folder) == {"file": "text", "new/name": "text"}


@pytest.mark.parametrize("size", [0, 600, 5000])
def test_an_incomplete_archive_changes_nothing(folder: Path, size: int) -> None:
    (folder / "file").write_text("x" * 6000)
    whole = archive("file")
    (folder / "file").write_text("old")
    with pytest.raises(ClusterError, match=r"^the files did not arrive whole: "):
        received.receive(io.BytesIO(whole.getvalue()[:size]), downloads.parse(["file"]))
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert tree(folder) == {"file": "old"}


def test_a_full_disk_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("new")
    whole = archive("file")
    (folder / "file").write_text("old")

    def is_full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder_writer.FolderWriter, "file", is_full)
    problems = received.receive(whole, downloads.parse(["file"]))
    assert problems == ['its files can\'t be stored in "file": No space left on device']
    assert tree(folder) == {"file": "old"}


def test_members_that_nobody_asked_for_are_refused() -> None:
    with pytest.raises(ClusterError, match='unexpected file "0"'):
        received.receive(archive("/etc/hostname"), ())


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
