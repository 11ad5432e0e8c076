"""The files of the history."""

from __future__ import annotations

import dataclasses
import gzip
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_files import job_file

from tfk8s.backends.history import files, git, index, lines, places, writing
from tfk8s.backends.history.files import EntryFiles
from tfk8s.backends.own_folder import try_lock
from tfk8s.core.history.entry import Row
from tfk8s.core.history.facts import MAX_AGE, parse
from tfk8s.core.status import Phase, TaskStatus
from tfk8s.errors import InvalidInput, WaitTimeout
from tfk8s.jobfile.loader import loads
from tfk8s.testing import FakeBackend

JOB_FILE = loads("apiVersion: tfk8s.dev/v1\nname: mnist\njobs: {worker: {cpu: 2}}\n", "job.yaml")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "tfk8s" / ".history"


def begin(name: str = "mnist") -> EntryFiles:
    return writing.begin(name, writing.HERE, JOB_FILE)


def test_entries_are_numbered_by_name(home: Path) -> None:
    assert [begin().id, begin().id, begin("toy").id] == ["mnist@1", "mnist@2", "toy@1"]
    assert [row.id for row in index.rows()] == ["toy@1", "mnist@2", "mnist@1"]


@pytest.mark.parametrize("field", ["labels: {env: prod}", "jobs: {env: {node_selector: {env: prod}}}"])
def test_fields_named_env_are_no_variables(home: Path, field: str) -> None:
    text = f"apiVersion: tfk8s.dev/v1\nname: mnist\n{field}\n"
    job_file = loads(text if "jobs" in field else text + "jobs: {worker: 1}\n", "job.yaml")
    assert writing.begin("mnist", writing.HERE, job_file).read().row.state == "open"


def test_an_entry_of_ten_thousand_failed_tasks_is_read_back(home: Path) -> None:
    entry = begin()
    worker, reason = job_file(worker=10_000), "\N{SNOWMAN}" * 2000
    tasks = tuple(
        TaskStatus(task=task, phase=Phase.FAILED, address="", restarts=3, exit_code=1, reason=reason, is_program=True)
        for task in worker
    )
    status = FakeBackend(worker).statuses["mnist"]
    writing.add_status(entry, dataclasses.replace(status, tasks=tasks, success=(tasks[0].task,)))
    writing.end(entry, "done")
    found = entry.read()
    assert (len(found.tasks), found.row.exit_code, found.row.state) == (10_000, 1, "ended")


@pytest.mark.programs
def test_no_program_of_a_folder_runs(tmp_path: Path) -> None:
    def run(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)

    file, mark = tmp_path / "a.txt", tmp_path / "filter-ran"
    file.write_text("text")
    (tmp_path / ".gitattributes").write_text("*.txt filter=x")
    run("init", "-q")
    run("add", ".")
    run("commit", "-qm", "first")
    clean = git.Commit(tmp_path).read()[0]
    run("config", "filter.x.clean", f"touch {mark}; cat")
    run("config", "core.fsmonitor", f"touch {mark}")
    file.write_text("other")
    assert git.Commit(tmp_path).read()[0] == f"{clean}-dirty"
    assert len(clean) == 40
    assert not mark.exists()


@pytest.mark.programs
def test_git_starts_in_a_repository_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def start(command: list[str], **_: object) -> NoReturn:
        started.append(command)
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.delenv("GIT_DIR", raising=False)
    assert git.Commit(Path("/proc")).read() == ("", "")
    assert started == []
    (tmp_path / ".git").touch()  # as in a worktree
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/link").symlink_to("../sub")
    for folder in ("sub", "sub/link"):
        assert git.Commit(tmp_path / folder).read() == ("", "")
    assert len(started) == 6


def test_of_thousands_of_commands_only_the_facts_that_count_are_parsed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = begin()
    for number in range(50):
        token = writing.begin_command(entry, "submit", ["train.py", f"--note=end {number}"], home)
        writing.end_command(entry, token, 0, "", (), ("", ""))
    begin("other")
    parsed: list[bytes] = []
    monkeypatch.setattr(files, "parse", lambda line: parsed.append(line) or parse(line))
    assert places.newest("mnist", writing.HERE) == entry
    assert entry.is_open()
    assert len(parsed) == 2  # the start, twice
    entry.add("end", reason="was removed")
    assert not entry.is_open()
    assert [fact["kind"] for fact in entry.facts_of("start", "end")] == ["start", "end"]


