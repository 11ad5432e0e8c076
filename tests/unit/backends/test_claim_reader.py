"""The program that reads records in a pod, and the parser of what it prints."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tfk8s.backends.history import claim_reader
from tfk8s.core.history import records
from tfk8s.core.history.records import RecordStream, SharedRecord

UIDS = [f"{number:08x}-0000-0000-0000-000000000000" for number in range(9)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "tfk8s-history"
    path.mkdir()
    return path


def make(root: Path, number: int, cluster: str = "mnist") -> Path:
    folder = root / f"{cluster}.{UIDS[number]}"
    (folder / "logs").mkdir(parents=True)
    (folder / "facts.jsonl").write_text(json.dumps({"kind": "start", "time": number}) + "\n")
    (folder / "events.jsonl").write_text('{"id": "a"}\n')
    (folder / "logs" / "worker-0.gz").write_bytes(gzip.compress(b"2026 0 one\n", mtime=0))
    os.utime(folder / "facts.jsonl", (number, number))
    return folder


def ask(root: Path, last: int = 30, cluster: str | None = None, chosen: list[str] | None = None) -> RecordStream:
    output = io.BytesIO()
    claim_reader.serve(str(root), json.loads(records.request(last, cluster, chosen)), output)
    output.seek(0)
    return RecordStream(output)


def listed(root: Path, last: int = 30, cluster: str | None = None) -> list[SharedRecord]:
    return list(ask(root, last, cluster).records(last))


def get(root: Path, *folders: Path) -> list[SharedRecord]:
    return list(ask(root, chosen=[folder.name for folder in folders]).records(len(folders)))


def test_the_newest_records_come_first(root: Path) -> None:
    for number, name in enumerate(("mnist", "toy", "mnist")):
        make(root, number, name)
    stream = ask(root, 2)
    assert [record.uid for record in stream.records(2)] == [UIDS[2], UIDS[1]]
    assert stream.left_out == 1
    assert [record.uid for record in listed(root, cluster="mnist")] == [UIDS[2], UIDS[0]]


def test_no_records_are_an_empty_list(root: Path) -> None:
    assert listed(root) == listed(root / "missing") == []


def test_a_record_has_what_was_written(root: Path) -> None:
    folder = make(root, 1)
    (record,) = get(root, folder)
    assert record.facts == ({"kind": "start", "time": 1},)
    assert record.events == ({"id": "a"},)
    assert gzip.decompress(record.logs["worker-0"]) == b"2026 0 one\n"
    assert record.mark == listed(root)[0].mark != ""


@pytest.mark.parametrize("name", ["facts.jsonl", "events.jsonl", "logs/worker-0.gz", "logs/worker-1.gz"])
def test_each_change_changes_the_mark(root: Path, name: str) -> None:
    folder = make(root, 1)
    before = listed(root)[0].mark
    with (folder / name).open("ab") as file:
        file.write(b"more\n")
    assert listed(root)[0].mark != before


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def folder(path: Path) -> None:
    path.mkdir()


def endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize(
    ("put", "problem"),
    [
        (fifo, "is no regular file"), (link, "is a link"), (folder, "is no regular file"), (endless, "has more than "),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["facts.jsonl", "events.jsonl", "logs/worker-0.gz"])
def test_what_is_no_file_is_left_out_and_named(
    root: Path, put: Callable[[Path], None], problem: str, name: str
) -> None:
    made = make(root, 1)
    (made / name).unlink()
    put(made / name)
    (record,) = get(root, made)
    assert record.problem.startswith(f"{name} {problem}")
    assert (bool(record.facts), bool(record.events), bool(record.logs)) == (
        name != "facts.jsonl", name != "events.jsonl", "logs" not in name
    )  # fmt: skip


def test_links_in_place_of_folders_are_not_followed(root: Path, tmp_path: Path) -> None:
    made = make(root, 1)
    (made / "logs").rename(tmp_path / "logs")
    (made / "logs").symlink_to(tmp_path / "logs")
    assert get(root, made)[0].logs == {}
    made.rename(tmp_path / "elsewhere")
    made.symlink_to(tmp_path / "elsewhere")
    assert listed(root) == []
    assert [(record.facts, record.problem) for record in get(root, made)] == [((), "is no folder")]


def test_other_names_are_left_out(root: Path) -> None:
    for name in ("mnist", "\x1b[31m." + UIDS[0], "Mnist." + UIDS[0], "mnist." + UIDS[0] + "\n", "1." + UIDS[0]):
        (root / name).mkdir()
        (root / name / "facts.jsonl").touch()
    assert listed(root) == []


def test_what_exceeds_the_answer_is_left_out(root: Path) -> None:
    folders = [make(root, number) for number in range(6)]
    for made in folders:
        for number in range(8):
            (made / "logs" / f"worker-{number}.gz").write_bytes(os.urandom(records.MAX_LOG))
    stream = ask(root, chosen=[made.name for made in folders])
    found = list(stream.records(6))
    assert (len(found), stream.left_out) == (4, 2)
    assert found[0].problem == "logs/worker-7.gz is left out: the record is too large"
