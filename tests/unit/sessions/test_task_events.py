"""Events as lines and as texts."""

from __future__ import annotations

import os

import pytest

from tfk8s.sessions.task_events import TaskChange, TaskEvent, lost, read_events, refused

EVENTS = {
    lost("worker/1", "killed by „SIGKILL”\n"): "worker/1 was lost: killed by „SIGKILL”\n",
    refused("a.example stays out of reach"): "a.example stays out of reach",
    TaskEvent("ps/0", TaskChange.BACK): "ps/0 answers again",
    TaskEvent("ps/0", TaskChange.REPLACED): "ps/0 was restarted: sessions opened before are lost",
}


@pytest.mark.parametrize("event", EVENTS)
def test_event_survives_its_line(event: TaskEvent) -> None:
    assert event.to_line().count(b"\n") == 1
    assert TaskEvent.from_line(event.to_line()) == event
    assert str(event) == EVENTS[event]


def test_events_are_read_from_a_pipe_until_its_end() -> None:
    read, write = os.pipe()
    os.write(write, b"".join(event.to_line() for event in EVENTS))
    assert read_events(read) == list(EVENTS)
    os.close(write)
    assert read_events(read) == []
    os.close(read)