@given(
    st.lists(st.text("abn", max_size=4).map(str.encode)), st.lists(st.text("abn", min_size=1, max_size=2), max_size=3)
)
def test_lines_are_found_by_texts(content: list[bytes], texts: list[str]) -> None:
    marks = [text.encode() for text in texts]
    expected = [line for line in content if any(mark in line for mark in marks)]
    assert lines.having(b"\n".join(content), marks) == expected


def test_only_the_user_may_read_the_files(home: Path) -> None:
    entry = begin()
    entry.write_log("worker-0", ["2026 0 text"])
    entry.write_events([{"time": 1.0}])
    writing.end(entry, "done")
    index.prune_daily()
    modes = {path: path.stat().st_mode & 0o777 for path in (home, *home.rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


def test_a_folder_that_others_may_write_is_refused(home: Path) -> None:
    begin()
    home.chmod(0o777)
    with pytest.raises(PermissionError, match="other users can write"):
        index.rows()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text(max_size=20), st.integers(0, 60)), min_size=1, max_size=8))
def test_what_was_written_before_a_kill_is_read_back_whole(home: Path, lines: list[tuple[str, int]]) -> None:
    """Each line may be torn at a random byte, as SIGKILL or a full disk tears it; the next writer goes on."""
    entry = begin()
    facts = entry.path / "facts.jsonl"
    expected = []
    for text, torn in lines:
        before = facts.stat().st_size
        entry.add("script", progress=text)
        size = facts.stat().st_size
        if torn and torn < size - before:
            os.truncate(facts, before + torn)
        is_whole = not torn or torn >= size - before - 1  # a line without its end is whole
        expected += [text] * is_whole
    assert [fact["progress"] for fact in entry.facts() if fact["kind"] == "script"] == expected
    writing.end(entry, "done")
    assert entry.read().row.state == "ended"
    assert index.rows()[0].state == "ended"


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"{}\n", b'{"kind": "end", "time": 1}\n', b"[" * 1000])
def test_a_damaged_entry_is_one_error_and_harms_no_other(home: Path, content: bytes) -> None:
    damaged, other = begin(), begin()
    (damaged.path / "facts.jsonl").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"^entry mnist@1 of the history can't be read: nothing tells its start$"):
        files.find("mnist", 1).read()
    assert other.read().row.number == 2
    assert [row.id for row in index.rows()] == ["mnist@2", "mnist@1"]


def test_damaged_lines_of_the_index_are_left_out(home: Path) -> None:
    begin()
    with (home / "index.jsonl").open("ab") as file:
        file.write(b'\xff\n{"name": 1}\n{"name": "mnist"')
    begin()
    assert [row.id for row in index.rows()] == ["mnist@2", "mnist@1"]


def test_the_end_of_a_long_log_is_kept(home: Path) -> None:
    entry = begin()
    entry.write_log("worker-0", (f"2026 0 {number:0100}" for number in range(30_000)))
    lines = [text for _, _, text in entry.log("worker-0")]
    assert int(lines[-1]) == 29_999
    assert files.MAX_LOG // 120 < len(lines) < files.MAX_LOG // 100


def test_a_line_that_is_too_long_for_a_log_is_cut(home: Path) -> None:
    entry = begin()
    entry.write_log("worker-0", ["2026 0 one", f"2026 0 {'x' * files.MAX_LOG}"])
    assert [len(text) for _, _, text in entry.log("worker-0")] == [files.MAX_LOG - 8]


@pytest.mark.parametrize("name", ["../../../../evil-0", "a/b-0", ".evil-0", "", "evil-0\n", "e" * 200])
def test_a_log_whose_name_could_be_a_path_is_left_out(home: Path, name: str) -> None:
    entry = begin()
    before = set(home.parent.parent.rglob("*"))
    entry.write_log(name, ["2026 0 text"])
    assert set(home.parent.parent.rglob("*")) == before


