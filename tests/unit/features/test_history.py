"""The command `history`, and entries in place of clusters."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from fakes.command_line import NOW, Run

import tfk8s
from tfk8s.backends.history import files, index, writing
from tfk8s.backends.history.files import EntryFiles
from tfk8s.backends.history.merging import Pulled
from tfk8s.core.progress import StepProgress
from tfk8s.core.resources import named
from tfk8s.jobfile.loader import loads
from tfk8s.testing import FakeBackend, change

pytest_plugins = ("fakes.command_line",)
STARTED = NOW - 312


@pytest.fixture(autouse=True)
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EntryFiles:
    """An entry that has ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(writing, "who", lambda: "ada@laptop")
    job_file = loads("apiVersion: tfk8s.dev/v1\nname: mnist\njobs: {worker: {tasks: 2, cpu: 1}}\n", "job.yaml")
    made = writing.begin("mnist", writing.HERE, job_file, STARTED)
    token = writing.begin_command(made, "submit", ["train.py", "--token", "abc"], Path("/home/ada"), moment=STARTED)
    writing.end_command(made, token, 3, "worker/1 is gone\nand more", [], ("c0ffee0123456789-dirty", "https://a@h/x"))
    status = FakeBackend(job_file).statuses["mnist"]
    said = StepProgress(step=3, total=4, metrics={"loss": "0.5"})
    status = change("worker/0", restarts=1, progress=said)(status)
    writing.add_status(made, dataclasses.replace(status, requests=named(job_file)))
    writing.end(made, "was removed by `tfk8s down`", moment=STARTED + 72)
    made.write_log("worker-0", ["2026-11-22T10:17:03.120395Z 0 one", "2026-11-22T10:17:04.120395Z 1 two"])
    made.write_log("worker-1", ["2026-11-22T10:17:03.120395Z 0 three"])
    made.write_log("script-4e9c21", [" 0 four"])
    made.write_events([{"time": STARTED, "task": "worker/0", "phase": "Ready", "reason": ""}, {"time": "x"}])
    return made


def test_history_lists_entries(run: Run) -> None:
    code, out, err = run("history")
    assert (code, err) == (0, "")
    assert out == (
        "ENTRY    STATE  EXIT  AGE    LASTED  PROGRESS             COMMIT       LOCATION      REASON\n"
        "mnist@1  ended  3     5m12s  1m12s   3/4 (75%), loss=0.5  c0ffee0123*  this machine  worker/1 is gone\n"
    )
    assert run("history", "other") == (0, "", 'nothing named "other" ran\n')


def test_history_as_json(run: Run) -> None:
    (found,) = json.loads(run("history", "-o", "json")[1])
    assert found["entry"] == "mnist@1"
    assert found["progress"]["metrics"] == {"loss": 0.5}
    assert found["hours"] == {"cpu": 0.04, "memory": 0.0, "gpus": 0.0}


def test_status_shows_an_entry(run: Run) -> None:
    code, out, _ = run("status", "mnist@1")
    assert code == 0
    assert "requested: 0.04 CPU hours\n" in out
    assert "submit   3     5m12s" in out
    assert "train.py --token '…'  worker/1 is gone\n" in out
    document = json.loads(run("status", "mnist@1", "-o", "json")[1])
    assert document["tasks"][0]["restarts"] == 1
    assert document["commands"][0]["words"] == ["train.py", "--token", "…"]
    assert document["job_file"]["jobs"]["worker"]["tasks"] == 2


def test_logs_of_an_entry(run: Run) -> None:
    assert run("logs", "mnist@1", "worker/0")[:2] == (0, "one\ntwo\n")
    assert run("logs", "mnist@1")[1] == "worker/0 | one\nworker/0 | two\nworker/1 | three\n"
    assert run("logs", "mnist@1", "worker", "--tail", "1")[1] == "worker/0 | two\nworker/1 | three\n"
    assert run("logs", "mnist@1", "--previous")[1] == "worker/0 | one\n"
    assert run("logs", "mnist@1", "worker/1", "--timestamps")[1] == "2026-11-22T10:17:03.120395Z three\n"
    assert run("logs", "mnist@1", "script-4e9c21")[1] == "four\n"
    line = json.loads(run("logs", "mnist@1", "worker/1", "-o", "json")[1])
    assert (line["task"], line["time"], line["text"]) == ("worker/1", "2026-11-22T10:17:03.120395Z", "three")


