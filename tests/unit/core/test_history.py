"""The facts of the history, and what is kept out of them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.backends.plain_data import job_file_to_dict
from tfk8s.core.history import entry, facts, redaction
from tfk8s.core.history.entry import PastTask, Row
from tfk8s.core.history.facts import Fact, cost
from tfk8s.jobfile.loader import loads

START: Fact = {"kind": "start", "time": 100.0, "location": "this machine", "who": "ada@laptop"}
JOB_FILE = """\
apiVersion: tfk8s.dev/v1
name: mnist
env: {SHARED: hunter2-hunter2}
jobs:
  worker:
    env: {OWN: swordfish-swordfish, LEVEL: "1"}
    program: [python3, -m, train, --api-key, opensesame1, --level=1, "https://bob:letmein@host/x"]
    pod: {containers: [{name: side, image: x, env: [{name: MORE, value: correct-horse}]}]}
"""


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--steps", "100", "--api-key", "abc"], ["--steps", "100", "--api-key", "…"]),
        (["--HF_TOKEN=abc", "--token", "abc"], ["--HF_TOKEN=…", "--token", "…"]),
        (["-password", "abc", "key", "abc"], ["-password", "…", "key", "abc"]),
        (["sh", "-c", "login --client-secret 'a b' x && DB_PASSWORD=abc run"],
         ["sh", "-c", "login --client-secret … x && DB_PASSWORD=… run"]),
        (["--monkey", "banana", "monkeys=3"], ["--monkey", "…", "monkeys=3"]),
        (["https://bob:abc@host/p", "s3://abc@bucket/x", "gs://bucket/x@y"],
         ["https://host/p", "s3://bucket/x", "gs://bucket/x@y"]),
        (["https://host/x?api_key=abc&y=1"], ["https://host/x?api_key=…&y=1"]),
        (["--token=abc,def&ghi", "--password=my phrase", "API_KEY=a&b"], ["--token=…", "--password=…", "API_KEY=…"]),
        (["https://a@b:c@host/x"], ["https://host/x"]),
        (["git@github.com:org/repo", "bob:abc@host:repo"], ["github.com:org/repo", "host:repo"]),
    ],
)  # fmt: skip
def test_words_lose_their_secrets(words: list[str], kept: list[str]) -> None:
    assert redaction.words(words) == kept


def test_a_job_file_keeps_the_names_of_variables() -> None:
    plain = redaction.job_file(job_file_to_dict(loads(JOB_FILE, "job.yaml")))
    worker = plain["jobs"]["worker"]
    assert plain["env"] == {"SHARED": "…"}
    assert worker["env"] == {"OWN": "…", "LEVEL": "…"}
    assert worker["pod"]["containers"][0]["env"] == [{"name": "MORE", "value": "…"}]
    assert worker["program"]["words"] == ["python3", "-m", "train", "--api-key", "…", "--level=1", "https://host/x"]


def test_only_variables_are_variables() -> None:
    plain = {
        "labels": {"env": "prod"},
        "jobs": {
            "env": {"env": {"API": "swordfish-swordfish"}, "node_selector": {"env": "x"}, "command": ["env", "y"]}
        },
    }
    kept = redaction.job_file(plain)
    assert kept["labels"] == {"env": "prod"}
    assert kept["jobs"]["env"] == {"env": {"API": "…"}, "node_selector": {"env": "x"}, "command": ["env", "y"]}
    assert redaction.secrets_of(plain) == {"swordfish-swordfish"}


def test_short_values_stay_in_texts() -> None:
    assert redaction.text("exit code 3 of worker/3", ["", "3", "hunter2-hunter2"]) == "exit code 3 of worker/3"


@pytest.mark.parametrize("part", ["a.", "-a", "a://", "key=", "a@"])
def test_long_texts_take_linear_time(part: str) -> None:
    start = time.process_time()
    redaction.text(part * 100_000)
    assert time.process_time() - start < 5  # quadratic time would take minutes


def test_values_of_variables_are_found_in_other_texts() -> None:
    secrets = redaction.secrets_of(job_file_to_dict(loads(JOB_FILE, "job.yaml")))
    assert secrets == {"hunter2-hunter2", "swordfish-swordfish", "correct-horse"}
    assert redaction.text("login failed: hunter2-hunter2", secrets) == "login failed: …"


def test_an_entry_tells_commands_tasks_totals_and_the_end() -> None:
    hour = 3600.0
    task = {"task": "worker/0", "phase": "Ready", "restarts": 2, "exit_code": None, "reason": "killed"}
    facts: list[Fact] = [
        {**START, "requests": {"cpu": 4, "memory": 2 << 30, "gpus": 1}},
        {"kind": "verb", "time": 100.0, "verb": "up", "token": "a", "words": [], "who": "ada@laptop"},
        {"kind": "verb_end", "time": 101.0, "token": "a", "exit_code": 0, "commit": "c0ffee-dirty"},
        {"kind": "requests", "time": 100.0 + hour, "requests": {"cpu": 8, "memory": 2 << 30, "gpus": 1}},
        {"kind": "verb", "time": 200.0, "verb": "submit", "token": "b", "words": ["train.py"]},
        {"kind": "tasks", "time": 100.0 + 2 * hour, "tasks": [task], "progress": "3/4 (75%)", "exit_code": None},
        {"kind": "end", "time": 100.0 + 2 * hour, "reason": "was removed by `tfk8s down`", "lost": False},
        {"kind": "verb_end", "time": 100.0 + 2 * hour, "token": "b", "exit_code": 130, "reason": "interrupted"},
    ]
    found = entry.fold(facts, "mnist", 3)
    assert found.row == Row(
        name="mnist", number=3, location="this machine", who="ada@laptop", started=100.0, ended=100.0 + 2 * hour,
        state="ended", exit_code=130, reason="interrupted", progress="3/4 (75%)", commit="c0ffee-dirty",
        cpu=12.0, memory=4.0, gpus=2.0,
    )  # fmt: skip
    assert [(verb.verb, verb.exit_code) for verb in found.verbs] == [("up", 0), ("submit", 130)]
    assert found.tasks == [PastTask(task="worker/0", phase="Ready", restarts=2, reason="killed")]
    assert entry.parse_row(json.dumps({**row_values(found.row)}).encode()) == found.row


def row_values(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__dataclass_fields__}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3), max_leaves=5,
)  # fmt: skip
_KINDS = st.sampled_from(["start", "verb", "verb_end", "requests", "tasks", "script", "end"])
_NAMES = st.sampled_from(
    ["time", "tasks", "requests", "words", "token", "exit_code", "reason", "progress", "lost", "job_file", "verb"]
)


@given(st.lists(st.tuples(_KINDS, st.dictionaries(_NAMES, _JSON)), max_size=6))
def test_hostile_facts_break_nothing(parts: list[tuple[str, dict[str, Any]]]) -> None:
    facts = [{"kind": kind, "time": 5.0, **values} for kind, values in parts]
    found = entry.fold([START, *facts], "mnist", 1)
    assert entry.parse_row(json.dumps(row_values(found.row)).encode()) == found.row


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"1", b"\xff", b'{"a": "\\ud800"}', b"[" * 100_000, b'"' + b"x" * facts.MAX_LINE + b'"']
)
def test_a_damaged_line_is_no_fact(line: bytes) -> None:
    assert facts.parse(line) is None


@pytest.mark.parametrize(
    "damage", [{"name": "../x"}, {"number": 0}, {"number": True}, {"started": 1e300}, {"cpu": "1"}]
)
def test_a_damaged_row_is_none(damage: dict[str, Any]) -> None:
    row = Row(name="mnist", number=1, location="this machine")
    assert entry.parse_row(json.dumps({**row_values(row), **damage}).encode()) is None


def test_without_a_start_there_is_no_entry() -> None:
    with pytest.raises(ValueError, match="nothing tells its start"):
        entry.fold([{"kind": "end", "time": 1.0}], "mnist", 1)


@pytest.mark.parametrize(
    ("verbs", "reason"),
    [(["run"], "was removed at the end of its `run`"), (["run", "down"], entry.REMOVED), (["up"], entry.REMOVED)],
)
def test_the_end_of_a_run_is_its_reason(verbs: list[str], reason: str) -> None:
    facts = [{"kind": "verb", "time": 101.0, "verb": verb, "token": verb} for verb in verbs]
    end = {"kind": "end", "time": 102.0, "reason": entry.REMOVED}
    assert entry.fold([START, *facts, end], "mnist", 1).row.reason == reason


def test_several_tell_the_start_and_facts_have_any_order() -> None:
    facts: list[Fact] = [
        {"kind": "shared", "time": 9000.0, "uid": "x"},
        {"kind": "end", "time": 300.0, "reason": "max_duration"},
        {"kind": "tasks", "time": 200.0, "progress": "2/4"},
        {**START, "time": 101.0, "who": "bob@pc", "job_file": {"name": "mnist"}, "requests": {"cpu": 36.0}},
        {"kind": "odd", "time": 8000.0, "requests": {"cpu": 99.0}},
        {"kind": "tasks", "time": 150.0, "progress": "1/4"},
        {**START, "who": "", "requests": {"cpu": 0.0}},
    ]
    for order in (facts, facts[::-1]):
        found = entry.fold(order, "mnist", 1)
        assert (found.row.started, found.row.who, found.row.ended, found.row.progress) == (
            100.0,
            "bob@pc",
            300.0,
            "2/4",
        )
        assert (found.job_file, found.row.cpu) == ({"name": "mnist"}, pytest.approx(1.99))
        assert entry.fold([fact for fact in order if fact["kind"] != "end"], "mnist", 1).row.state == "open"


def test_an_end_that_somebody_saw_counts_before_a_guess() -> None:
    guess: Fact = {"kind": "end", "time": 200.0, "reason": "lost", "lost": True}
    seen: Fact = {"kind": "end", "time": 300.0, "reason": "idle", "lost": False}
    assert entry.fold([START, guess], "mnist", 1).row.state == "lost"
    for told in ([START, guess, seen], [START, seen, guess]):
        row = entry.fold(told, "mnist", 1).row
        assert (row.state, row.ended, row.reason) == ("ended", 300.0, "idle")


def test_costs_follow_the_rates_of_their_time() -> None:
    facts: list[Fact] = [
        {**START, "requests": {"cpu": 1.0, "price": 3.6, "currency": "EUR"}},
        {"kind": "tasks", "time": 1100.0, "requests": {"cpu": 2.0, "price": 7.2, "currency": "EUR"}},
        {"kind": "tasks", "time": 2100.0, "requests": {"cpu": 0.0}},
        {"kind": "end", "time": 9100.0, "reason": "x"},
    ]
    row = entry.fold(facts, "mnist", 1).row
    assert (row.cost, row.currency) == (pytest.approx(3.0), "EUR")
    assert cost(facts[:1], 3700.0) == (pytest.approx(3.6), "EUR")


def test_costs_of_another_currency_are_left_out() -> None:
    facts: list[Fact] = [
        {**START, "requests": {"price": 3.6, "currency": "EUR"}},
        {"kind": "tasks", "time": 1100.0, "requests": {"price": 7.2, "currency": "USD"}},
        {"kind": "end", "time": 1600.0, "reason": "x"},
    ]
    row = entry.fold(facts, "mnist", 1).row
    assert (row.cost, row.currency) == (pytest.approx(1.0), "USD")
    assert cost([START], 200.0) == (0.0, "")


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        ([("scale", 2, "it can't have 0 tasks")], ""),
        ([("submit", 2, "there is no script a.py")], ""),
        ([("submit", 3, "worker/1 is gone"), ("submit", 2, "there is no script a.py")], "worker/1 is gone"),
        ([("submit", 3, "worker/1 is gone")], "worker/1 is gone"),
        ([("submit", 3, "worker/1 is gone"), ("submit", 0, "")], ""),
        ([("up", 124, "worker/0 is pending"), ("up", 0, ""), ("scale", 2, "it can't have 0 tasks")], ""),
        ([("up", 124, "worker/0 is pending"), ("scale", 0, "")], "worker/0 is pending"),
    ],
)
def test_a_reason_is_that_of_the_last_start_or_script(later: list[tuple[str, int, str]], reason: str) -> None:
    facts: list[Fact] = [START]
    for number, (verb, code, why) in enumerate(later):
        time, token = 200.0 + number, str(number)
        facts.append({"kind": "verb", "time": time, "token": token, "verb": verb, "words": []})
        facts.append({"kind": "verb_end", "time": time, "token": token, "exit_code": code, "reason": why})
    assert entry.fold(facts, "mnist", 1).row.reason == reason


def test_a_refused_command_hides_no_end() -> None:
    facts: list[Fact] = [
        START,
        {"kind": "verb", "time": 200.0, "token": "1", "verb": "submit", "words": []},
        {"kind": "verb_end", "time": 200.0, "token": "1", "exit_code": 2, "reason": "--detach is for Kubernetes"},
        {"kind": "end", "time": 300.0, "reason": "has ended after 25s without a session and a script (idle)"},
    ]
    row = entry.fold(facts, "mnist", 1).row
    assert (row.exit_code, row.reason) == (None, "has ended after 25s without a session and a script (idle)")
