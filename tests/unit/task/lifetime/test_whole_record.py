"""A record whose writers are killed at random moments: what was told is read back whole, and once."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from job_files import job_file

from tests.unit.task.lifetime.test_observed import ended, pod
from tests.unit.task.lifetime.test_record_writer import RecordedCluster
from tfk8s import render
from tfk8s.backends.kubernetes.workloads.record_notes import RecordNotes
from tfk8s.core.history import facts
from tfk8s.core.history.entry import ENDED, Row, fold
from tfk8s.core.history.facts import REMOVED
from tfk8s.core.job_file.mappings import SharedHistory
from tfk8s.core.lifetime import RemovableObject
from tfk8s.task.lifetime.object_server import Answer
from tfk8s.task.lifetime.record.record_writer import RecordWriter

TASK = "demo-my-ps-1234-2"
JOBS = [
    item
    for item in render.objects(job_file("demo", worker=1, image="tf:1", history=SharedHistory(claim="past")))
    if item["kind"] == "Job"
]


@pytest.fixture(autouse=True, scope="module")
def hurried() -> Iterator[None]:
    """Let a writer that no note tells of an end look for it once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfk8s.task.lifetime.record.record_writer.GONE_TIMEOUT", 0.0)
        yield


class Killed(BaseException):
    """SIGKILL of the pod that writes."""


class MortalCluster(RecordedCluster):
    """A cluster with commands, whose pod of the record is killed at a request, or in the last write before it."""

    def __init__(self, volume: Path) -> None:
        super().__init__(volume)
        self.left: int | None = None  # requests before the kill
        self.torn = 0  # bytes of the last write that are lost
        self.sizes: dict[Path, int] = {}
        self.told: list[dict[str, Any]] = []
        self.lines = 0
        self.pods, self.logs = [pod()], {TASK: []}
        self.alive: RecordWriter | None = None

    def pod(self) -> RecordWriter:
        """Return the writer of the pod that runs, or of its successor."""
        self.alive = self.alive or self.writer()
        return self.alive

    def get(self, item: RemovableObject) -> Answer:
        self._count()
        return super().get(item)

    def items(self, resource: str, selector: str = "") -> Iterator[dict[str, Any]]:
        self._count()
        return super().items(resource, selector)

    def log(self, name: str, container: str, options: Mapping[str, Any]) -> bytes:
        self._count()
        return super().log(name, container, options)

    def _count(self) -> None:
        written = [path for path in self.volume.rglob("*") if path.is_file()]
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                self._tear(written)
                raise Killed
        self.sizes = {path: path.stat().st_size for path in written}

    def _tear(self, written: list[Path]) -> None:
        grown = [path for path in written if path.stat().st_size > self.sizes.get(path, 0)]
        if grown and self.torn:
            last = max(grown, key=lambda path: path.stat().st_mtime_ns)
            size = max(self.sizes.get(last, 0), last.stat().st_size - self.torn)
            with last.open("r+b") as file:
                file.truncate(size)

    # ---- the API server of commands ----

    def send(self, method: str, path: str, query: object, change: Any = None, content_type: str = "") -> object:
        if method == "PATCH":
            merged = {**self.notes, **change["metadata"]["annotations"]}
            self.notes = {key: note for key, note in merged.items() if note is not None}
        elif self.alive:  # the Job of the record goes, and no pod comes after this one
            try:
                self.alive.end()
            finally:
                self.alive = None
        return {"metadata": {"annotations": self.notes}}

    def list_pods(self, path: str, query: object) -> object:
        spec = {"containers": [{"name": "lifetime"}]}
        running = {"metadata": {"name": "a", "namespace": "ns"}, "spec": spec, "status": {"phase": "Running"}}
        return {"items": [running] if self.alive else []}

    def text(self, path: str, query: object) -> str:
        return "keeping"