def test_events_of_an_entry(run: Run) -> None:
    code, out, _ = run("events", "mnist@1")
    assert (code, out.splitlines()[1]) == (0, "5m12s  Normal  worker/0  Ready   1")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["status", "mnist@7"], "error: the history has no entry mnist@7; the last one is mnist@1\n"),
        (["logs", "other@1"], "error: the history has no entry other@1\n"),
        (["logs", "mnist@1", "ps/0"], 'error: there is no task "ps/0"; '),
        (["logs", "-f", "mnist@1"], "error: logs of the history can't be followed\n"),
        (["status", "-w", "mnist@1"], "error: an entry of the history can't be watched\n"),
        (["events", "-w", "mnist@1"], "error: an entry of the history can't be watched\n"),
        (["history", "--last", "0"], "error: "),
    ],
)
def test_errors(run: Run, words: list[str], error: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith(error)


def test_a_damaged_log_is_named(run: Run, entry: EntryFiles) -> None:
    (entry.path / "logs" / "worker-0.gz").write_bytes(b"\x1f\x8b nothing")
    code, _, errors = run("logs", "mnist@1", "worker/0")
    assert (code, errors) == (1, f"error: {entry.path}/logs/worker-0.gz is damaged: remove it\n")


def test_control_characters_of_an_entry_show(run: Run, entry: EntryFiles) -> None:
    writing.end(second := writing.begin("mnist", "\x1b]0;title\x07", None), "\x1b[2J")
    assert "\x1b" not in run("history")[1] + run("status", second.id)[1]


def test_ten_thousand_entries_are_listed_from_the_index_alone(run: Run, entry: EntryFiles) -> None:
    line = (files.root() / "index.jsonl").read_bytes().splitlines()[-1]
    lines = [line.replace(b'"number": 1', b'"number": %d' % number) for number in range(2, 10_002)]
    (files.root() / "index.jsonl").write_bytes(b"\n".join([line, *lines]) + b"\n")
    assert len(index.rows()) == 10_001
    assert len(run("history")[1].splitlines()) == 1 + 30


def test_diff_of_two_entries(run: Run, entry: EntryFiles) -> None:
    job_file = loads("apiVersion: tfk8s.dev/v1\nname: mnist\njobs: {worker: {tasks: 3, cpu: 1}}\n", "job.yaml")
    writing.end(writing.begin("mnist", writing.HERE, job_file, STARTED), "done", moment=STARTED + 60)
    code, out, _ = run("diff", "mnist@1", "mnist@2")
    assert code == 1
    assert "jobs.worker.tasks: 2 → 3\n" in out
    assert "command: submit train.py --token '…' → none\n" in out
    assert "lasted: 1m12s → 1m\n" in out
    fields = json.loads(run("diff", "mnist@1", "mnist@2", "-o", "json")[1])["fields"]
    assert {"path": "exit_code", "before": 3, "after": None} in fields
    assert run("diff", "mnist@2", "mnist@2") == (0, "", "mnist@2 and mnist@2 do not differ\n")
    assert run("diff", "mnist@1")[2].startswith("error: mnist@1 can be compared with another entry only\n")
    assert run("diff", "cluster.yaml", "mnist@1")[2].startswith('error: "cluster.yaml" is no entry of the history\n')


def test_prune_removes_by_age_and_number(run: Run, entry: EntryFiles) -> None:
    writing.begin("mnist", writing.HERE, None, STARTED + 9)
    assert run("history", "--prune", "--older", "1") == (0, "removed 0 entries of the history\n", "")
    assert run("history", "--prune", "--keep", "1")[1] == "removed 1 entry of the history\n"
    assert not (entry.path / "facts.jsonl").exists()
    assert run("history", "--keep", "1")[2].startswith("error: --older and --keep need --prune\n")
    assert run("history", "mnist", "--prune")[2].startswith("error: --prune concerns the entries of all names\n")


def test_costs_show_where_rates_are_known(run: Run, backend: FakeBackend) -> None:
    assert "COST" not in run("ls")[1] + run("history")[1]
    (location,) = {status.location for status in backend.statuses.values()}
    priced = writing.begin("mnist", location, None, NOW - 3600)
    priced.add("tasks", moment=NOW - 3600, requests={"price": 2.5, "currency": "EUR"})
    assert "  2.50 EUR" in run("ls")[1]
    assert "  2.50 EUR" in run("status", "mnist")[1]
    assert json.loads(run("ls", "-o", "json")[1])[0]["cost"] == {"amount": 2.5, "currency": "EUR"}
    writing.end(priced, "was removed by `tfk8s down`", moment=NOW - 1800)
    assert "  1.25 EUR  " in run("history")[1]
    assert "cost: 1.25 EUR\n" in run("status", "mnist@2")[1]
    found = json.loads(run("history", "-o", "json")[1])
    assert [row["cost"] for row in found] == [None, {"amount": 1.25, "currency": "EUR"}]


class Claim:
    """A shared history, as a backend gives it."""

    def __init__(self, pulled: Pulled) -> None:
        self.pulled, self.asked = pulled, list[tuple[object, ...]]()

    def pull_history(self, claim: str | None, *, cluster: str | None, last: int, image: str | None) -> Pulled:
        self.asked.append((claim, cluster, last, image))
        return self.pulled


def test_a_shared_history_comes_before_the_list(run: Run, backend: FakeBackend) -> None:
    claim = Claim(Pulled(new=1, changed=2, same=3, older=4))
    backend.shared = claim  # type: ignore[assignment]
    code, out, err = run("history", "--claim", "tfk8s-history", "--last", "5", "mnist", "-n", "team")
    assert (code, out) == (0, run("history")[1])
    assert err == "of the shared history: 1 new, 2 changed, 3 as before; --last brings more: 4 are older\n"
    assert run("history", "--shared", "--image", "x", "-o", "json")[2] == ""
    assert [row.id for row in tfk8s.history(shared=True, namespace="team")] == ["mnist@1"]
    assert claim.asked == [("tfk8s-history", "mnist", 5, None), (None, None, 30, "x"), (None, None, 30, None)]


def test_uncounted_records_are_told_of(run: Run, backend: FakeBackend) -> None:
    backend.shared = Claim(Pulled(older=4, has_more=True))  # type: ignore[assignment]
    assert run("history", "--shared")[2].endswith("; --last brings more: 4 or more are older\n")


def test_what_of_a_shared_history_can_not_be_read_is_named(run: Run, backend: FakeBackend) -> None:
    backend.shared = Claim(Pulled(left_out=2, problems=["record a is left out"] * 7))  # type: ignore[assignment]
    err = run("history", "--shared")[2]
    assert err.count("record a is left out") == 5
    assert "tfk8s: and 2 more records with problems\n" in err
    assert "tfk8s: 2 records are left out for their size: the same command brings more of them\n" in err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--claim", "a", "--shared"], "error: --claim, --bucket and --shared exclude each other\n"),
        (["-n", "team"], "error: --context, --namespace and --image need --claim or --shared\n"),
        (["--image", "x"], "error: --context, --namespace and --image need --claim or --shared\n"),
        (["--claim", "../x"], 'error: "../x" is not the name of a PersistentVolumeClaim\n'),
        (["--claim", ""], 'error: "" is not the name of a PersistentVolumeClaim\n'),
        (["--claim", "a\n"], 'error: "a\\n" is not the name of a PersistentVolumeClaim\n'),
        (["--bucket", "s3://team", "--claim", "a"], "error: --claim, --bucket and --shared exclude each other\n"),
        (["--bucket", "s3://team", "-n", "a"], "error: --context, --namespace and --image need --claim or --shared\n"),
        (["--bucket", "team"], 'error: "team" is not a bucket\n'),
        (["--bucket", "s3://team", "--prune"], "error: --prune concerns your own files only\n"),
        (["--shared", "--prune"], "error: --prune concerns your own files only\n"),
        (["--shared", "Mnist"], 'error: "Mnist" is not the name of a cluster\n'),
        (["--shared"], "error: only clusters on Kubernetes share a history\n"),
    ],
)
def test_options_of_a_shared_history(run: Run, backend: FakeBackend, words: list[str], error: str) -> None:
    code, out, err = run("history", *words)
    assert (code, out) == (2, "")
    assert err.startswith(error)
