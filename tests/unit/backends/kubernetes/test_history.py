"""The history of clusters on Kubernetes, which commands write."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from job_files import job_file

from tfk8s.backends.history import files, index, writing
from tfk8s.backends.kubernetes.history import PodHistory
from tfk8s.backends.kubernetes.workloads.record_notes import RecordNotes
from tfk8s.cluster.handle import Cluster
from tfk8s.core.history.facts import Fact
from tfk8s.core.price.rates import Rates
from tfk8s.core.quantity import Quantity
from tfk8s.core.resources import Resources
from tfk8s.core.script import LogLine, Script
from tfk8s.core.spec import Task
from tfk8s.core.status import ScriptPhase, ScriptStatus
from tfk8s.errors import ClusterError
from tfk8s.testing import FakeBackend

PLACE = "context a, namespace b"


class KeptNotes(RecordNotes):
    """The facts that commands leave for a record in the shared history."""

    def __init__(self) -> None:
        self.is_recorded, self.facts = False, list[Fact]()

    def has_record(self, name: str) -> bool:
        return self.is_recorded

    def leave(self, name: str, facts: Iterable[Fact]) -> None:
        self.facts = list(facts)


class PodBackend(FakeBackend):
    """A fake whose commands write the history, as those of Kubernetes do."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.rates: Rates | None = None
        self.notes = KeptNotes()
        self.history = PodHistory(self, lambda _: PLACE, lambda _: self.rates, self.notes)

    def delete(self, name: str, *, delete_claims: bool = False) -> list[str]:
        with self.history.removing(name):
            return super().delete(name, delete_claims=delete_claims)


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PodBackend:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return PodBackend()


def start(backend: PodBackend) -> Cluster:
    cluster = Cluster(backend, "mnist")
    with cluster.recorder.command("up", starts=True):
        cluster.apply(
            job_file("mnist", *(dataclasses.replace(job, cpu=Quantity.parse("2")) for job in job_file().jobs))
        )
    return cluster


def test_commands_write_an_entry_from_up_to_down(backend: PodBackend, tmp_path: Path) -> None:
    cluster = start(backend)
    script = ScriptStatus(name="script-4e9c21", phase=ScriptPhase.SUCCEEDED, command="train.py", exit_code=4)
    backend.statuses["mnist"] = dataclasses.replace(backend.statuses["mnist"], scripts=(script,))
    backend.exit_code = 4
    assert cluster.run(Script(path=tmp_path / "train.py")) == 4
    cluster.restart("worker/1", timeout=None)
    cluster.down()
    entry = files.find("mnist", 1)
    found = entry.read()
    assert [(verb.verb, verb.exit_code) for verb in found.verbs] == [
        ("up", 0),
        ("submit", 4),
        ("restart", 0),
        ("down", 0),
    ]
    assert (found.row.state, found.row.location, found.row.exit_code) == ("ended", PLACE, 4)
    assert [task.task for task in found.tasks] == [str(task) for task in job_file()]
    assert [text for _, _, text in entry.log("worker-1")] == ["listens", "listens"]  # the fake's lines have no time
    assert [text for _, _, text in entry.log("script-4e9c21")] == ["script-4e9c21 runs"]
    assert len(entry.events()) == len(list(job_file()))
    assert index.rows()[0].state == "ended"


def test_a_new_cluster_ends_the_entry_of_one_that_is_gone(backend: PodBackend) -> None:
    start(backend)
    del backend.statuses["mnist"], backend.job_files["mnist"]  # by somebody else
    start(backend)
    assert [(row.id, row.state) for row in index.rows()] == [("mnist@2", "open"), ("mnist@1", "lost")]


@pytest.mark.parametrize(("seconds", "state"), [(60.0, "ended"), (-60.0, "lost"), (None, "lost")])
def test_a_limit_tells_the_end_that_no_command_saw(backend: PodBackend, seconds: float | None, state: str) -> None:
    start(backend)
    (row,) = index.rows()
    moment = None if seconds is None else row.started + seconds  # before the start: an earlier cluster's end
    writing.lose("mnist", PLACE, "removed after its `run` had been gone for 15m (lease)", moment)
    (row,) = index.rows()
    assert (row.state, row.reason) == (state, "removed after its `run` had been gone for 15m (lease)")
    assert row.ended is not None
    assert (row.ended == moment) is (state == "ended")


def test_a_command_joins_a_cluster_that_somebody_else_started(backend: PodBackend) -> None:
    backend.apply(job_file())
    Cluster(backend, "mnist").restart(timeout=None)
    found = files.find("mnist", 1).read()
    assert [verb.verb for verb in found.verbs] == ["restart"]
    assert found.job_file == {}


def test_a_cluster_that_is_not_there_gets_no_entry(backend: PodBackend) -> None:
    with pytest.raises(Exception, match="there is no cluster"):
        Cluster(backend, "mnist").restart()
    assert index.rows() == []


