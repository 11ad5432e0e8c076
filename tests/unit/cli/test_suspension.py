"""The commands suspend and resume, and what the others say of a suspended cluster."""

from __future__ import annotations

import getpass
import json
from dataclasses import replace

import pytest
from fakes.command_line import Run
from job_files import job_file

from tfk8s.core.lifetime import Limits
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job
from tfk8s.core.status import Phase, ScriptPhase, ScriptStatus
from tfk8s.features.suspension import command
from tfk8s.testing import FakeBackend

pytest_plugins = ("fakes.command_line",)

pytestmark = pytest.mark.usefixtures("folder")

SENTENCE = 'cluster "mnist" is suspended since 2023-11-14T22:13:20Z by jo'
REFUSAL = (1, "", f"error: {SENTENCE}\n  = help: tfk8s resume --local mnist\n")
RUNNING = ScriptStatus(name="script-4e9c21", phase=ScriptPhase.RUNNING, command="a.py")


@pytest.fixture(autouse=True)
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "jo")


def test_suspend_and_resume(run: Run, backend: FakeBackend) -> None:
    assert run("suspend", "--yes", "mnist") == (
        0, 'cluster "mnist" is suspended\n', "resume it: tfk8s resume --local mnist\n",
    )  # fmt: skip
    assert backend.statuses["mnist"].phase is Phase.SUSPENDED
    assert run("suspend", "mnist")[:2] == (0, 'cluster "mnist" is suspended: nothing changed\n')
    code, out, _ = run("resume", "mnist")
    assert (code, out) == (0, 'cluster "mnist" is resumed\n')
    assert backend.statuses["mnist"].phase is Phase.READY
    assert run("resume", "mnist")[1] == 'cluster "mnist" is not suspended: nothing changed\n'


def test_what_is_lost_is_said_and_nothing_ends(run: Run, backend: FakeBackend) -> None:
    backend.statuses["mnist"] = replace(backend.statuses["mnist"], scripts=(RUNNING,))
    assert run("suspend", "mnist") == (
        2, "",
        (
            'error: a suspension of "mnist" loses the variables of sessions on chief/0, worker/0 to worker/1 and ends '
            "script script-4e9c21\n  = help: save what you need; then add --yes (in Python: lose_variables=True)\n"
        ),
    )  # fmt: skip
    assert backend.calls == []


@pytest.mark.parametrize("answer", [True, False])
def test_a_terminal_is_asked(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, *, answer: bool) -> None:
    questions: list[str] = []
    monkeypatch.setattr(command, "can_ask", lambda: True)
    monkeypatch.setattr(command, "ask", lambda question: questions.append(question) or answer)
    code, _, err = run("suspend", "mnist")
    assert questions == [
        'a suspension of "mnist" loses the variables of sessions on chief/0, worker/0 to worker/1. Suspend it?'
    ]
    if answer:
        assert (code, backend.calls) == (0, ["suspend mnist"])
    else:
        assert (code, err, backend.calls) == (2, 'error: cluster "mnist" was not suspended\n', [])


def test_programs_go_on_from_their_checkpoints_so_nothing_is_asked(run: Run, backend: FakeBackend) -> None:
    backend.first_phase = Phase.RUNNING
    backend.apply(job_file("programs", Job(name="worker", program=Program(("a",)))))
    assert run("suspend", "programs")[0] == 0


def test_a_cluster_of_a_run_is_left_to_the_run(run: Run, backend: FakeBackend) -> None:
    backend.statuses["mnist"] = replace(backend.statuses["mnist"], limits=Limits(None, None, 0.0))
    assert run("suspend", "--yes", "mnist") == (
        2, "",
        (
            'error: "mnist" belongs to a `tfk8s run`, which removes the cluster at its end\n'
            "  = help: run it with --keep to suspend it\n"
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    "words", [("restart", "mnist"), ("scale", "mnist", "worker=3"), ("run", "mnist.yaml", "train.py")], ids=str
)
def test_commands_end_at_once_and_name_the_cure(run: Run, backend: FakeBackend, words: tuple[str, ...]) -> None:
    backend.suspend("mnist", "jo")
    assert run(*words) == REFUSAL
    assert backend.calls == ["suspend mnist"]


def test_status_and_ls_say_since_when_and_by_whom(run: Run, backend: FakeBackend) -> None:
    backend.suspend("mnist", "jo")
    assert f"\n{SENTENCE}: tfk8s resume --local mnist\n" in run("status", "mnist")[1]
    assert run("ls")[1].splitlines()[1].split()[:3] == ["mnist", "Suspended", "0/3"]
    document = json.loads(run("status", "-o", "json", "mnist")[1])
    assert document["phase"] == "Suspended"
    assert document["suspended"] == {"since": "2023-11-14T22:13:20Z", "by": "jo", "idle": None}


def test_wait_ends(run: Run, backend: FakeBackend) -> None:
    backend.first_phase = Phase.RUNNING
    backend.apply(job_file("programs", Job(name="worker", program=Program(("a",)))))
    backend.suspend("programs", "jo")
    code, _, err = run("wait", "programs")
    assert code == 1
    assert err.endswith(f"error: {SENTENCE.replace('mnist', 'programs')}: tfk8s resume --local programs\n")


def test_up_says_that_it_resumes(run: Run, backend: FakeBackend, caplog: pytest.LogCaptureFixture) -> None:
    backend.suspend("mnist", "jo")
    code, out, _ = run("up", "mnist.yaml")
    assert f"{SENTENCE}: up resumes it" in caplog.text
    assert (code, out) == (0, 'cluster "mnist" is up\n')
