"""The files of a record in a shared history, whose writers are killed at any moment."""

from __future__ import annotations

import gzip
import os
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core.history.shared import FOLDER, record_name
from tfk8s.task.lifetime.record.record_files import MAX_LOG, RecordFiles

UID = "936a4aea-3460-487c-acd5-2d70b56c3030"
NAME = record_name("demo", UID)


def record(volume: Path, uid: str = UID) -> RecordFiles:
    made = RecordFiles(volume, "demo", uid)
    made.make()
    return made


def fact(number: int) -> dict[str, Any]:
    return {"kind": "verb", "time": float(number), "verb": "ü" * (number % 7)}


def log_of(volume: Path) -> bytes:
    return gzip.decompress((volume / FOLDER / NAME / "logs" / "worker-1.gz").read_bytes())


@given(st.lists(st.integers(0, 30), max_size=8))
def test_what_kills_have_torn_costs_no_other_fact(torn: list[int]) -> None:
    """A number is the bytes that a kill leaves of the fact that was being written."""
    with tempfile.TemporaryDirectory() as folder:
        volume, whole = Path(folder), []
        path = volume / FOLDER / NAME / "facts.jsonl"
        for number, left in enumerate(torn):
            files = record(volume)
            files.add(fact(number))
            whole.append(fact(number))
            with path.open("ab") as file:
                file.write(b'{"kind": "verb", "time": 1.0, "verb": "lost"}'[:left])
        record(volume).add(fact(99))
        assert list(record(volume).facts()) == [*whole, fact(99)]


@given(st.integers(1, 40))
def test_a_torn_log_goes_on_with_what_could_be_read(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        volume = Path(folder)
        record(volume).add_log("worker-1", [b"1 0 a", b"2 0 b"])
        path = volume / FOLDER / NAME / "logs" / "worker-1.gz"
        whole = path.read_bytes()
        record(volume).add_log("worker-1", [b"3 0 c"])
        path.write_bytes(path.read_bytes()[: len(whole) + min(cut, len(path.read_bytes()) - len(whole) - 1)])
        files = record(volume)
        if files.resume_log("worker-1") == "2":  # a few bytes before the end, the whole line can be read
            files.add_log("worker-1", [b"3 0 c"])
        assert files.resume_log("worker-1") == "3"
        assert log_of(volume) == b"1 0 a\n2 0 b\n3 0 c\n"


def test_the_end_of_a_long_log_stays(tmp_path: Path) -> None:
    files, number = record(tmp_path), 0
    for _ in range(60):
        files.add_log(
            "worker-1", [b"%06d 0 %s" % (number + line, os.urandom(40).hex().encode()) for line in range(500)]
        )
        number += 500
    kept = log_of(tmp_path).splitlines()
    assert MAX_LOG / 2 < sum(map(len, kept)) <= 2 * MAX_LOG
    assert [int(line[:6]) for line in kept] == list(range(number - len(kept), number))
    assert record(tmp_path).resume_log("worker-1") == f"{number - 1:06}"


def test_the_older_half_of_too_many_events_goes(tmp_path: Path) -> None:
    files = record(tmp_path)
    for number in range(4):
        files.add_events([{"id": f"{number}-{line}", "message": "m" * 1000} for line in range(300)])
    lines = (tmp_path / FOLDER / NAME / "events.jsonl").read_text().splitlines()
    assert '"id": "3-299"' in lines[-1]
    assert 500 < len(lines) < 1100


def test_the_last_facts_are_written_also_if_there_are_too_many(tmp_path: Path) -> None:
    files = record(tmp_path)
    for number in range(6):
        files.add({"kind": "tasks", "time": float(number), "tasks": ["a" * 500_000]})
    files.add({"kind": "end", "time": 9.0}, is_last=True)
    times = [one["time"] for one in files.facts()]
    assert times[-1] == 9.0
    assert len(times) < 7


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_others_put_in_the_place_of_a_file_is_not_written(tmp_path: Path, kind: str) -> None:
    files, path = record(tmp_path), tmp_path / FOLDER / NAME / "facts.jsonl"
    victim = tmp_path / "victim"
    victim.write_text("")
    {"link": lambda: path.symlink_to(victim), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    with pytest.raises(OSError, match=r".+"):
        files.add(fact(1), is_last=True)
    assert victim.read_text() == ""


def test_a_folder_in_the_place_of_a_log_costs_no_descriptor(tmp_path: Path) -> None:
    files = record(tmp_path)
    (tmp_path / FOLDER / NAME / "logs" / "worker-1.gz").mkdir()
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(5):
        with pytest.raises(OSError, match="no regular file"):
            files.resume_log("worker-1")
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_giant_lines_of_others_are_not_kept_in_memory(tmp_path: Path) -> None:
    files = record(tmp_path)
    files.add(fact(1))
    with (tmp_path / FOLDER / NAME / "facts.jsonl").open("a") as file:
        file.write("[" * (2 << 20) + "\n")
    files.add(fact(2))
    tracemalloc.start()
    assert [one["time"] for one in files.facts()] == [1.0, 2.0]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 16 << 20


def test_records_that_are_too_old_or_too_many_are_removed(tmp_path: Path) -> None:
    uids = [f"936a4aea-3460-487c-acd5-00000000000{number}" for number in range(6)]
    for age, uid in enumerate(uids):
        record(tmp_path, uid).add(fact(age))
        moment = time.time() - age * 86400
        os.utime(tmp_path / FOLDER / record_name("demo", uid) / "facts.jsonl", (moment, moment))
    (tmp_path / FOLDER / "of-others").mkdir()
    record(tmp_path, uids[5]).prune(older=3.5 * 86400, most=3)  # the oldest is the own one
    left = {path.name for path in (tmp_path / FOLDER).iterdir()}
    assert left == {record_name("demo", uids[number]) for number in (0, 1, 5)} | {"of-others"}
