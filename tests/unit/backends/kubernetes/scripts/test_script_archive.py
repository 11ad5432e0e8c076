"""The archive of a script's folder."""

from __future__ import annotations

import io
import os
import tarfile
import time
from pathlib import Path

import pytest

from tfk8s.backends.kubernetes.scripts import script_archive, sent_folder
from tfk8s.errors import InvalidInput, quoted
from tfk8s.sessions.pod import entrypoint


def test_archives_are_reproducible_and_without_caches(tmp_path: Path) -> None:
    for name in ("script.py", "package/a.py", "package/__pycache__/a.pyc", ".git/config", "venv/x", "data.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    packed = script_archive.pack(tmp_path / "script.py")
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        assert files.getnames() == ["data.bin", "script.py", "package/a.py"]
    os.utime(tmp_path / "script.py", (1, 1))
    assert script_archive.pack(tmp_path / "script.py") == packed


def test_requirements_are_archived(tmp_path: Path) -> None:
    (tmp_path / "app/conf").mkdir(parents=True)
    for name in ("app/a.py", "app/conf/in.txt", "out.txt"):
        (tmp_path / name).touch()
    script = tmp_path / "app/a.py"
    for path, archived_path, names in (
        ("app/conf/in.txt", "conf/in.txt", ["a.py", "conf/in.txt"]),
        ("out.txt", "tfk8s-requirements.txt", ["a.py", "conf/in.txt", "tfk8s-requirements.txt"]),
    ):
        assert script_archive.requirements_in_folder(script, tmp_path / path) == archived_path
        with tarfile.open(fileobj=io.BytesIO(script_archive.pack(script, tmp_path / path))) as files:
            assert files.getnames() == names


def test_a_large_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_folder, "MAX_BYTES", 10_000_000)
    (tmp_path / "a.py").touch()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10_000_001)
    with pytest.raises(InvalidInput) as caught:
        script_archive.pack(tmp_path / "a.py")
    assert str(caught.value) == f'the folder "{tmp_path}" has more than 10 MB, and is copied with its script'
    assert caught.value.help is not None
    assert caught.value.help.startswith("name in .tfk8signore what the script does not need")


def test_a_pod_unpacks_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from/a.py").write_text("a")
    (tmp_path / "archive").write_bytes(script_archive.pack(tmp_path / "from/a.py"))
    monkeypatch.chdir(tmp_path)
    entrypoint.extract(tmp_path / "archive")
    assert (tmp_path / "a.py").read_text() == "a"


def archived(folder: Path, ignore: str) -> list[str]:
    (folder / ".tfk8signore").write_text(ignore)
    with tarfile.open(fileobj=io.BytesIO(script_archive.pack(folder / "a.py"))) as files:
        return files.getnames()


def test_the_ignore_file_has_the_rules_of_gitignore(tmp_path: Path) -> None:
    for name in ("a.py", "data/x", "deep/data/y", "deep/z.h5", "keep.h5", "venv/lib", ".git/config", "only/kept/b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert archived(tmp_path, "# large\n/data\n*.h5\n!keep.h5\nonly/*\n!only/kept/\n!venv/\n") == [
        ".tfk8signore", "a.py", "keep.h5", "deep/data/y", "only/kept/b", "venv/lib",
    ]  # fmt: skip
    assert script_archive.requirements_in_folder(tmp_path / "a.py", tmp_path / "data/x") == "tfk8s-requirements.txt"


@pytest.mark.parametrize(
    ("ignore", "error"),
    [
        ("data/\n!\n", '{}/.tfk8signore:2: "!" is not a pattern of gitignore'),
        ("[z-a]", '{}/.tfk8signore:1: "[z-a]" is not a pattern of gitignore'),
        ("x\n" + "*a" * 8 + "b", '{}/.tfk8signore:2: "*a*a*a*a*a*a*a*ab" has more than 3 "*"'),
        ("*a*a*a/*a*a*b", '{}/.tfk8signore:1: "*a*a*a/*a*a*b" has more than 3 "*"'),
        ("!**/a/**/b/**/c/**/d*", '{}/.tfk8signore:1: "!**/a/**/b/**/c/**/d*" has more than 3 "*"'),
        ("a" * 70_000, "{}/.tfk8signore has more than 64 KiB"),
        ("*.py", '{}/.tfk8signore leaves out the script "a.py"'),
    ],
)
def test_a_bad_ignore_file_is_refused(tmp_path: Path, ignore: str, error: str) -> None:
    (tmp_path / "a.py").touch()
    with pytest.raises(InvalidInput) as caught:
        archived(tmp_path, ignore)
    assert str(caught.value) == error.format(tmp_path)


def test_an_unreadable_ignore_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".tfk8signore").write_bytes(b"\xff")
    with pytest.raises(InvalidInput) as caught:
        sent_folder.ignored(tmp_path)
    assert (str(caught.value), caught.value.help) == (
        f"{tmp_path}/.tfk8signore is not UTF-8 text", "save the file in UTF-8"
    )  # fmt: skip
    (tmp_path / ".tfk8signore").unlink()
    (tmp_path / ".tfk8signore").mkdir()
    with pytest.raises(InvalidInput) as caught:
        sent_folder.ignored(tmp_path)
    assert str(caught.value) == f"{tmp_path}/.tfk8signore is no regular file"