def test_logs_that_this_user_may_not_read_do_not_keep_a_cluster(
    backend: PodBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ClusterError("forbidden")

    cluster = start(backend)
    monkeypatch.setattr(backend, "logs", refuse)
    cluster.down()
    assert files.find("mnist", 1).logs() == {}


def test_a_copy_of_endless_logs_ends(backend: PodBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object) -> Iterator[LogLine]:
        for _ in range(1000):
            lines.append(LogLine(task=Task("worker", 0), text="time tfk8s: step 3/4 (75%)"))
            yield lines[-1]

    lines: list[LogLine] = []
    cluster = start(backend)
    script = ScriptStatus(name="script-4e9c21", phase=ScriptPhase.RUNNING, command="train.py")
    backend.statuses["mnist"] = dataclasses.replace(backend.statuses["mnist"], scripts=(script,))
    backend.history = PodHistory(
        backend, lambda _: PLACE, lambda _: None, backend.notes, clock=partial(next, itertools.count(step=0.25))
    )
    monkeypatch.setattr(backend, "log", lambda *_: (line.text for line in endless()))
    cluster.down()
    assert 20 < len(lines) <= 80  # each look at the clock takes a quarter of a second, of 20
    assert files.find("mnist", 1).read().row.progress == "3/4 (75%)"
    start(backend)
    lines.clear()
    monkeypatch.setattr(backend, "logs", endless)
    cluster.down()
    assert 20 < len(lines) <= 80


def test_an_up_that_fails_tells_the_reason(backend: PodBackend) -> None:
    start(backend)
    command = Cluster(backend, "mnist").recorder.command("up", hidden=["hunter2-hunter2"])
    with pytest.raises(ClusterError), command:
        raise ClusterError("worker/0 said hunter2-hunter2\nand more")
    verb = files.find("mnist", 1).read().verbs[-1]
    assert (verb.exit_code, verb.reason) == (1, "worker/0 said …")


@pytest.mark.parametrize(
    ("code", "pause", "step", "looks"),
    [(0, 0, 0, 1), (1, 0, 0, 2), (0, 0, 60, 2), (0, 400, 0, 2)],
    ids=["quick", "failed", "slow", "after a pause"],
)
def test_a_quick_script_that_succeeds_leaves_the_tasks_as_they_were(
    backend: PodBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, pause: int, step: int, looks: int
) -> None:
    cluster = start(backend)
    assert cluster.run(Script(path=tmp_path / "train.py")) == 0  # the first look
    moments = itertools.count(time.time() + pause, step)
    monkeypatch.setattr(time, "time", lambda: float(next(moments)))
    backend.exit_code = code
    assert cluster.run(Script(path=tmp_path / "train.py")) == code
    found = [fact for fact in files.of_name("mnist")[0].facts() if fact["kind"] == "tasks"]
    assert len(found) == looks


def test_what_a_scale_has_changed_is_seen(backend: PodBackend) -> None:
    cluster = start(backend)
    cluster.scale({"worker": 4}, timeout=None)
    assert len(files.find("mnist", 1).read().tasks) == len(list(job_file())) + 2


@pytest.mark.parametrize("verb", ["resume", "up"])
def test_a_suspended_cluster_has_no_hours(backend: PodBackend, verb: str) -> None:
    def cores() -> float:
        facts = files.find("mnist", 1).facts()
        return float([fact["requests"]["cpu"] for fact in facts if "requests" in fact][-1])

    cluster = start(backend)
    before = cores()
    cluster.suspend(lose_variables=True)
    assert (before > 0, cores(), index.rows()[0].state) == (True, 0.0, "open")
    cluster.resume(timeout=None) if verb == "resume" else start(backend)
    assert cores() == before


def test_down_of_what_somebody_else_started_leaves_one_ended_entry(backend: PodBackend) -> None:
    backend.apply(job_file())
    Cluster(backend, "mnist").down()
    assert [(row.id, row.state) for row in index.rows()] == [("mnist@1", "ended")]


def test_an_entry_tells_what_the_cluster_has_cost(backend: PodBackend) -> None:
    backend.rates = Rates("EUR", {"cpu": 3600.0, "memory": 0.0})
    cluster = start(backend)
    entry = index.rows("mnist")[0]
    assert (entry.cost, entry.currency) == (0.0, "EUR")
    (facts,) = [fact for fact in files.of_name("mnist")[0].facts() if fact["kind"] == "start"]
    assert facts["requests"]["price"] == pytest.approx(3600.0 * 2 * len(backend.statuses["mnist"].tasks))
    later = Resources.parse({"cpu": 1})
    backend.statuses["mnist"] = dataclasses.replace(backend.statuses["mnist"], billed=later)
    backend.history.seen(cluster.name)
    seen = [fact["requests"] for fact in files.of_name("mnist")[0].facts() if fact["kind"] == "tasks"]
    assert (seen[-1]["price"], seen[-1]["currency"]) == (3600.0, "EUR")


def test_a_suspended_cluster_costs_nothing(backend: PodBackend) -> None:
    backend.rates = Rates("EUR", {"cpu": 1.0})
    cluster = start(backend)
    cluster.suspend(lose_variables=True)
    seen = [fact["requests"] for fact in files.of_name("mnist")[0].facts() if fact["kind"] == "tasks"]
    assert seen[-1]["price"] == 0.0


def test_commands_share_their_facts_if_the_cluster_has_a_record(backend: PodBackend) -> None:
    cluster = start(backend)
    assert backend.notes.facts == []
    backend.notes.is_recorded = True
    cluster.restart("worker/1", timeout=None)
    assert [fact["kind"] for fact in backend.notes.facts] == ["start", "verb", "verb_end", "verb", "verb_end"]
    cluster.down()
    assert [fact["verb"] for fact in backend.notes.facts if fact["kind"] == "verb"] == ["up", "restart", "down"]
