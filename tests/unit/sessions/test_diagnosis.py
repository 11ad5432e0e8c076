"""Waits for a master with a stale address, and explanations of failed calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection
from dataclasses import replace

import pytest

from tfk8s.errors import TaskUnreachable
from tfk8s.sessions import diagnosis
from tfk8s.sessions.diagnosis import ClusterProbe
from tfk8s.sessions.error_names import ProbeResult
from tfk8s.sessions.lost_tasks import LostTasks
from tfk8s.sessions.timing import TIMING, Timing


class View:
    """Tasks that answer, of which cluster can't reach another for some polls."""

    master = "chief/0"
    without = frozenset[str]()

    def __init__(self, polls: int, source: str = "chief/0") -> None:
        self.polls, self.source = polls, source

    def probe_all(self) -> list[ProbeResult]:
        return [ProbeResult("chief/0", incarnation=1), ProbeResult("worker/1", incarnation=1)]

    def unreachable_pairs(self) -> dict[str, list[str]]:
        self.polls -= 1
        return {self.source: ["worker/1"]} if self.polls >= 0 else {}

    def close_questions(self) -> None:
        self.is_closed = True


STALE = "{0} can't reach worker/1: asked from this machine, worker/1 answers, but {0} waits for worker/1"


def probe(view: View, timing: Timing = TIMING) -> ClusterProbe:
    return ClusterProbe(view, LostTasks(), timing)


def test_connected_master_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    probe(View(0)).check()
    assert caplog.messages == []


@pytest.mark.parametrize("wait", [lambda cluster: cluster.check(), lambda cluster: cluster.wait(1.0)])
def test_wait_for_the_master_is_reported_once(wait, caplog: pytest.LogCaptureFixture) -> None:
    wait(probe(View(3)))
    assert caplog.messages == [
        STALE.format("chief/0") + "; waiting up to 90 s",
        "the tasks can reach each other now",
    ]


NAMELESS = ProbeResult("worker/1", error="Name or service not known")
SILENT = ProbeResult("ps/0", error="Connection refused")


@pytest.mark.parametrize(
    ("pod", "answers", "lines"),
    [
        (True, [[NAMELESS], [NAMELESS], []], ["DNS does not know worker/1 yet; waiting up to 10 s"]),
        (False, [[NAMELESS]], []),
        (True, [[NAMELESS, SILENT]], []),
    ],
)
def test_a_name_that_dns_learns_late_is_waited_for(
    pod: bool, answers: list[list[ProbeResult]], lines: list[str], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    if not pod:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    monkeypatch.setattr(diagnosis, "NAME_INTERVAL", 0.0)
    view, left = View(0), iter(answers)
    monkeypatch.setattr(view, "probe_all", lambda: [ProbeResult("chief/0", incarnation=1), *next(left)])
    with pytest.raises(TaskUnreachable) if answers[-1] else contextlib.nullcontext():
        probe(view, replace(TIMING, partial_lookup_timeout=10.0)).check()
    assert (caplog.messages, list(left)) == (lines, [])


def test_master_that_never_reaches_a_task_is_an_error() -> None:
    with pytest.raises(TaskUnreachable) as caught:
        probe(View(1 << 30), replace(TIMING, lookup_timeout=0.02)).check()
    assert str(caught.value) == STALE.format("chief/0")
    assert caught.value.help == (
        "`tfk8s restart NAME chief/0` makes it look up all addresses again; if that does not help, a NetworkPolicy or "
        "a firewall keeps the tasks apart"
    )


IMPATIENT = replace(TIMING, partial_lookup_timeout=0.0)


def test_other_connections_are_waited_for_less(caplog: pytest.LogCaptureFixture) -> None:
    probe(View(1 << 30, "ps/0"), IMPATIENT).check()
    assert caplog.messages[-1] == STALE.format("ps/0") + "; continuing, since not every script needs that"


def test_master_is_waited_for_longer(caplog: pytest.LogCaptureFixture) -> None:
    probe(View(3), IMPATIENT).check()
    assert caplog.messages[-1] == "the tasks can reach each other now"


class UnavailableError(Exception):
    """As TensorFlow's."""


class Lost(View):
    """Of its two tasks, cluster is lost after the first time of asking."""

    def __init__(self) -> None:
        super().__init__(0)
        self.probes: list[Collection[str]] = []

    def probe_all(self, lost: Collection[str] = ()) -> list[ProbeResult]:
        self.probes.append(lost)
        chief, worker = super().probe_all()
        return [chief, worker if len(self.probes) == 1 else ProbeResult("worker/1", error="Connection refused")]


def test_explanation_waits_for_the_reason() -> None:
    view, losses = Lost(), LostTasks()
    losses.expect()
    cluster = ClusterProbe(view, losses)
    cluster.check()
    reporting = threading.Timer(0.05, losses.lost, ["worker/1", "evicted"])
    reporting.start()
    found = cluster.explain(UnavailableError("Socket closed"))
    reporting.join()
    assert str(found) == "worker/1 was lost: evicted"


def test_lost_task_is_probed_briefly() -> None:
    view, losses = Lost(), LostTasks()
    cluster = ClusterProbe(view, losses)
    cluster.check()
    losses.lost("worker/1", "evicted")
    assert str(cluster.explain(UnavailableError("Socket closed"))) == "worker/1 was lost: evicted"
    assert view.probes == [(), {"worker/1"}]


def test_other_errors_need_no_probe() -> None:
    view = Lost()
    cluster = ClusterProbe(view, LostTasks())
    cluster.check()
    assert cluster.explain(ValueError("Incompatible shapes")) is None
    assert view.probes == [()]
