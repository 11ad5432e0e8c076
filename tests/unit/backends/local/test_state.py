"""Folders of local clusters that are damaged, foreign, or open to other users."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_files import job_file

from tfk8s.backends.local import capacity, cluster_status, state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.backends.local.record import make_record
from tfk8s.core.naming import CLUSTER_ID_VARIABLE
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job, JobFile
from tfk8s.core.status import Phase
from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.task import ipc

NO_RECORD = ["{}", "null", "[]", "1", '{"pid": 1}', "NaN", "", "\udcff", '{"pid": "1", "started": []}', "[" * 100_000]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> state.Folder:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = state.folder("demo")
    jobs = (Job(name="chief", gpus=1), Job(name="worker", tasks=2, env={"A": "b"}, program=Program(("a.py",))))
    made.create(make_record(job_file("demo", *jobs), "1d", exposed=False))
    return made


def write(path: Path, text: str) -> None:
    path.write_bytes(os.fsencode(text))


@pytest.mark.parametrize("text", NO_RECORD)
def test_a_damaged_file_of_the_supervisor_is_no_supervisor(folder: state.Folder, text: str) -> None:
    write(folder.path / "supervisor.json", text)
    assert folder.supervisor() is None
    assert "has ended" in LocalBackend().observe("demo").reason
    LocalBackend().delete("demo")
    assert not folder.path.exists()


@pytest.mark.parametrize("name", ["supervisor.json", "suspended.json", "end.txt", "events.log"])
def test_a_pipe_in_a_files_place_keeps_no_command_waiting(folder: state.Folder, name: str) -> None:
    os.mkfifo(folder.path / name)
    assert "has ended" in LocalBackend().observe("demo").reason or name == "suspended.json"
    folder.write_end("after max_duration")
    folder.add_event("chief/0", Phase.READY, "")
    LocalBackend().delete("demo")
    assert not folder.path.exists()


def test_a_pipe_in_the_records_place_is_named(folder: state.Folder) -> None:
    (folder.path / "cluster.json").unlink()
    os.mkfifo(folder.path / "cluster.json")
    with pytest.raises(ClusterError, match=r"cluster\.json can't be read: .* is no regular file: remove it"):
        folder.read()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_script_that_replaces_its_file_of_progress_has_none(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """The supervisor reads the file, and would wait for the script forever."""
    make(tmp_path / "progress")
    assert cluster_status.read_progress(tmp_path / "progress") is None


@pytest.mark.parametrize("text", NO_RECORD)
def test_one_damaged_record_is_named_and_leaves_the_others(folder: state.Folder, text: str) -> None:
    other = state.folder("other")
    other.create(make_record(job_file("other", worker=1), "1d", exposed=False))
    write(folder.path / "cluster.json", text)
    damaged, whole = LocalBackend().clusters()
    assert (damaged.name, damaged.phase, whole.name) == ("demo", Phase.FAILED, "other")
    assert "cluster.json is damaged, or from another version of tfk8s" in damaged.reason
    LocalBackend().delete("demo")
    assert [status.name for status in LocalBackend().clusters()] == ["other"]


def changed(plain: Any) -> Iterator[Any]:
    """Yield copies of plain data, each with another value in one place, or without the place."""

    def places(part: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        yield path
        items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for key, value in items:
            yield from places(value, (*path, key))

    values = (None, [], {}, "x", -1, 10**30, [1], {"a": 1})
    for number, path in enumerate(places(plain, ())):
        for value in values[number % 8 :: 8]:
            made: Any = {"": copy.deepcopy(plain)}
            part = made
            for key in ("", *path)[:-1]:
                part = part[key]
            part[("", *path)[-1]] = value
            yield made[""]


def test_a_record_with_any_other_value_is_damaged_or_has_a_status(folder: state.Folder) -> None:
    plain = json.loads((folder.path / "cluster.json").read_text())
    tried = 0
    for record in changed(plain):
        (folder.path / "cluster.json").write_text(json.dumps(record))
        with contextlib.suppress(ClusterError):
            LocalBackend().observe("demo")
        assert [status.name for status in LocalBackend().clusters()] == ["demo"]
        tried += 1
    assert tried > 100
    LocalBackend().delete("demo")


def test_the_record_of_another_cluster_is_damaged(folder: state.Folder) -> None:
    folder.path.rename(folder.path.parent / "copy")
    with pytest.raises(ClusterError, match="is damaged"):
        LocalBackend().observe("copy")
    LocalBackend().delete("copy")


# ---- others who may write ------------------------------------------------------------------------------------------


def by_mode(path: Path) -> None:
    path.chmod(0o777)


def by_link(path: Path) -> None:
    moved = path.rename(path.parent / "moved")
    path.symlink_to(moved)


@pytest.mark.parametrize(
    ("change", "words"), [(by_mode, "other users can write the folder: chmod go-w "), (by_link, "the folder is a link")]
)
def test_a_folder_that_others_may_write_is_refused(
    folder: state.Folder, change: Callable[[Path], None], words: str
) -> None:
    change(folder.path)
    with pytest.raises(ClusterError) as caught:
        LocalBackend().observe("demo")
    assert words in str(caught.value)
    assert words in next(status for status in LocalBackend().clusters() if status.name == "demo").reason
    LocalBackend().delete("demo")
    assert not folder.exists()
    assert not folder.path.is_symlink()


@pytest.mark.parametrize("change", [by_mode, by_link])
def test_a_state_folder_that_others_may_write_is_refused(folder: state.Folder, change: Callable[[Path], None]) -> None:
    change(folder.path.parent)
    with pytest.raises(ClusterError, match="the folder"):
        state.folders()


def test_another_users_folder_is_refused(folder: state.Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ClusterError, match="the folder belongs to another user"):
        state.folders()


def test_the_socket_of_another_user_gets_no_request(folder: state.Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    with ipc.listen(folder.control) as listener:
        ipc.connect(folder.control, 1).close()
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
        with pytest.raises(PermissionError, match="another user has the socket"):
            ipc.connect(folder.control, 1)
        listener.accept()[0].close()


def test_all_files_are_for_this_user_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    before = os.umask(0)
    try:
        folder = state.folder("open")
        folder.create(make_record(job_file("open", worker=1), "1d", exposed=False))
        folder.write_supervisor(os.getpid())
        ipc.listen(folder.control).close()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder.path, *folder.path.iterdir())}
    assert {name for name, mode in modes.items() if mode & 0o077} == set()
    assert len(modes) == 6


# ---- the end of what is damaged ------------------------------------------------------------------------------------


def test_down_ends_the_supervisor_of_a_folder_whose_files_are_all_damaged(
    folder: state.Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cluster.json", "supervisor.json"):
        (folder.path / name).write_text("damaged")
    asked: list[ipc.Message] = []

    def supervise() -> None:
        for _ in range(2):  # one connection tells the process
            connection = listener.accept()[0]
            with connection:
                if received := ipc.receive(connection):
                    asked.append(received[0])
                    ipc.send(connection, {})

    monkeypatch.setattr(state.processes, "variable", lambda pid, name: {CLUSTER_ID_VARIABLE: "no such id"}[name])
    with ipc.listen(folder.control) as listener:
        thread = threading.Thread(target=supervise)
        thread.start()
        LocalBackend().delete("demo")
        thread.join()
    assert [message["do"] for message in asked] == ["stop"]
    assert not folder.path.exists()


def test_what_is_no_supervisor_gets_no_signal(folder: state.Folder) -> None:
    """Some other program of this user may listen at a foreign socket."""
    with ipc.listen(folder.control):
        assert folder.listener() is None


# ---- limits --------------------------------------------------------------------------------------------------------


def test_a_disk_without_inodes_is_named(folder: state.Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimpleNamespace(f_bavail=1 << 30, f_frsize=1, f_files=100, f_favail=9)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    with pytest.raises(ClusterError, match="the disk has room for 9 more files"):
        folder.require_space()
    disk.f_files = 0  # as of btrfs
    folder.require_space()


@pytest.mark.parametrize(("limit", "fits"), [(16, False), (35, False), (36, True), (resource.RLIM_INFINITY, True)])
def test_a_low_limit_of_open_files_is_named(monkeypatch: pytest.MonkeyPatch, limit: int, fits: bool) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    pair: JobFile = job_file("demo", worker=2)
    if fits:
        capacity.check_descriptors(pair)
        return
    with pytest.raises(InvalidInput) as caught:
        capacity.check_descriptors(pair)
    assert str(caught.value) == f'cluster "demo" needs 36 open files, and the limit of this shell is {limit}'


SPAWN = """
import os, resource
from tfk8s.sessions.forks import processes
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
pid = processes.spawn(["sh", "-c", "exit 7"], [0, 1, 2], dict(os.environ))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.programs
def test_processes_start_with_few_descriptors() -> None:
    done = subprocess.run([sys.executable, "-c", SPAWN], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (7, "")
