"""The folders of volumes of local clusters: checks, mounts, and refusals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from job_files import job_file

from tfk8s.backends.local import isolation, mounts, network_namespace, starting
from tfk8s.backends.local.record import make_record
from tfk8s.core.spec import Job
from tfk8s.core.storage.volumes import Volume
from tfk8s.errors import InvalidInput


def test_missing_folders_are_made_and_volumes_without_one_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = Volume(path="/ckpt", claim="ckpt", folder=str(tmp_path / "a" / "ckpt"))
    lacking = Volume(path="/data", claim="data"), Volume(path="/keys", secret="keys")
    demo = job_file("demo", Job(name="worker", volumes=lacking), volumes=(own,))
    starting.check_volumes(demo)
    starting.make_folders(demo)
    assert (tmp_path / "a" / "ckpt").is_dir()
    assert [record.message for record in caplog.records] == [
        "volumes without a folder are not there on this machine: /data (claim), /keys (secret)"
    ]
    starting.make_folders(demo)


def test_folders_that_can_not_be_volumes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def refusal(*chosen: Volume, call: Callable[..., None] = starting.check_volumes) -> str:
        with pytest.raises(InvalidInput) as caught:
            call(job_file("demo", *(Job(name=f"j{number}", volumes=(one,)) for number, one in enumerate(chosen))))
        return str(caught.value)

    missing = str(tmp_path / "none")
    assert refusal(Volume(path="/d", folder="/a"), Volume(path="/d", folder="/b")) == (
        'two jobs have other folders at "/d": /a and /b'
    )
    assert refusal(Volume(path="/d", folder=missing, read_only=True)) == (
        f"there is no folder {missing}, which the volume at /d only reads"
    )
    file = str(tmp_path / "file")
    assert refusal(Volume(path="/d", folder=file)) == f"{file}, the folder of the volume at /d, is a file"
    below = f"{file}/below"
    assert refusal(Volume(path="/d", folder=below), call=starting.make_folders) == (
        f"the folder {below} of the volume at /d can't be made: Not a directory"
    )


def test_folders_that_are_there_need_no_mount(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    there = Volume(path=str(folder), folder=str(folder)), Volume(path=str(tmp_path / "link"), folder=str(folder))
    unwanted = Volume(path="/ckpt", folder=str(folder), local_mount=False)
    wanted = Volume(path="/ckpt/b", folder=str(folder)), Volume(path="/ckpt", folder=str(folder))
    assert mounts.needed([*there, unwanted, Volume(path="/data", claim="a")]) == []
    assert mounts.needed(wanted) == [wanted[1], wanted[0]]


def refuse(*_: object, **__: object) -> NoReturn:
    raise PermissionError(1, "unshare: Operation not permitted")


def test_a_path_that_can_not_be_mounted_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(network_namespace, "call_where_mounts_are_allowed", refuse)
    own = Volume(path="/ckpt", folder=str(tmp_path))
    with pytest.raises(mounts.MountError) as caught:
        mounts.enter([own])
    assert str(caught.value) == f"can't mount folder {tmp_path} at /ckpt: unshare: Operation not permitted"
    assert caught.value.help == (
        f"make the path a link, as root: ln -s {tmp_path} /ckpt; or let the code find the folder by "
        'tfk8s.path("/ckpt"), and set local_mount: false'
    )
    mounts.enter([replace(own, local_mount=False)])


def test_a_failed_mount_is_no_lack_of_a_network_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> NoReturn:
        raise mounts.MountError(Volume(path="/ckpt", folder="/a"), "Permission denied")

    monkeypatch.setattr(network_namespace, "enter", lambda prepare: prepare())
    with pytest.raises(mounts.MountError):
        isolation.enter(insists=False, prepare=fail)
    assert not isolation.enter(insists=False).is_shared


def test_tasks_and_scripts_learn_the_folders() -> None:
    own = Volume(path="/ckpt/", claim="ckpt", folder="/here/ckpt")
    record = make_record(job_file("demo", worker=1, volumes=(own, Volume(path="/d", claim="d"))), "1d", exposed=False)
    assert record.variables == {"TFK8S_FOLDERS": '{"/ckpt": "/here/ckpt"}'}
    assert record.tasks[0].environment["TFK8S_FOLDERS"] == record.variables["TFK8S_FOLDERS"]


# ---- real mounts ---------------------------------------------------------------------------------------------------

_BECOME_USER = """
import ctypes, json, os, sys
# Before the user changes: other users may not read the folder of this Python, such as root's home.
from tfk8s.backends.local import mounts
from tfk8s.core.storage.volumes import Volume
libc = ctypes.CDLL(None)
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(1000)
    os.setuid(1000)
    libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self is the user's
"""
_MOUNT = """
mounts.enter([Volume(**volume) for volume in json.loads(sys.argv[1])])
def refused(path):
    try:
        open(path, "w")
    except OSError as error:
        return error.strerror
print(json.dumps({
    "cwd": os.getcwd(), "read": open("/tfk8s-test/data/f").read(), "refused": refused("/tfk8s-test/data/g"),
    "root": refused("/tfk8s-file"), "entries": sorted(os.listdir("/")), "proc": os.path.exists("/proc/self/status"),
}))
open("/tfk8s-test/new", "w").write("written")
"""


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that any user may write to: pytest's own are for one user."""
    folder = Path(tempfile.mkdtemp(prefix="tfk8s-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def run_as_user(script: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(mounts.__file__).parents[3])}
    command = [sys.executable, "-c", _BECOME_USER + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


@pytest.mark.programs
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has mount namespaces")
def test_a_user_sees_folders_at_paths_that_the_root_folder_lacks(shared_folder: Path) -> None:
    (shared_folder / "data").mkdir()
    (shared_folder / "data" / "f").write_text("data")
    (shared_folder / "ckpt").mkdir()
    (shared_folder / "ckpt").chmod(0o777)
    chosen = [
        {"path": "/tfk8s-test/data", "folder": str(shared_folder / "data"), "read_only": True},
        {"path": "/tfk8s-test", "folder": str(shared_folder / "ckpt")},
    ]
    done = run_as_user(_MOUNT, json.dumps(chosen), folder=shared_folder)
    if run_as_user("sys.exit(libc.unshare(0x10020000))", folder=shared_folder).returncode:  # CLONE_NEWUSER, CLONE_NEWNS
        assert "MountError" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["cwd"] == str(shared_folder)
    assert (seen["read"], seen["refused"], seen["proc"]) == ("data", "Read-only file system", True)
    assert seen["root"] == "Permission denied"
    assert set(seen["entries"]) == {*(path.name for path in Path("/").iterdir()), "tfk8s-test"}
    assert (shared_folder / "ckpt" / "new").read_text() == "written"
    assert not Path("/tfk8s-test").exists()