def test_a_packed_log_bomb_is_cut(home: Path) -> None:
    entry = begin()
    entry.write_log("worker-0", [])
    (entry.path / "logs" / "worker-0.gz").write_bytes(gzip.compress(b"2026 0 x\n" * 10_000_000))
    assert sum(len(text) + 8 for _, _, text in entry.log("worker-0")) <= files.MAX_LOG + 9


def test_live_logs_are_read_before_and_after_they_are_packed(home: Path) -> None:
    entry = begin()
    (entry.live / "logs").mkdir(parents=True)
    (entry.live / "logs" / "worker-0.log").write_text("2026 0 one\n2026 1 two\n")
    (entry.live / "events.log").write_text('{"time": 1.0, "task": "worker/0", "phase": "Ready", "reason": ""}\n')
    before = (list(entry.log("worker-0")), entry.events())
    assert before[0] == [("2026", 0, "one"), ("2026", 1, "two")]
    entry.pack()
    assert not entry.live.exists()
    assert (list(entry.log("worker-0")), entry.events()) == before


def test_pruning_keeps_open_entries_and_numbers(home: Path) -> None:
    ended, still_open, last = begin(), begin(), begin("toy")
    for entry in (ended, last):
        writing.end(entry, "done")
    removed = index.prune(most=0)
    assert {row.id for row in removed} == {"mnist@1", "toy@1"}
    assert [row.id for row in index.rows()] == [still_open.id]
    with pytest.raises(InvalidInput, match=r"^the history has no entry toy@1"):
        files.find("toy", 1)
    assert begin("toy").id == "toy@2"


def test_the_limits_are_kept_once_a_day(home: Path) -> None:
    old = begin()
    writing.end(old, "done", moment=time.time() - 2 * MAX_AGE)
    index.prune_daily()
    assert index.rows() == []
    writing.end(begin(), "done", moment=time.time() - 2 * MAX_AGE)
    index.prune_daily()
    assert len(index.rows()) == 1


