"""Waiting for a master that knows a task at an address of before."""

from __future__ import annotations

import threading
from collections.abc import Collection

import pytest

from tfk8s.errors import TaskUnreachable
from tfk8s.sessions import diagnosis
from tfk8s.sessions.diagnosis import ClusterProbe
from tfk8s.sessions.error_names import ProbeResult
from tfk8s.sessions.lost_tasks import LostTasks


class View:
    """Tasks that answer, and a master that does not reach some for so many looks."""

    master = "chief/0"
    without = frozenset[str]()

    def __init__(self, looks: int, asker: str = "chief/0") -> None:
        self.looks, self.asker = looks, asker

    def ask(self) -> list[ProbeResult]:
        return [ProbeResult("chief/0", incarnation=1), ProbeResult("worker/1", incarnation=1)]

    def missing_ways(self) -> dict[str, list[str]]:
        self.looks -= 1
        return {self.asker: ["worker/1"]} if self.looks >= 0 else {}


def test_a_master_that_reaches_all_keeps_nobody_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    ClusterProbe(View(0)).check()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("wait", [lambda one: one.check(), lambda one: one.wait(1.0)])
def test_it_is_said_once_that_the_master_is_waited_for(wait, capsys: pytest.CaptureFixture[str]) -> None:
    wait(ClusterProbe(View(3)))
    assert capsys.readouterr().err == (
        "tfk8s: chief/0 does not reach worker/1, though it answers: chief/0 knows no address of it, or an old one; "
        "waiting up to 90 s until that is looked up again\n"
        "tfk8s: the tasks reach each other now\n"
    )


def test_a_master_that_never_reaches_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "REACH_SECONDS", 0.02)
    with pytest.raises(TaskUnreachable, match=r"^chief/0 does not reach worker/1, though it answers: ") as caught:
        ClusterProbe(View(1 << 30)).check()
    assert caught.value.help == "`tfk8s restart NAME chief/0` has it look up all addresses anew"


def test_a_way_that_not_every_script_needs_is_waited_for_less(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(diagnosis, "OTHERS_SECONDS", 0.0)
    ClusterProbe(View(1 << 30, "ps/0")).check()
    assert capsys.readouterr().err.endswith(
        "tfk8s: ps/0 does not reach worker/1, though it answers: ps/0 knows no address of it, or an old one; "
        "going on, for scripts that need it not\n"
    )


def test_the_master_is_waited_for_however_long_other_ways_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(diagnosis, "OTHERS_SECONDS", 0.0)
    ClusterProbe(View(3)).check()
    assert capsys.readouterr().err.endswith("tfk8s: the tasks reach each other now\n")


class UnavailableError(Exception):
    """As TensorFlow's."""


class Lost(View):
    """Of its two tasks, one is lost after the first time of asking."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked: list[Collection[str]] = []

    def ask(self, lost: Collection[str] = ()) -> list[ProbeResult]:
        self.asked.append(lost)
        chief, worker = super().ask()
        return [chief, worker if len(self.asked) == 1 else ProbeResult("worker/1", error="Connection refused")]


def test_what_a_lost_task_means_is_told_with_the_reason_that_comes_a_moment_later() -> None:
    view, news = Lost(), LostTasks()
    news.expect()
    one = ClusterProbe(view, news)
    one.check()
    telling = threading.Timer(0.05, news.lost, ["worker/1", "evicted"])
    telling.start()
    found = one.explain(UnavailableError("Socket closed"))
    telling.join()
    assert str(found) == "worker/1 was lost: evicted"


def test_a_task_that_is_known_to_be_lost_has_to_be_quick() -> None:
    view, news = Lost(), LostTasks()
    one = ClusterProbe(view, news)
    one.check()
    news.lost("worker/1", "evicted")
    assert str(one.explain(UnavailableError("Socket closed"))) == "worker/1 was lost: evicted"
    assert view.asked == [(), {"worker/1"}]


def test_what_has_nothing_to_do_with_tasks_asks_none() -> None:
    view = Lost()
    one = ClusterProbe(view, LostTasks())
    one.check()
    assert one.explain(ValueError("Incompatible shapes")) is None
    assert view.asked == [()]
