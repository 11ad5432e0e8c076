"""The options of a timeline, and the files that it leaves."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from traced import training_step

from tfk8s.core.script import Script
from tfk8s.errors import InvalidInput
from tfk8s.features.timeline import here as timeline
from tfk8s.features.timeline import steps
from tfk8s.features.timeline.here import Timeline
from tfk8s.features.timeline.steps import CallCount

LINES = steps.step_line(training_step()) + steps.calls_line([CallCount("loss", 40, 34, 1.0)], is_full=False)
HERE = SimpleNamespace(name="mnist", backend=SimpleNamespace(scripts=SimpleNamespace(in_pods=False)))
ON_KUBERNETES = SimpleNamespace(name="mnist", backend=SimpleNamespace(scripts=SimpleNamespace(in_pods=True)))
SCRIPT = Script(path=Path("train.py"), environment={"OWN": "the script's"})


@pytest.fixture
def page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    caplog.set_level(logging.INFO, "tfk8s")
    return tmp_path / "steps.html"


def recording_of(script: Script) -> Path:
    return Path(script.environment["TFK8S_TRACE"].partition(":")[2])


def test_the_page_and_the_chrome_trace(page: Path, caplog: pytest.LogCaptureFixture) -> None:
    with timeline.recorded(SCRIPT, timeline.parse(str(page), None), HERE) as script:
        assert script.environment == {"OWN": "the script's", "TFK8S_TRACE": f"100:{recording_of(script)}"}
        assert script.downloads == []
        recording_of(script).write_text(LINES)
    assert "<title>train.py on mnist</title>" in page.read_text()
    assert json.loads(page.with_name("steps.trace.json").read_text())["traceEvents"]
    assert caplog.messages == [f"1 recorded step is in {page} and {page.with_name('steps.trace.json')}"]
    assert not recording_of(script).parent.exists()


def test_a_recording_in_a_pod_is_copied(page: Path) -> None:
    with timeline.recorded(SCRIPT, Timeline(page, 5), ON_KUBERNETES) as script:
        (download,) = script.downloads
        assert script.environment["TFK8S_TRACE"] == f"5:{download.path}"
        download.local.write_text(LINES)
    assert page.exists()


def test_windows_is_refused_before_the_script_runs_in_a_pod(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.supports_dir_fd", set())
    monkeypatch.setattr("sys.platform", "win32")
    refused = timeline.recorded(SCRIPT, Timeline(page), ON_KUBERNETES)
    with pytest.raises(InvalidInput, match=r"^timelines of scripts on Kubernetes need Linux, not Windows"):
        refused.__enter__()
    with timeline.recorded(SCRIPT, Timeline(page), ON_KUBERNETES, here=True):
        pass


def test_a_script_here_leaves_its_recording_here(page: Path) -> None:
    with timeline.recorded(SCRIPT, Timeline(page), ON_KUBERNETES, here=True) as script:
        assert script.downloads == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_page_is_written_whatever_the_end(page: Path, error: type[BaseException]) -> None:
    def end() -> None:
        with timeline.recorded(SCRIPT, Timeline(page), HERE) as script:
            recording_of(script).write_text(LINES)
            raise error

    with pytest.raises(error):
        end()
    assert page.exists()


def test_nothing_to_show(page: Path, caplog: pytest.LogCaptureFixture) -> None:
    with timeline.recorded(SCRIPT, Timeline(page), HERE) as script:
        recording_of(script).touch()
    reason = "there is nothing to show, because the script ran no step of a session"
    assert caplog.messages == [f"{page} is not written: {reason} (TensorFlow 2's eager calls are no steps)"]
    assert not page.exists()


def test_a_step_that_never_ended_is_no_step_to_show(page: Path, caplog: pytest.LogCaptureFixture) -> None:
    with timeline.recorded(SCRIPT, Timeline(page), HERE) as script:
        recording_of(script).write_text(steps.calls_line([CallCount("loss", 1)], is_full=False))
    reason = "no step had ended; while a step waits, `tfk8s stacks` shows the task"
    assert caplog.messages == [f"{page} is not written: there is nothing to show, because {reason}"]


def test_a_script_that_never_began_leaves_no_recording(page: Path, caplog: pytest.LogCaptureFixture) -> None:
    with timeline.recorded(SCRIPT, Timeline(page), HERE):
        pass
    assert caplog.messages == [f"{page} is not written: there is no recording of the script"]


def test_a_recording_that_the_script_has_spoiled_is_no_error(page: Path, caplog: pytest.LogCaptureFixture) -> None:
    with timeline.recorded(SCRIPT, Timeline(page), HERE) as script:
        recording_of(script).write_text("[]\n")
    assert caplog.messages == [
        f"{page} is not written: the recording can't be read: list indices must be integers or slices, not str"
    ]


def test_a_page_that_can_not_be_written_any_more_is_no_error(page: Path, caplog: pytest.LogCaptureFixture) -> None:
    with timeline.recorded(SCRIPT, Timeline(page), HERE) as script:
        recording_of(script).write_text(LINES)
        page.mkdir()
    assert caplog.messages == [f"{page} can't be written: Is a directory"]


def test_options_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken.html").mkdir()
    refused = {
        "steps.png": '--trace "steps.png": the page needs a name that ends in .html',
        "gone/steps.html": '--trace "gone/steps.html": "gone" is not a folder that you may write',
        "taken.html": '--trace "taken.html": "taken.html" is not a file that you may write',
        None: "--trace-every needs --trace",
    }
    for page, message in refused.items():
        with pytest.raises(InvalidInput) as error:
            timeline.parse(page, 5)
        assert str(error.value) == message
    assert os.listdir() == ["taken.html"]  # noqa: PTH208
