"""Commands about what changes: diff, scale, up --dry-run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.command_line import Run

import tfk8s
from tfk8s.core.plan import Action, Change, Plan
from tfk8s.core.price.rates import Rates
from tfk8s.core.resources import Resources
from tfk8s.core.spec import JobFile
from tfk8s.core.status import Phase
from tfk8s.errors import ClusterError
from tfk8s.testing import FakeBackend, change

pytest_plugins = ("fakes.command_line",)

pytestmark = pytest.mark.usefixtures("folder")

CHANGED = "~ cluster mnist\n    jobs.ps: none → 1 task\n    jobs.worker.tasks: 2 → 3\n"


@pytest.fixture
def changed(backend: FakeBackend, folder: Path) -> str:
    """A job file of the cluster that runs, with other numbers."""
    backend.job_files["mnist"] = tfk8s.load("mnist.yaml")
    (folder / "changed.yaml").write_text((folder / "mnist.yaml").read_text().replace("worker: 2", "worker: 3, ps: 1"))
    return "changed.yaml"


def test_diff_prints_the_changes_and_exits_with_1(run: Run, backend: FakeBackend, changed: str) -> None:
    assert run("diff", changed) == (1, f"{CHANGED}restarts: chief/0, worker/0 to worker/1\n", "")
    assert backend.calls == ["plan mnist"]


def test_diff_of_nothing_exits_with_0(run: Run, backend: FakeBackend, changed: str) -> None:
    assert run("diff", "mnist.yaml") == (0, "", 'cluster "mnist" matches mnist.yaml\n')


def test_diff_of_a_missing_cluster(run: Run, backend: FakeBackend) -> None:
    assert run("diff", "new.yaml") == (1, "+ cluster new\n", "")


def test_diff_as_json(run: Run, backend: FakeBackend, changed: str) -> None:
    code, out, _ = run("diff", changed, "-o", "json")
    assert code == 1
    found = json.loads(out)
    assert found["restarts"] == ["chief/0", "worker/0", "worker/1"]
    (only,) = found["changes"]
    assert (only["kind"], only["name"], only["action"]) == ("cluster", "mnist", "change")
    assert only["fields"][1] == {"path": "jobs.worker.tasks", "before": 2, "after": 3}


def test_diff_says_what_all_tasks_request(run: Run, backend: FakeBackend, folder: Path) -> None:
    text = (folder / "new.yaml").read_text().replace("worker: 2", "worker: {tasks: 2, cpu: 1, memory: 1Gi}")
    (folder / "new.yaml").write_text(text)
    assert run("diff", "new.yaml")[1] == "+ cluster new\nrequests of all tasks: 2 cpu, 2Gi memory\n"
    backend.apply(tfk8s.load("new.yaml"))
    (folder / "new.yaml").write_text(text.replace("tasks: 2", "tasks: 3, gpus: 1"))
    *_, last = run("diff", "new.yaml")[1].splitlines()
    assert last == "requests of all tasks: 2 cpu, 2Gi memory → 3 cpu, 3Gi memory, 3 nvidia.com/gpu"
    assert json.loads(run("diff", "new.yaml", "-o", "json")[1])["requests"] == {
        "before": {"cpu": 2.0, "memory": 2 << 30, "gpus": 0}, "after": {"cpu": 3.0, "memory": 3 << 30, "gpus": 3},
    }  # fmt: skip


def test_diff_in_trouble_exits_with_more_than_1(
    run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ClusterError("the API server does not answer")

    monkeypatch.setattr(backend, "plan", fail)
    assert run("diff", "mnist.yaml") == (2, "", "error: the API server does not answer\n")
    assert run("diff", "absent.yaml")[0] == 2


def test_refusal_is_a_result_of_diff_and_an_error_of_a_dry_run(run: Run, backend: FakeBackend, changed: str) -> None:
    backend.refusal = "down first"
    assert run("diff", changed)[::2] == (1, "down first\n")
    assert run("up", "--dry-run", changed)[::2] == (2, "error: down first\n")


def test_a_dry_run_of_up_changes_nothing(run: Run, backend: FakeBackend, changed: str) -> None:
    shown = '+ cluster new\ndry run: cluster "new" would change as shown\n'
    assert run("up", "--dry-run", "new.yaml") == (0, shown, "")
    assert run("up", "--dry-run", "mnist.yaml") == (0, 'dry run: cluster "mnist" would not change\n', "")
    assert run("up", "--dry-run", changed)[0] == 0
    assert {call.split()[0] for call in backend.calls} == {"plan"}


def test_scale_waits_until_all_tasks_answer(run: Run, backend: FakeBackend) -> None:
    backend.first_phase = Phase.STARTING
    backend.updates = [lambda status: status, lambda status: status, change("worker/2", phase=Phase.READY)]
    assert run("scale", "mnist", "worker=3") == (
        0,
        'scaled cluster "mnist" to worker=3\n',
        (
            "worker/2  Starting  pid 204\n"
            "worker/2  Ready     pid 204\n"
            "change the job file, too: `tfk8s up --local` goes by the numbers in it\n"
        ),
    )
    assert backend.calls == ["scale mnist {'worker': 3}"]


def test_scale_to_the_current_numbers(run: Run, backend: FakeBackend) -> None:
    assert run("scale", "mnist", "worker=2") == (0, 'cluster "mnist" already has worker=2: nothing changed\n', "")


INVALID = [
    (["worker"], 'error: "worker" does not have the form JOB=TASKS\n  = help: an example: worker=8\n'),
    (
        ["worker=-1"],
        'error: "worker=-1" does not have the form JOB=TASKS\n  = help: an example: worker=8\n',
    ),
    (["worker=1", "worker=2"], 'error: job "worker" occurs twice: worker=1 and worker=2\n'),
    (["wroker=1"], 'error: there is no job "wroker"; the jobs are chief, worker\n  = help: did you mean worker?\n'),
    (["worker=0"], 'error: job "worker" can\'t have 0 tasks: 1 to 10000\n'),
    (["worker=99999"], 'error: job "worker" can\'t have 99999 tasks: 1 to 10000\n'),
]


def test_scale_refuses_invalid_numbers_and_jobs(run: Run, backend: FakeBackend) -> None:
    for words, message in INVALID:
        assert run("scale", "mnist", *words) == (2, "", message), words
        assert backend.calls == [], words


def test_diff_says_the_price(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(job_file: JobFile) -> Plan:
        before, after = Resources.parse({"cpu": 1}), Resources.parse({"cpu": 2, "nvidia-l4": 1})
        change = Change(kind="cluster", name="new", action=Action.CREATE)
        return Plan(name="new", changes=(change,), rates=Rates("EUR", {"cpu": 0.5}), billed_before=before, billed=after)

    monkeypatch.setattr(backend, "plan", plan)
    *_, last = run("diff", "new.yaml")[1].splitlines()
    assert last == "price: 0.50 EUR an hour → 1.00 EUR an hour, without nvidia-l4: no rate is known"
    assert last in run("up", "--dry-run", "new.yaml")[1].splitlines()
    assert json.loads(run("diff", "new.yaml", "-o", "json")[1])["price"]["after"] == {
        "amount": 1.0, "currency": "EUR", "unknown": ["nvidia-l4"],
    }  # fmt: skip
