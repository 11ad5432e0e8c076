"""The history of a cluster on this machine, without its processes."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

import pytest
from job_files import job_file

from tfk8s.backends.history import index
from tfk8s.backends.history.files import EntryFiles
from tfk8s.backends.local import cluster_status, state
from tfk8s.backends.local.programs import cluster_suspension
from tfk8s.backends.local.record import Record, make_record
from tfk8s.backends.local.supervision import history, suspended_file
from tfk8s.core.job_file.mappings import IdleLimits
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job
from tfk8s.core.status import Phase
from tfk8s.errors import ClusterError

TASK = {
    "phase": "Ready", "restarts": 0, "exit_code": None, "reason": "", "pid": 7, "since": 0.0, "has_given_up": False,
}  # fmt: skip
Made = tuple[state.Folder, Record, EntryFiles]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    record = make_record(job_file("demo", Job(name="worker", tasks=2, cpu=Quantity.parse("2"))), "1d", exposed=True)
    entry = history.begin(record)
    assert entry is not None
    folder = state.folder("demo")
    folder.create(record, entry.live)
    return folder, record, entry


def suspend(folder: state.Folder, record: Record) -> None:
    suspended_file.write(folder, "jo")
    history.HistoryKeeper(folder).stops("was suspended by `tfk8s suspend`", record, [TASK, TASK])


def cores(entry: EntryFiles) -> float:
    """The cores that the cluster requests now."""
    return float([fact["requests"]["cpu"] for fact in entry.facts() if "requests" in fact][-1])


def test_an_entry_stays_open_in_a_suspension_without_hours(made: Made) -> None:
    folder, record, entry = made
    assert cores(entry) == 4.0
    suspend(folder, record)
    history.complete_lost([entry])
    assert (entry.read().row.state, cores(entry)) == ("open", 0.0)
    folder.write_supervisor(os.getpid())  # a `resume` that was killed after the start
    assert cluster_suspension.resume(folder, record)
    assert (entry.is_open(), cores(entry)) == (True, 4.0)
    history.HistoryKeeper(folder).stops("was removed by `tfk8s down`", record, [TASK, TASK])
    row = entry.read().row
    assert (row.state, row.reason) == ("ended", "was removed by `tfk8s down`")


def test_down_ends_the_entry_of_a_suspended_cluster(made: Made) -> None:
    folder, record, entry = made
    suspend(folder, record)
    history.remove(folder)
    row = entry.read().row
    assert (row.state, row.reason) == ("ended", "was removed by `tfk8s down`")


@pytest.mark.parametrize(("idle", "reason", "limit"), [
    (IdleLimits(suspend=60, remove=3600), "after 1h without a session and a script (idle)", 3600 - 60),
    (None, "8h after its first `up` (max_duration)", 28800),
])  # fmt: skip
@pytest.mark.parametrize("finds", ["history", "down"])
def test_a_suspended_cluster_ends_at_its_limits(
    made: Made, monkeypatch: pytest.MonkeyPatch, idle: IdleLimits | None, reason: str, limit: float, finds: str
) -> None:
    folder, record, entry = made
    record = dataclasses.replace(record, job_file=dataclasses.replace(record.job_file, max_duration=28800, idle=idle))
    folder.replace(record)
    suspended_file.write(folder, "tfk8s", 60.0)
    assert cluster_status.status(folder, record).phase is Phase.SUSPENDED
    begin = time.time()
    monkeypatch.setattr(time, "time", lambda: begin + limit + 5)
    status = cluster_status.status(folder, record)
    assert (status.phase, status.suspended, status.reason) == (
        Phase.FAILED, None, f'cluster "demo" has ended {reason}',
    )  # fmt: skip
    with pytest.raises(ClusterError, match="has ended"):
        cluster_suspension.resume(folder, record)
    history.complete_lost([entry]) if finds == "history" else history.remove(folder)
    row = entry.read().row
    assert (row.state, row.reason) == ("ended", f"has ended {reason}")
    assert row.ended is not None
    assert abs(row.ended - begin - limit) < 5


def test_idle_does_not_count_in_a_suspension_without_a_time_until_the_suspension(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, record, _ = made
    folder.replace(dataclasses.replace(record, job_file=dataclasses.replace(record.job_file, idle=60)))
    suspended_file.write(folder, "jo")
    begin = time.time()
    monkeypatch.setattr(time, "time", lambda: begin + 1e6)
    assert suspended_file.end(folder) is None
    assert suspended_file.read(folder)


def test_an_entry_with_the_logs_of_a_cluster_is_not_pruned(made: Made) -> None:
    folder, record, entry = made
    history.HistoryKeeper(folder).stops("has ended after 8 h", record, [TASK, TASK])
    assert index.prune(most=0) == []
    assert folder.log(record.job_file.master_task).parent.is_dir()
    assert [row.id for row in index.rows()] == [entry.id]
    history.remove(folder)
    assert [row.id for row in index.prune(most=0)] == [entry.id]


def test_the_logs_of_the_last_scripts_that_printed_are_kept(made: Made) -> None:
    folder, record, entry = made
    keeper = history.HistoryKeeper(folder)
    for number in range(110):
        name = f"script-{number:06x}"
        log = history.script_log(folder, name)
        assert log is not None
        log.write_text(f"2026-11-28T09:00:00.000000Z 0 {number}\n" if number != 50 else "")
        os.utime(log, (number, number))
        keeper.script_ended("train.py", folder.progress(name), number % 3)
    (folder.kept / "logs/script-00006d.new").touch()  # type: ignore[operator]  # a kill has left it
    keeper.script_ended("train.py", folder.progress("script-00006d"), 1)
    assert {path.suffix for path in (folder.kept / "logs").iterdir()} == {".log"}  # type: ignore[operator]
    keeper.script_ended("never.py", folder.progress("script-ffffff"), None)
    folder.log(record.job_file.master_task).write_text("2026-11-28T09:00:00.000000Z 0 of a task\n")
    kept = [f"script-{number:06x}" for number in range(9, 110) if number != 50]
    assert {*entry.logs()} == {*kept, "worker-0"}
    found = entry.read().scripts
    assert [(script.name, script.exit_code) for script in found[-2:]] == [("script-00006d", 1), ("script-ffffff", None)]
    history.remove(folder)
    assert [text for _, _, text in entry.log("script-00006d")] == ["109"]
    assert (entry.path / "logs/script-00006d.gz").stat().st_mode & 0o777 == 0o600


def test_a_line_with_other_breaks_is_one_line(made: Made) -> None:
    folder, _, entry = made
    log = history.script_log(folder, "script-000001")
    assert log is not None
    log.write_bytes("T 0 a\rb\x0bc\u2028d\nT 0 without an end".encode())
    assert [text for _, _, text in entry.log("script-000001")] == ["a\rb\x0bc\u2028d", "without an end"]
