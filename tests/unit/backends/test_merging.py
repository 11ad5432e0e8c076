"""Records of a shared history in that of this user: each pull adds what is missing, and no pull repeats anything."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tfk8s.backends.history import files, index, merging, places, writing
from tfk8s.backends.history.files import EntryFiles
from tfk8s.backends.history.merging import Merger
from tfk8s.core.history.entry import ENDED, LOST, OPEN, Entry
from tfk8s.core.history.facts import Fact
from tfk8s.core.history.records import MAX_LOG, SharedRecord
from tfk8s.jobfile.loader import loads

UID, OTHER = ("0f7d3c1e-0000-4000-8000-00000000000a", "0f7d3c1e-0000-4000-8000-00000000000b")
PLACE = "context a, namespace team"
START: Fact = {"kind": "start", "time": 100.0, "location": "elsewhere", "who": "pod", "requests": {"cpu": 2.0}}
END: Fact = {"kind": "end", "time": 3700.0, "reason": "max_duration", "lost": False}
JOB_FILE = loads("apiVersion: tfk8s.dev/v1\nname: mnist\njobs: {worker: {tasks: 2, cpu: 1}}\n", "job.yaml")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def record(*facts: Fact, uid: str = UID, mark: str = "m", log: str = "", **more: Any) -> SharedRecord:
    logs = {"worker-0": gzip.compress(log.encode())} if log else {}
    return SharedRecord(cluster="mnist", uid=uid, mark=mark, facts=facts, logs=logs, **more)


def take(*records: SharedRecord) -> list[bool]:
    with Merger("tfk8s-history", PLACE) as merger:
        return [merger.take(one)[0] for one in records]


def only() -> Entry:
    (entry,) = files.of_name("mnist")
    return entry.read()


def lines(entry: EntryFiles) -> list[Fact]:
    return [{**fact, "time": 0} if fact["kind"] == "shared" else fact for fact in entry.facts()]


def test_a_record_becomes_an_entry_at_the_place_of_the_claim() -> None:
    verb: Fact = {"kind": "verb", "time": 101.0, "verb": "submit", "token": "a", "words": ["train.py"]}
    event = {"id": "a", "time": 1.0, "about": "worker/0", "warning": False, "reason": "Scheduled", "message": ""}
    assert take(record(START, verb, END, log="2026 0 one\n2026 0 two\n", events=(event,))) == [True]
    found = only()
    assert (found.row.location, found.row.state, found.row.reason, found.row.cpu) == (PLACE, ENDED, "max_duration", 2.0)
    assert [one.words for one in found.verbs] == [["train.py"]]
    (entry,) = files.of_name("mnist")
    assert [text for _, _, text in entry.log("worker-0")] == ["one", "two"]
    assert entry.events() == [event]
    assert [row.id for row in index.rows()] == ["mnist@1"]


def test_a_later_record_adds_what_is_missing() -> None:
    take(record(START, log="2026 0 one\n"))
    assert only().row.state == OPEN
    assert take(record(START, END, mark="n", log="2026 0 one\n2026 0 two\n")) == [False]
    assert (only().row.state, index.rows()[0].state) == (ENDED, ENDED)
    assert len(list(files.of_name("mnist")[0].log("worker-0"))) == 2


def test_a_record_is_known_by_its_mark() -> None:
    take(record(START, mark="m"))
    with Merger("tfk8s-history", "context of another name") as merger:
        assert merger.has(f"mnist.{UID}", "m")
        assert not merger.has(f"mnist.{UID}", "n")
        assert not merger.has(f"mnist.{OTHER}", "m")
        assert not merger.has(f"mnist.{UID}", "")
        merger.take(record(START, END, mark="n"))
        assert merger.has(f"mnist.{UID}", "n")
    assert len(files.of_name("mnist")) == 1
    assert only().row.location == PLACE


def own_entry(moment: float = 100.0) -> EntryFiles:
    entry = writing.begin("mnist", PLACE, JOB_FILE, moment)
    token = writing.begin_command(entry, "up", [], Path("/"), moment=moment)
    writing.end_command(entry, token, 0, "", [], ("", ""))
    return entry


def test_the_record_of_the_own_commands_is_the_own_entry() -> None:
    entry = own_entry()
    entry.write_log("worker-0", ["2026 0 own"])
    ours = [fact for fact in entry.facts() if fact["kind"] != "start"]
    assert take(record(START, *ours, END, log="2026 0 theirs\n"), record({**START, "time": 5.0}, uid=OTHER)) == [
        False, True
    ]  # fmt: skip
    found = entry.read()
    assert (found.row.state, found.row.reason, len(found.verbs)) == (ENDED, "max_duration", 1)
    assert found.job_file["jobs"]["worker"]["tasks"] == 2
    assert [text for _, _, text in entry.log("worker-0")] == ["own"]
    assert take(record(START, *ours, END, mark="n")) == [False]
    assert len(files.of_name("mnist")) == 2


@pytest.mark.parametrize(("begin", "is_new"), [(60.0, False), (140.0, False), (300.0, True)])
def test_a_record_that_has_no_commands_yet_is_that_of_the_own_up(begin: float, is_new: bool) -> None:
    own_entry()
    assert take(record({**START, "time": begin})) == [is_new]
    assert take(record({**START, "time": begin}, END, mark="n")) == [False]
    assert len(files.of_name("mnist")) == 1 + is_new


def test_a_log_of_several_looks_is_whole_but_for_what_is_torn() -> None:
    first, second, torn = (gzip.compress(f"2026 0 {word}\n".encode()) for word in ("one", "two", "three"))
    made = dataclasses.replace(record(START), logs={"worker-0": first + second + torn[:5]})
    take(made)
    (entry,) = files.of_name("mnist")
    assert [text for _, _, text in entry.log("worker-0")] == ["one", "two"]


def test_logs_of_a_record_have_a_size_after_which_the_others_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MAX_LOGS", 5 * MAX_LOG)
    logs = {f"worker-{number}": gzip.compress(b"\n" * MAX_LOG) for number in range(9)}
    bomb = {"worker-9": gzip.compress(b"\n" * (MAX_LOG + 1))}
    result = merging.Pulled()
    with Merger("tfk8s-history", PLACE) as merger:
        merger.take_into(dataclasses.replace(record(START), logs=bomb | logs, problem="lacks facts"), result)
    assert result.problems == [f"record mnist.{UID} lacks facts; lacks 5 logs: it is too large"]
    (entry,) = files.of_name("mnist")
    assert list(entry.logs()) == ["worker-0", "worker-1", "worker-2", "worker-3"]


def test_records_after_too_many_logs_are_left_to_the_next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MAX_UNPACKED", 20)
    result = merging.Pulled(left_out=1)
    records = [
        record({**START, "time": 1e6 * number}, uid=f"{number}{UID[1:]}", log="2026 0 one\n") for number in range(5)
    ]
    with Merger("tfk8s-history", PLACE) as merger:
        for one in records:
            merger.take_into(one, result)
        assert [merger.has(one.name, "m") for one in records] == [True, True, False, False, False]
    assert (result.new, result.left_out, result.problems) == (2, 4, [])


def test_a_log_of_empty_lines_costs_what_it_contains() -> None:
    """Lines one by one took 6 seconds."""
    packed, begin = gzip.compress(b"\n" * MAX_LOG), time.process_time()
    take(dataclasses.replace(record(START), logs={f"worker-{number}": packed for number in range(20)}))
    assert time.process_time() - begin < 3


def test_the_end_of_a_long_log_is_taken() -> None:
    take(record(START, log="".join(f"2026 0 {number:0100}\n" for number in range(15_000))))
    (entry,) = files.of_name("mnist")
    lines = [text for _, _, text in entry.log("worker-0")]
    assert (int(lines[-1]), len(lines)) == (14_999, files.MAX_LOG // 108)


def test_a_command_that_was_cut_on_its_way_changes_nothing() -> None:
    entry = own_entry()
    whole = next(fact for fact in entry.facts() if fact["kind"] == "verb")
    before = entry.read().verbs
    take(record(START, {**whole, "words": []}))
    assert entry.read().verbs == before


def test_the_end_that_somebody_saw_replaces_a_guess() -> None:
    entry = own_entry()
    ours = entry.facts()
    writing.lose("mnist", PLACE, "lost: nobody saw how")
    assert entry.read().row.state == LOST
    take(record(*ours, END))
    assert (entry.read().row.state, entry.read().row.ended, index.rows()[0].state) == (ENDED, 3700.0, ENDED)
    take(record(*ours, END, {**END, "time": 9.0}, mark="n"))
    assert entry.read().row.ended == 3700.0


def test_an_entry_that_knows_the_record_is_its_entry() -> None:
    entry = own_entry()
    entry.add("shared", uid=UID)
    assert take(record(START, END)) == [False]
    assert entry.read().row.state == ENDED


@pytest.mark.parametrize("facts", [(), (END,), ({"kind": "start"},), ({"kind": "start", "time": "x"},)])
def test_a_record_without_a_start_is_refused_and_leaves_no_entry(facts: Sequence[Fact]) -> None:
    with pytest.raises(ValueError, match="nothing tells its start"):
        take(record(*facts))
    assert index.rows() == []
    assert files.of_name("mnist") == []


def test_a_record_tells_nothing_of_another_record() -> None:
    take(record({"kind": "shared", "time": 1.0, "uid": OTHER, "mark": "m"}, START, {"kind": "odd", "time": 2.0}))
    (entry,) = files.of_name("mnist")
    assert {fact.get("uid") for fact in entry.facts()} == {None, UID}
    assert {fact["kind"] for fact in entry.facts()} == {"shared", "start"}


def test_facts_beyond_the_size_of_an_entry_are_left_out_but_its_end_is_not() -> None:
    many = [{"kind": "tasks", "time": 200.0 + number, "progress": "x" * 1_000_000} for number in range(9)]
    ends = [{**END, "time": number, "reason": "x" * 1_000_000} for number in range(9)]
    take(record(START, *many, *ends))
    (entry,) = files.of_name("mnist")
    assert entry.size() <= files.MAX_FACTS + 4000
    assert [fact["kind"] for fact in entry.facts()].count("end") == 1
    assert entry.read().row.state == ENDED


def test_an_old_record_is_not_the_current_cluster() -> None:
    """Its number is higher than that of the cluster that runs."""
    own = own_entry(5000.0)
    take(record(START, END), record({**START, "time": 4000.0}, uid=OTHER))
    assert [entry.number for entry in files.of_name("mnist")] == [1, 2, 3]
    assert writing.find_open("mnist", PLACE) == own
    assert "mnist@1 shows" in places.advice("mnist", PLACE)
    writing.end(own, "done")
    assert writing.find_open("mnist", PLACE) is None
    take(record({**START, "time": 6000.0}, uid=OTHER.replace("b", "c")))
    found = writing.find_open("mnist", PLACE)
    assert found is not None
    assert found.id == "mnist@4"


def test_the_lost_end_of_a_record_is_its_last_time() -> None:
    take(record(START, {"kind": "tasks", "time": 700.0, "tasks": []}, log="2026 0 one\n"))
    writing.lose("mnist", PLACE, "lost: it was removed")
    assert (only().row.state, only().row.ended) == (LOST, 700.0)


def test_a_damaged_log_and_a_log_bomb_are_left_out() -> None:
    bomb = gzip.compress(b"0 " * (3 << 20))
    take(dataclasses.replace(record(START), logs={"worker-0": b"nothing", "worker-1": bomb, "worker-2": bomb[:99]}))
    assert list(files.of_name("mnist")[0].logs()) in ([], ["worker-2"])


def test_other_commands_wait_while_records_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "LOCK_TIMEOUT", 0.01)
    with Merger("tfk8s-history", PLACE), pytest.raises(Exception, match="another command to take records"):
        take(record(START))


_KINDS = st.sampled_from(["start", "requests", "verb", "verb_end", "tasks", "script", "end", "shared", "odd"])
_VALUES = st.one_of(
    st.fixed_dictionaries({"token": st.sampled_from("abc"), "exit_code": st.integers(0, 2)}),
    st.fixed_dictionaries({"requests": st.fixed_dictionaries({"cpu": st.integers(0, 3)})}),
    st.fixed_dictionaries({"reason": st.text(max_size=3), "lost": st.booleans()}),
    st.fixed_dictionaries({"location": st.sampled_from(["x", "y"]), "job_file": st.just({"name": "mnist"})}),
)
_FACTS = st.lists(
    st.tuples(_KINDS, st.integers(1, 5), _VALUES).map(lambda one: {"kind": one[0], "time": one[1], **one[2]}),
    max_size=8,
)
_TRIES = itertools.count()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_FACTS, st.lists(st.integers(0, 9), max_size=5))
def test_any_pulls_of_a_record_that_grows_give_the_same_entry(facts: list[Fact], lengths: list[int]) -> None:
    """Pulls may come in any order and again, and by contexts of other names."""
    name = f"mnist-{next(_TRIES)}"
    facts = [START, *facts]

    def pull(cluster: str, length: int, uid: str) -> None:
        with Merger("tfk8s-history", PLACE) as merger:
            merger.take(SharedRecord(cluster=cluster, uid=uid, mark=str(length), facts=tuple(facts[:length])))

    for length in (*(1 + length for length in lengths), len(facts)):
        pull(name, length, UID)
    pull(f"{name}-once", len(facts), UID)
    found, once = (files.of_name(cluster) for cluster in (name, f"{name}-once"))
    assert len(found) == len(once) == 1
    rows = [dataclasses.replace(entry.read().row, name="", size=0) for entry in (*found, *once)]
    assert rows[0] == rows[1]
    assert found[0].read().verbs == once[0].read().verbs
    assert found[0].read().tasks == once[0].read().tasks
    before = lines(found[0])
    pull(name, len(facts), UID)
    assert [fact for fact in lines(found[0]) if fact["kind"] != "shared"] == [
        fact for fact in before if fact["kind"] != "shared"
    ]


def test_the_history_of_many_records_is_merged_soon() -> None:
    """A pull reads each entry of a name once, and not again for each record."""
    for number in range(300):
        take_one = json.dumps({**START, "time": float(number)})
        folder = files.made_root() / "mnist" / str(number + 1)
        folder.mkdir(parents=True, mode=0o700)
        (folder / "facts.jsonl").write_text(take_one + "\n")
    begin = time.process_time()
    take(*(record({**START, "time": 1000.0 + number}, uid=f"{number:036x}") for number in range(30)))
    assert time.process_time() - begin < 2
