"""The recorder, with stand-ins for TensorFlow's sessions; real ones are in tests/local."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tfk8s.features.timeline import pod as recorder
from tfk8s.features.timeline import steps
from tfk8s.features.timeline.pod import Recorder
from tfk8s.features.timeline.steps import Recording


class RunOptions:
    """As TensorFlow's."""

    FULL_TRACE = 3

    def __init__(self, timeout_in_ms: int = 0) -> None:
        self.trace_level, self.timeout_in_ms = 0, timeout_in_ms

    def CopyFrom(self, other: RunOptions) -> None:  # noqa: N802 - protobuf's name
        self.timeout_in_ms = other.timeout_in_ms


class RunMetadata:
    """As TensorFlow's."""

    def __init__(self) -> None:
        self.step_stats: Any = SimpleNamespace(dev_stats=[])


class BaseSession:
    """As TensorFlow's: notes the options of each call."""

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> str:
        del feed_dict
        CALLS.append((fetches, options, run_metadata))
        if fetches == "broken":
            raise ValueError("broken")
        return f"result of {fetches}"


class Placeholder:
    """As TensorFlow's."""

    def __init__(self, name: str) -> None:
        self.name = name


CALLS: list[tuple[Any, Any, Any]] = []


@pytest.fixture(autouse=True)
def _tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    for name in ("tensorflow.core.protobuf.config_pb2", "tensorflow.python.client.session"):
        for end in range(1, 5):
            package = ".".join(name.split(".")[:end])
            monkeypatch.setitem(sys.modules, package, ModuleType(package))
    sys.modules["tensorflow.core.protobuf.config_pb2"].__dict__.update(RunMetadata=RunMetadata, RunOptions=RunOptions)
    sys.modules["tensorflow.python.client.session"].__dict__.update(BaseSession=BaseSession)
    monkeypatch.setattr(BaseSession, "run", BaseSession.run)


@pytest.fixture
def patched(tmp_path: Path) -> Callable[..., Callable[[], Recording]]:
    """Patch the sessions; return a function that reads the recording."""

    def patch(interval: int = 10, **limits: int) -> Callable[[], Recording]:
        path = tmp_path / "recording"
        made = Recorder(path, interval, **limits)
        made.patch_sessions()

        def read() -> Recording:
            made.write_counts()
            return steps.parse(path.read_text())

        return read

    return patch


def numbers(recording: Recording, call: str) -> list[int]:
    return [step.number for step in recording.steps if step.call == call]


def test_the_first_two_calls_and_every_tenth(patched: Callable[..., Callable[[], Recording]]) -> None:
    read = patched()
    for _ in range(25):
        assert BaseSession().run("loss:0") == "result of loss:0"
    BaseSession().run(["init"])
    recording = read()
    assert (numbers(recording, "loss"), numbers(recording, "init")) == ([1, 2, 10, 20], [1])
    assert (recording.calls["loss"].count, recording.calls["loss"].plain) == (25, 21)
    assert [options.trace_level for _, options, _ in CALLS if options] == [RunOptions.FULL_TRACE] * 5


def test_options_and_metadata_of_the_script_stay(patched: Callable[..., Callable[[], Recording]]) -> None:
    patched(interval=100)
    options, metadata = RunOptions(timeout_in_ms=500), RunMetadata()
    for _ in range(3):
        BaseSession().run("loss", options=options, run_metadata=metadata)
    assert options.trace_level == 0
    assert [(used.timeout_in_ms, used.trace_level, got is metadata) for _, used, got in CALLS] == [
        (500, 3, True), (500, 3, True), (500, 0, True),
    ]  # fmt: skip


def test_a_call_that_fails_raises_and_is_not_recorded(patched: Callable[..., Callable[[], Recording]]) -> None:
    read = patched()
    with pytest.raises(ValueError, match="broken"):
        BaseSession().run("broken")
    assert read().steps == ()


def test_a_recording_has_a_limit(patched: Callable[..., Callable[[], Recording]]) -> None:
    read = patched(interval=1, max_steps=3)
    for _ in range(3):
        BaseSession().run("loss")
    assert not read().is_full
    for _ in range(2):
        BaseSession().run("loss")
    assert (numbers(read(), "loss"), read().is_full) == ([1, 2, 3], True)


def test_a_step_that_can_not_be_recorded_ends_the_recording(
    patched: Callable[..., Callable[[], Recording]], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunMetadata, "__init__", lambda self: setattr(self, "step_stats", None))
    read = patched(interval=1)
    with caplog.at_level(logging.WARNING, "tfk8s"):
        assert [BaseSession().run("loss") for _ in range(2)] == ["result of loss"] * 2
    assert [record.getMessage() for record in caplog.records] == [
        "no more steps are recorded: 'NoneType' object has no attribute 'dev_stats'"
    ]
    assert (read().steps, read().is_full) == ((), False)


def test_feeds_are_measured(patched: Callable[..., Callable[[], Recording]]) -> None:
    read = patched()
    sparse = ([[0, 1], [2, 3]], [1.0, 2.0], [4, 4])  # as tf.SparseTensorValue
    BaseSession().run("loss", {Placeholder("x:0"): [[1.0, 2.0]], "y": b"text", "z": sparse})
    assert read().steps[0].fed == {"x": 16, "y": 4, "z": 64}


def test_the_file_is_emptied_and_nothing_is_patched_yet(tmp_path: Path) -> None:
    before = BaseSession.run
    path = tmp_path / "recording:1"
    path.write_text("of the run before\n")
    assert recorder.start(f"10:{path}")
    assert path.read_text() == ""
    assert BaseSession.run is before


@pytest.mark.parametrize(
    ("fetches", "text"),
    [
        ("loss:0", "loss"), ([], ""), ({"a": SimpleNamespace(name="x:0"), "b": ("y",)}, "x, y"),
        ([SimpleNamespace(name=f"x{n}") for n in range(5)], "x0, x1, x2 and 2 more"), (object(), "object"),
    ],
)  # fmt: skip
def test_fetches_in_words(fetches: object, text: str) -> None:
    assert recorder.describe(fetches) == text