def test_a_locked_index_is_a_warning_and_its_row_comes_later(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    begin("first")
    lock = os.open(home / "index.lock", os.O_RDWR)
    assert try_lock(lock)
    entry = begin()
    writing.end(entry, "done")
    with pytest.raises(WaitTimeout):
        index.prune()
    os.close(lock)
    assert "the history is not complete: waited 2 s for another command to change the history" in caplog.text
    assert entry.read().row.state == "ended"


def test_entries_are_removed_while_others_change_the_index(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing.end(begin(), "done")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: begin("other"))
    index.prune(most=0)
    assert [row.id for row in index.rows()] == ["other@1"]


def test_an_open_entry_is_removed_when_nobody_has_written_for_long(home: Path) -> None:
    silent, fresh = (writing.begin("mnist", "context a, namespace b", None) for _ in range(2))
    long_ago = time.time() - MAX_AGE - 60
    os.utime(silent.path / "facts.jsonl", (long_ago, long_ago))
    assert [(row.id, row.state) for row in index.prune(older=0)] == [(silent.id, "lost")]
    assert [(row.id, row.state) for row in index.rows()] == [(fresh.id, "open")]


def test_an_entry_that_a_kill_has_kept_from_the_index_comes_back(home: Path) -> None:
    ended, torn, still_open = begin(), begin("torn"), begin("toy")
    writing.end(ended, "done")
    (torn.path / "facts.jsonl").write_bytes(b'{"kind": "sta')
    (home / "index.jsonl").unlink()
    (home / "mnist" / "notes").mkdir()
    (home / "mnist" / "notes" / "facts.jsonl").touch()
    assert index.prune() == []
    assert {(row.id, row.state) for row in index.rows()} == {
        (ended.id, "ended"), (torn.id, "lost"), (still_open.id, "open")
    }  # fmt: skip
    assert {row.id for row in index.prune(most=0)} == {ended.id, torn.id}
    assert not torn.path.joinpath("facts.jsonl").exists()


def test_size_and_age_limit_entries() -> None:
    rows = [Row(name="mnist", number=number, location="", state="ended", started=0.0, ended=1.0 * number, size=10)
            for number in range(1, 6)]  # fmt: skip
    newest = sorted(rows, key=lambda row: -row.number)
    assert [row.number for row in index.divide(newest, oldest=0.0, most=9, size=25)[0]] == [5, 4]
    assert [row.number for row in index.divide(newest, oldest=3.0, most=9, size=99)[0]] == [5, 4, 3]
    assert [row.number for row in index.divide(newest, oldest=0.0, most=1, size=99)[0]] == [5]
    assert index.divide([dataclasses.replace(newest[0], state="open")], oldest=9.0, most=0, size=0)[1] == []


def test_a_full_disk_is_a_warning(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    home.parent.mkdir(parents=True)
    home.write_text("a file in the folder's place")
    with files.unless_unwritable():
        begin()
    assert "the history is not complete" in caplog.text


def test_the_advice_names_the_last_entry_of_a_place(home: Path) -> None:
    begin(), begin(), writing.begin("mnist", "context a, namespace b", None)
    assert places.advice("mnist", writing.HERE) == "; tfk8s status mnist@2 shows how the last one ended"
    assert places.advice("mnist", "context a, namespace b").startswith("; tfk8s status mnist@3 ")
    assert places.advice("toy", writing.HERE) == ""
    assert places.advice("../toy", writing.HERE) == ""


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    folder = os.open(path.parent, os.O_PATH)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def folder(path: Path) -> None:
    path.mkdir()


def endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


HOSTILE = pytest.mark.parametrize("put", [fifo, link, listening, folder, endless])


@HOSTILE
@pytest.mark.parametrize("name", ["facts.jsonl", "logs/worker-0.gz", "events.gz"])
def test_what_is_no_file_of_the_entry_is_one_error_that_names_it(
    home: Path, put: Callable[[Path], None], name: str
) -> None:
    entry = begin()
    entry.write_log("worker-0", ["2026 0 text"])
    entry.write_events([{"time": 1.0}])
    path = entry.path / name
    path.unlink()
    put(path)
    readers = {
        "facts.jsonl": entry.read,
        "events.gz": entry.events,
        "logs/worker-0.gz": lambda: [*entry.log("worker-0")],
    }
    with pytest.raises(
        (InvalidInput, OSError), match=rf"{path} (is a link|is no regular file|has more than .* bytes): rem"
    ):
        readers[name]()
    assert begin().id == "mnist@2"


@HOSTILE
@pytest.mark.parametrize("name", ["index.jsonl", "index.new", "index.lock"])
def test_what_is_no_file_of_the_index_is_one_error_that_names_it(
    home: Path, put: Callable[[Path], None], name: str
) -> None:
    writing.end(begin(), "done")
    (home / name).unlink(missing_ok=True)
    put(home / name)
    if put is endless and name != "index.jsonl":  # it is written, not read
        return
    with pytest.raises(OSError, match=rf"{home / name} (is a link|is no regular file|has more than .* bytes): rem"):
        index.prune(most=0)
    shutil.rmtree(home / name) if put is folder else (home / name).unlink()
    assert [row.id for row in index.prune(most=0)] == ["mnist@1"]


def test_no_entry_is_removed_through_a_link(home: Path, tmp_path: Path) -> None:
    writing.end(begin(), "done")
    (home / "mnist").rename(tmp_path / "elsewhere")
    (home / "mnist").symlink_to(tmp_path / "elsewhere")
    index.prune(most=0)
    assert (tmp_path / "elsewhere" / "1" / "facts.jsonl").exists()
    with pytest.raises(InvalidInput, match="the folder is a link"):
        files.find("mnist", 1).read()


@pytest.mark.parametrize(
    "content", [b"\x1f\x8b\x08\0\0\0\0\0\0\xff\xff\xff\xff", gzip.compress(b"text" * 99, mtime=0)[:-9], b"x"],
    ids=["wrong", "torn", "other"],
)  # fmt: skip
def test_a_damaged_log_is_an_error_that_names_it(home: Path, content: bytes) -> None:
    entry = begin()
    entry.write_log("worker-0", [])
    path = entry.logs()["worker-0"]
    path.write_bytes(content)
    with pytest.raises(OSError, match=f"{path} is damaged: remove it"):
        list(entry.log("worker-0"))
