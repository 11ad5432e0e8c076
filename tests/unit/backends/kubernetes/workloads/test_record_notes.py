"""The notes that commands leave for the record of a cluster, and the end of the record."""

from __future__ import annotations

import time
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.workloads import record_notes
from tfk8s.backends.kubernetes.workloads.record_notes import RecordNotes
from tfk8s.core.history.facts import REMOVED
from tfk8s.core.history.shared import MAX_NOTES, of_notes
from tfk8s.core.job_file.mappings import SharedHistory
from tfk8s.errors import InvalidInput

RECORDED = job_file("demo", worker=1, image="tf:1", history=SharedHistory(claim="past"))
LIMITED = job_file("demo", worker=1, image="tf:1", max_duration=60)
FORBIDDEN = ApiError(403, "no")


class NoteServer:
    """An API server with the ServiceAccount of a cluster, the pod of its Job, and perhaps a claim."""

    def __init__(self, *phases: str) -> None:
        self.annotations: dict[str, str] = {"another": "one"}
        self.phases, self.sent = list(phases), list[str]()
        self.error: BaseException | None = None
        self.texts = ["", "keeping"]  # of the pod's log, one after the other
        self.claim: dict[str, Any] | None = {}
        self.spec: dict[str, Any] = {"containers": [{"name": "lifetime"}]}

    def send(self, method: str, path: str, query: object, change: Any = None, content_type: str = "") -> object:
        self.sent.append(f"{method} {path.rpartition('/')[2]}")
        if self.error:
            raise self.error
        if method == "PATCH":
            merged = {**self.annotations, **change["metadata"]["annotations"]}
            self.annotations = {key: value for key, value in merged.items() if value is not None}
        return {"metadata": {"annotations": self.annotations}}

    def get(self, path: str, query: object) -> object:
        phase = self.phases.pop(0) if self.phases else None
        pod = {"metadata": {"name": "a", "namespace": "ns"}, "spec": self.spec, "status": {"phase": phase}}
        return {"items": [pod] if phase else []}

    def text(self, path: str, query: object) -> str:
        self.sent.append(f"GET {path.rpartition('/')[2]}")
        return self.texts.pop(0)

    def find(self, path: str) -> object:
        if self.error:
            raise self.error
        return self.claim


def notes(server: NoteServer) -> RecordNotes:
    return RecordNotes(server, lambda _: "ns")  # type: ignore[arg-type]


def jobs(of: Any = RECORDED) -> list[Any]:
    return [item for item in render.objects(of) if item["kind"] == "Job"]


def verb(number: int = 0) -> dict[str, Any]:
    return {"kind": "verb", "time": time.time() + number, "verb": "up", "token": f"{number:08x}"}


def test_clusters_with_a_record() -> None:
    left = notes(NoteServer())
    assert not left.has_record("demo")
    left.see("demo", jobs())
    assert left.has_record("demo")
    left.applied(LIMITED)
    assert not left.has_record("demo")
    left.applied(RECORDED)
    assert left.has_record("demo")
    left.see("demo", jobs(LIMITED))
    assert not left.has_record("demo")


def test_each_fact_of_this_process_is_left_once() -> None:
    server, earlier = NoteServer(), {**verb(), "time": time.time() - 100}
    left = notes(server)
    first, second = verb(1), verb(2)
    left.leave("demo", [earlier, first])
    left.leave("demo", [earlier, first, second])
    left.leave("demo", [earlier, first, second])
    assert of_notes(server.annotations) == [first, second]
    assert server.sent == ["PATCH demo-lifetime"] * 2


@pytest.mark.parametrize(("phases", "is_written"), [(["Running"], True), ([], False), (["Pending"], False)])
def test_many_notes_make_room_and_those_that_nobody_has_written_are_counted(
    phases: list[str], is_written: bool
) -> None:
    server, facts = NoteServer(*phases), [verb(number) for number in range(1, 1201)]
    server.spec = {"containers": [{"name": "lifetime", "env": [{"name": "TFK8S_HISTORY", "value": "logs"}]}]}
    left = notes(server)
    for number in range(0, 1200, 100):
        left.leave("demo", facts[number : number + 100])
    found = of_notes(server.annotations)
    kept = [fact for fact in found if fact["kind"] == "verb"]
    assert kept == facts[-len(kept) :]
    assert len(kept) < 1200
    counts = [fact["count"] for fact in found if fact["kind"] == "missing"]
    assert sum(counts) == (0 if is_written else 1200 - len(kept))
    assert server.annotations["another"] == "one"


def test_a_session_of_many_commands_leaves_the_newest_facts() -> None:
    server, facts = NoteServer(), [verb(number) for number in range(1, 3001)]
    assert notes(server).leave("demo", facts)
    kept = of_notes(server.annotations)
    assert kept == facts[-len(kept) :]
    assert sum(map(len, (*server.annotations, *server.annotations.values()))) < MAX_NOTES


def test_a_user_without_the_right_works_without_notes() -> None:
    server = NoteServer()
    server.error = FORBIDDEN
    left = notes(server)
    left.leave("demo", [first := verb(1)])
    server.error = None
    left.leave("demo", [first])
    assert of_notes(server.annotations) == [first]


def test_the_end_waits_for_the_pod_that_writes() -> None:
    server = NoteServer("Running", "Running", "Running", "Running", "Succeeded")
    notes(server).end("demo", jobs())
    assert [fact["reason"] for fact in of_notes(server.annotations)] == [REMOVED]
    assert server.phases == []
    logs = ["GET log?container=lifetime"] * 2  # a signal before the first line would end the pod without a word
    assert server.sent == ["PATCH demo-lifetime", *logs, f"DELETE {jobs()[0]['metadata']['name']}"]


@pytest.mark.parametrize(("error", "words"), [(FORBIDDEN, "no"), (KeyboardInterrupt(), "interrupted")])
def test_nothing_keeps_a_cluster_from_being_removed(
    error: BaseException, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise error

    server = NoteServer()
    monkeypatch.setattr(server, "get", fail)
    notes(server).end("demo", jobs())
    assert caplog.messages == [f'the shared history may lack the end of cluster "demo": {words}']


def test_a_missing_claim_is_refused() -> None:
    server = NoteServer()
    record_notes.require_claim(server, "ns", RECORDED)  # type: ignore[arg-type]
    server.claim = None
    record_notes.require_claim(server, "ns", LIMITED)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r'namespace "ns" has no claim "past" for the history'):
        record_notes.require_claim(server, "ns", RECORDED)  # type: ignore[arg-type]
    server.error = FORBIDDEN  # whoever may not read claims
    record_notes.require_claim(server, "ns", RECORDED)  # type: ignore[arg-type]


def test_without_the_note_the_other_objects_are_removed_at_once() -> None:
    server = NoteServer("Running")
    server.error = FORBIDDEN
    notes(server).end("demo", jobs())
    assert server.sent == ["PATCH demo-lifetime"]
