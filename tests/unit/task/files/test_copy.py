"""The program in a container that sends or receives files."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfk8s.task.files import copy, packed


def test_what_one_sends_another_receives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model/sub").mkdir(parents=True)
    (tmp_path / "model/sub/weights").write_bytes(b"w" * 100_000)
    sent = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=sent))
    assert copy.main([copy.SEND, str(tmp_path / "model")]) == 0
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(sent.getvalue())))
    assert copy.main([copy.RECEIVE, "model", str(tmp_path / "copy")]) == 0
    assert (tmp_path / "copy/sub/weights").read_bytes() == b"w" * 100_000


def test_a_file_goes_into_a_folder_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.csv").write_text("1")
    (tmp_path / "target").mkdir()
    sent = io.BytesIO()
    packed.pack([str(tmp_path / "data.csv")], sent)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(sent.getvalue())))
    assert copy.main([copy.RECEIVE, "data.csv", str(tmp_path / "target")]) == 0
    assert (tmp_path / "target/data.csv").read_text() == "1"


@pytest.mark.parametrize("cut", [10, -3])
def test_a_stream_that_ends_early_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cut: int
) -> None:
    (tmp_path / "data.csv").write_text("1")
    sent = io.BytesIO()
    packed.pack([str(tmp_path / "data.csv")], sent)
    source = io.BytesIO(sent.getvalue()[:cut])
    with open("/dev/null", "rb") as nothing:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source, fileno=nothing.fileno))
        assert copy.main([copy.RECEIVE, "data.csv", str(tmp_path / "target")]) == 1
    assert capsys.readouterr().err == "the files did not arrive whole: unexpected end"
    assert not (tmp_path / "target").exists()
