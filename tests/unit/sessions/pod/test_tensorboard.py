"""TensorBoard's server: the folder, the last request, and an image without TensorBoard."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfk8s.sessions.pod import tensorboard
from tfk8s.sessions.pod.tensorboard import LastRequest


def test_event_files_are_found_in_folders_of_folders(tmp_path: Path) -> None:
    (tmp_path / "run/train").mkdir(parents=True)
    (tmp_path / "run/train/model.keras").touch()
    assert not tensorboard.has_event_files(str(tmp_path))
    (tmp_path / "run/train/events.out.tfevents.1.host").touch()
    assert tensorboard.has_event_files(str(tmp_path))
    assert not tensorboard.has_event_files(str(tmp_path / "none"))


def test_search_for_event_files_ends_in_a_large_folder(tmp_path: Path) -> None:
    (tmp_path / "one of many").touch()
    assert tensorboard.has_event_files(str(tmp_path), timeout=-1)


def test_each_request_is_noted() -> None:
    now = [0.0]
    last = LastRequest(lambda: now[0])
    application = last.note(lambda environment, _: [environment["PATH_INFO"]])
    now[0] = 40.0
    assert last.age == 40
    assert application({"PATH_INFO": b"/"}, lambda *_: None) == [b"/"]
    now[0] = 50.0
    assert last.age == 10


def test_image_without_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert tensorboard.main(["/logs"]) == tensorboard.NOT_INSTALLED


def test_tensorboard_without_one_of_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard/__init__.py").write_text(
        "class program:\n    @staticmethod\n    def TensorBoard(**_):\n        import pkg_resources_of_old\n"
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    assert tensorboard.serve("/logs", 1, "secret") == 1
    assert capsys.readouterr().err == (
        "error: TensorBoard needs the module pkg_resources_of_old: pip install pkg_resources_of_old\n"
    )