class Commands:
    """The commands of users: the facts of each begin and, unless the command is killed, of its end."""

    def __init__(self, cluster: MortalCluster) -> None:
        self.cluster, self.get, self.send, self.text = cluster, cluster.list_pods, cluster.send, cluster.text
        self.numbers = itertools.count()

    def run(self, *, is_killed: bool) -> None:
        token = f"{next(self.numbers):08x}"
        begin = {"kind": "verb", "time": time.time() + 1, "verb": "submit", "token": token}
        end = {"kind": "verb_end", "time": begin["time"], "token": token, "exit_code": 0}
        told = [begin] if is_killed else [begin, end]
        assert RecordNotes(self, lambda _: "ns").leave("demo", told)  # type: ignore[arg-type]
        self.cluster.told += told

    def down(self) -> None:
        RecordNotes(self, lambda _: "ns").end("demo", JOBS)  # type: ignore[arg-type]


STEPS = st.one_of(
    st.tuples(st.just("command"), st.booleans()),
    st.tuples(st.just("line"), st.integers(1, 3)),
    st.just(("script", 0)),
    st.just(("restart", 0)),
    st.just(("look", 0)),
    st.tuples(st.just("kill"), st.tuples(st.integers(0, 12), st.integers(0, 90))),
)


def step(cluster: MortalCluster, commands: Commands, name: str, value: Any) -> None:
    cluster.now += 40
    if name == "command":
        commands.run(is_killed=value)
    elif name == "line":
        for _ in range(value):
            cluster.lines += 1
            moment = f"2026-11-28T06:{cluster.lines // 60:02}:{cluster.lines % 60:02}.5Z"
            cluster.logs[TASK].append(f"{moment} line {cluster.lines}")
    elif name == "script":
        made = pod(**ended(2))
        made["metadata"] = {
            **made["metadata"], "name": f"s{len(cluster.pods)}",
            "labels": {"batch.kubernetes.io/job-name": f"demo-script-{len(cluster.pods):06x}"},
        }  # fmt: skip
        cluster.pods.append(made)
    elif name == "restart":  # of the pod, between two looks
        cluster.alive = None
    else:
        cluster.left, cluster.torn = value if name == "kill" else (None, 0)
        try:
            cluster.pod().look()
        except Killed:
            cluster.alive = None
        cluster.left = None


def require_whole(cluster: MortalCluster) -> Row:
    """Check that the record has all that was told, once; return the row of its entry."""
    lines = (cluster.path / "facts.jsonl").read_bytes().splitlines()
    found = [fact for fact in map(facts.parse, lines) if fact]
    counts = Counter((fact["kind"], fact["token"]) for fact in found if "token" in fact)
    assert counts == Counter((fact["kind"], fact["token"]) for fact in cluster.told)
    scripts = Counter(fact["command"] for fact in found if fact["kind"] == "script")
    assert scripts == Counter(f"script-{number:06x}" for number in range(1, len(cluster.pods)))
    assert sum(fact["kind"] == "start" for fact in found) == 1
    if cluster.lines:
        kept = [line.split(" ", 2)[2] for line in cluster.kept_log("My_ps-2")]
        assert kept == [f"line {number}" for number in range(1, cluster.lines + 1)]
    return fold(found, "demo", 1).row


@example([("command", False), ("kill", (3, 30)), ("line", 3), ("kill", (5, 20)), ("script", 0), ("kill", (9, 40))])
@example([("line", 3), ("kill", (4, 20)), ("line", 2)])  # which tears a log
@example([("command", False), ("kill", (2, 40)), ("command", True)])  # which tears a fact
@given(st.lists(STEPS, max_size=14))
def test_whatever_is_killed_the_record_has_all_that_was_told_once(steps: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cluster = MortalCluster(Path(folder))
        commands = Commands(cluster)
        for name, value in steps:
            step(cluster, commands, name, value)
        cluster.pod()
        commands.down()
        row = require_whole(cluster)
        assert (row.state, row.reason.startswith(REMOVED) or row.exit_code == 2) == (ENDED, True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the kill
@given(st.lists(STEPS, max_size=8), st.integers(0, 12), st.integers(0, 90))
def test_a_kill_in_the_last_look_damages_nothing(steps: list[tuple[str, Any]], left: int, torn: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cluster = MortalCluster(Path(folder))
        commands = Commands(cluster)
        for name, value in [*steps, ("look", 0)]:
            step(cluster, commands, name, value)
        cluster.left, cluster.torn = left, torn
        commands.down()
        cluster.left = None
        cluster.pod().look()  # as after the next `up`
        require_whole(cluster)