@pytest.mark.parametrize("device", ["/dev/zero", "pipe"])
def test_an_ignore_file_that_never_ends_is_refused(tmp_path: Path, device: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".tfk8signore").symlink_to(device)
    with pytest.raises(InvalidInput, match="is no regular file"):
        sent_folder.ignored(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a*a*b", "/".join(["a" * 255] * 15)),
        ("**/x/**/x/**/x/**/b/**", "/".join("x" * 99)),
        ("!**/x/*a*b/", "/".join(["x", "a" * 255] * 7)),
    ],
)
def test_patterns_that_pass_match_at_once(tmp_path: Path, pattern: str, path: str) -> None:
    (tmp_path / ".tfk8signore").write_text(pattern)
    start = time.process_time()
    assert not sent_folder.ignored(tmp_path).match_file(path)
    assert time.process_time() - start < 2


def test_a_deep_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    tmp_path.joinpath(*"x" * 99).mkdir(parents=True)
    assert script_archive.pack(tmp_path / "a.py")
    tmp_path.joinpath(*"x" * 100).mkdir(parents=True)
    with pytest.raises(InvalidInput, match="is deeper than 99 levels"):
        script_archive.pack(tmp_path / "a.py")


@pytest.mark.parametrize(("link", "target"), [("requirements.txt", "../secret"), ("conf", "..")])
def test_requirements_that_are_a_link_send_no_other_file(tmp_path: Path, link: str, target: str) -> None:
    (tmp_path / "secret").write_text("key")
    folder = tmp_path / "example"
    folder.mkdir()
    (folder / "a.py").touch()
    (folder / link).symlink_to(target)
    (folder / ".tfk8signore").write_text(f"/{link}\n")  # so the link is not sent by itself
    requirements = folder / link if link != "conf" else folder / "conf/secret"
    with pytest.raises(InvalidInput, match="is a link that leads out of its folder, to"):
        script_archive.pack(folder / "a.py", requirements)
    assert script_archive.pack(folder / "a.py", tmp_path / "secret")


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("secret")
    (tmp_path / "example").mkdir()
    (tmp_path / "example/a.py").touch()
    (tmp_path / "example/same.py").symlink_to("a.py")
    (tmp_path / "example/folder").symlink_to("..")
    assert archived(tmp_path / "example", "") == [".tfk8signore", "a.py", "same.py"]
    (tmp_path / "example/weights.bin").symlink_to("../id")
    for ignore in ("", "!weights.bin\n", "!/weights.bin\n!*\n"):
        with pytest.raises(InvalidInput) as caught:
            archived(tmp_path / "example", ignore)
        assert str(caught.value) == (
            f'the link "weights.bin" leads out of the folder "{tmp_path}/example", to {quoted(str(tmp_path / "id"))}'
        )
    assert archived(tmp_path / "example", "weights.bin\n") == [".tfk8signore", "a.py", "same.py"]


def test_credentials_stay_here(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = ("a.py", ".env", ".kube/config", "app/.env.local", "app/.ssh/id", "app/b.py")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    caplog.set_level("INFO", "tfk8s")
    assert archived(tmp_path, "") == [".tfk8signore", "a.py", "app/b.py"]
    left_out = '".env", ".kube", "app/.env.local", "app/.ssh"'
    assert caplog.messages == [
        f"credentials are not sent: {left_out}; a line !NAME in .tfk8signore sends one", "sends 3 files, 0.0 kB",
    ]  # fmt: skip
    assert archived(tmp_path, "!.env\n!.ssh/\n") == [".env", ".tfk8signore", "a.py", "app/b.py", "app/.ssh/id"]
    (tmp_path / "link").symlink_to(".kube/config")
    with pytest.raises(InvalidInput, match=r'^the link "link" leads to "\.kube/config", which is not sent'):
        archived(tmp_path, "")


def test_the_home_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "me").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    for folder in (tmp_path / "me", tmp_path):
        (folder / "a.py").touch()
        with pytest.raises(InvalidInput, match="is not sent: it is your home folder"):
            script_archive.pack(folder / "a.py")
    (tmp_path / "me/project").mkdir()
    (tmp_path / "me/project/a.py").touch()
    assert script_archive.pack(tmp_path / "me/project/a.py")


@pytest.mark.parametrize("target", ["../secret.py", "../other/secret.py"])
def test_a_script_that_is_a_link_sends_no_other_folder(tmp_path: Path, target: str) -> None:
    for name in ("secret.py", "other/secret.py", "repository/data"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    script = tmp_path / "repository/train.py"
    script.symlink_to(target)
    for work in (script_archive.pack, script_archive.require_copy):
        with pytest.raises(InvalidInput, match="is a link that leads out of its folder, to") as caught:
            work(script)
        assert quoted(str(script.resolve())) in str(caught.value)


def test_credentials_that_a_folder_asks_for_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.py", ".env", "deep/.ssh/id", "deep/.ssh/more/id", ".netrc"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    archived(tmp_path, "!.env\n!.ssh/\n")
    assert caplog.messages[:2] == [
        'credentials are not sent: ".netrc"; a line !NAME in .tfk8signore sends one',
        'credentials are sent: ".env", "deep/.ssh", as a line !NAME in .tfk8signore says',
    ]
