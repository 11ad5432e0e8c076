"""What happened, as the command line tells it."""

from __future__ import annotations

import dataclasses
import json

import pytest
from fakes.command_line import Run

from tfk8s.backends.local import state
from tfk8s.core.events import RESTARTED, Event, of_phase
from tfk8s.core.status import Phase
from tfk8s.testing import FakeBackend

pytest_plugins = ("fakes.command_line",)

SCHEDULED = Event(id="1", time=1_700_000_000, about="worker/1", warning=False, reason="Scheduled", message="to node-1")
CRASHED = Event(id="2", time=1_700_000_300, about="worker/1", warning=True, reason="BackOff", message="a\nb", count=3)


@pytest.fixture(autouse=True)
def happened(backend: FakeBackend) -> None:
    backend.past_events = [SCHEDULED, CRASHED]


def test_events_are_a_table(run: Run) -> None:
    assert run("events", "mnist") == (
        0,
        (
            "AGE    TYPE     ABOUT     REASON     COUNT  MESSAGE\n"
            "5m12s  Normal   worker/1  Scheduled  1      to node-1\n"
            "12s    Warning  worker/1  BackOff    3      a b\n"
        ),
        "",
    )


def test_no_text_of_others_makes_a_row(run: Run, backend: FakeBackend) -> None:
    backend.past_events = [dataclasses.replace(SCHEDULED, reason="Pulled\n5m12s  Normal", about="worker/1\n1s  Normal")]
    assert len(run("events", "mnist")[1].splitlines()) == 2
    assert len(run("events", "-w", "mnist")[1].splitlines()) == 1


def test_no_events(run: Run, backend: FakeBackend) -> None:
    backend.past_events = []
    assert run("events", "mnist") == (0, "", "no events\n")
    assert run("events", "mnist", "-o", "json") == (0, "[]\n", "")


def test_events_as_json(run: Run, backend: FakeBackend) -> None:
    listed = json.loads(run("events", "mnist", "-o", "json")[1])
    assert listed[1] == {
        "id": "2", "time": "2023-11-14T22:18:20Z", "about": "worker/1", "warning": True, "reason": "BackOff",
        "message": "a\nb", "count": 3,
    }  # fmt: skip
    assert [json.loads(line) for line in run("events", "--watch", "mnist", "-o", "json")[1].splitlines()] == listed
    assert run("events", "-w", "mnist")[1].splitlines()[0] == "5m12s  Normal  worker/1  Scheduled  1  to node-1"
    assert backend.calls == ["events mnist follow=False", "events mnist follow=True", "events mnist follow=True"]


def test_events_of_a_supervisor(tmp_path) -> None:
    folder = state.Folder(tmp_path)
    folder.add_event("worker/1", Phase.FAILED, "killed by SIGKILL")
    event = of_phase(json.loads(folder.events.read_text()))
    assert (event.about, event.warning, event.reason, event.message) == (
        "worker/1",
        True,
        "Failed",
        "killed by SIGKILL",
    )


def test_a_requested_restart_is_no_failure(tmp_path) -> None:
    folder = state.Folder(tmp_path)
    folder.add_event("worker/1", Phase.FAILED, RESTARTED)
    event = of_phase(json.loads(folder.events.read_text()))
    assert (event.warning, event.reason, event.message) == (False, "Ended", "restarted on request")
