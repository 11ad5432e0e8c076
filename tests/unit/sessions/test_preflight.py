"""What is asked of all tasks before a session, and what is said of the answers."""

from __future__ import annotations

import contextlib

import pytest

from tfk8s.errors import TaskUnreachable, VersionSkew
from tfk8s.sessions import preflight
from tfk8s.sessions.error_names import ProbeResult
from tfk8s.sessions.preflight import ClusterView


def answer(task: str, version: str = "2.21.0", error: str = "") -> ProbeResult:
    return ProbeResult(task, f"{task.replace('/', '-')}:2222", incarnation=1, version=version, error=error)


def test_all_well() -> None:
    preflight.require([answer("master/0"), answer("worker/0", "2.21.1"), answer("worker/1", "")])
    preflight.require([])


def test_a_table_shows_what_answers_where_something_does_not() -> None:
    answers = [answer("master/0"), answer("worker/0", error="Connection refused"), answer("worker/1")]
    with pytest.raises(TaskUnreachable) as caught:
        preflight.require(answers)
    assert str(caught.value) == (
        "of 3 tasks, worker/0 does not answer:\n"
        "  master/0  master-0:2222  answers\n"
        "  worker/0  worker-0:2222  Connection refused\n"
        "  worker/1  worker-1:2222  answers"
    )
    assert "--without worker/0" in (caught.value.help or "")


def test_one_task_alone_is_one() -> None:
    with pytest.raises(TaskUnreachable, match=r"^of 1 task, master/0 does not answer"):
        preflight.require([answer("master/0", error="Connection refused")])


def test_nothing_runs_without_the_master() -> None:
    with pytest.raises(TaskUnreachable) as caught:
        preflight.require([answer("master/0", error="Connection refused"), answer("worker/0", error="no answer")])
    assert "--without" not in (caught.value.help or "")


def test_what_to_do_depends_on_who_is_silent_and_why() -> None:
    with pytest.raises(TaskUnreachable) as caught:
        preflight.require([answer("master/0", error="Connection refused"), answer("worker/0")])
    assert "--without" not in (caught.value.help or "")
    with pytest.raises(TaskUnreachable) as caught:
        preflight.require([answer("master/0"), answer("worker/0", error="Temporary failure in name resolution")])
    assert (caught.value.help or "").startswith("names can't be looked up: is the cluster's DNS up? kubectl get pods ")


def test_of_many_tasks_the_table_shows_those_that_do_not_answer() -> None:
    answers = [answer(f"worker/{i}", error="Connection refused" if i > 50 else "") for i in range(100)]
    with pytest.raises(TaskUnreachable) as caught:
        preflight.require(answers)
    lines = str(caught.value).splitlines()
    assert lines[0] == "of 100 tasks, worker/51, worker/52, worker/53 and 46 more do not answer:"
    assert len(lines) == 22
    assert lines[-1] == "  and 29 more"


def test_servers_of_two_versions_are_refused() -> None:
    with pytest.raises(VersionSkew) as caught:
        preflight.require([answer("master/0"), answer("worker/0", "2.19.1"), answer("worker/1", "2.19.1")])
    assert str(caught.value).startswith(
        "the tasks have different versions of TensorFlow (2.21.0: master/0; 2.19.1: worker/0, worker/1), which"
    )


@pytest.mark.parametrize(
    ("own", "warns"), [("2.21.3", False), ("", False), ("2.20.0", True), ("2.22.0-rc1", True), ("3.21.0", True)]
)
def test_a_client_of_another_version_is_warned(own: str, warns: bool) -> None:
    said = preflight.warning([answer("master/0"), answer("worker/0", "")], own)
    assert (said is not None) == warns
    if said:
        assert said.startswith(f"this script has TensorFlow {own}, the tasks have 2.21.0: ")


def test_the_warning_is_given_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "own_version", lambda: "2.15.0")
    monkeypatch.setattr(preflight, "_warned", False)
    preflight.warn([answer("master/0")])
    preflight.warn([answer("master/0")])
    assert capsys.readouterr().err.count("warning: this script has TensorFlow 2.15.0") == 1


def test_a_view_leaves_tasks_out_by_device_filters() -> None:
    environment = {"TFK8S_CLUSTER": '{"master": ["m:1"], "worker": ["a:1", "b:1", "c:1"]}'}
    assert ClusterView.of(environment).filters == []
    assert ClusterView.of(environment).master == "master/0"
    without = ClusterView.of({**environment, "TFK8S_WITHOUT": "worker/1"}, ["worker/2"])
    assert without.filters == ["/job:master/task:0", "/job:worker/task:0"]
    assert ClusterView.of({}).ask() == []


def test_who_can_not_be_dialled_has_an_error() -> None:
    def dial(task: str) -> object:
        if task == "ps/0":
            raise TaskUnreachable("ps/0 does not answer: Connection refused")
        raise TimeoutError

    view = ClusterView({"ps/0": "p:1", "worker/0": "w:1"}, dial=dial)
    assert [one.error for one in view.ask()] == [
        "Connection refused",
        "no answer in 4 s (is it stopped, or overloaded?)",
    ]
    assert not view.answers("ps/0")
    assert not view.answers("nosuch/0")


class Master:
    """Stands for the master of three tasks; some it does not reach."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
        self.missing, self.asked = set(missing), []
        monkeypatch.setattr(preflight.probe, "can_reach", self._reaches)
        dial = lambda task: contextlib.nullcontext(task)  # noqa: E731
        self.view = ClusterView({"chief/0": "c:1", "ps/0": "p:1", "worker/0": "w:1"}, ["worker/0"], dial=dial)

    def _reaches(self, stream: str, devices: list[str], timeout: float) -> bool:
        assert stream == "chief/0"
        self.asked.append(devices)
        return not self.missing.intersection(devices)


CHIEF, PS = "/job:chief/task:0", "/job:ps/task:0"


def test_a_master_that_reaches_all_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    master = Master(monkeypatch)
    assert master.view.unreached() == []
    assert master.asked == [[CHIEF, PS]]


def test_whom_a_master_does_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Master(monkeypatch, PS).view.unreached() == ["ps/0"]


def test_tasks_that_do_not_reach_others_are_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    view = ClusterView({"chief/0": "c:1", "ps/0": "p:1", "worker/0": "w:1"}, dial=contextlib.nullcontext)
    reaches = lambda asker, devices, timeout: asker == "ps/0" or PS not in devices  # noqa: E731
    monkeypatch.setattr(preflight.probe, "can_reach", reaches)
    ways = view.missing_ways()
    assert ways == {"chief/0": ["ps/0"], "worker/0": ["ps/0"]}
    assert preflight.not_reached(ways) == (
        "chief/0, worker/0 do not reach ps/0, though it answers: they know no address of it, or an old one"
    )
    monkeypatch.setattr(preflight, "_MOST_ASKERS", 2)
    assert list(view.missing_ways()) == ["chief/0"]


def test_a_busy_master_is_not_said_to_reach_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Master(monkeypatch, CHIEF, PS).view.unreached() == []


def test_a_master_that_can_not_be_dialled_is_for_others_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def dial(task: str) -> object:
        raise TaskUnreachable("chief/0 does not answer: Connection refused")

    assert ClusterView({"chief/0": "c:1"}, dial=dial).unreached() == []
    assert ClusterView({}).unreached() == []


def test_a_task_that_was_started_again_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    view, now = ClusterView({"ps/0": "p:1"}), [ProbeResult("ps/0", incarnation=1)]
    monkeypatch.setattr(view, "_ask", lambda task, timeout=0.0: now[-1])
    assert not view.is_another("ps/0")
    view.ask()
    assert not view.is_another("ps/0")
    now.append(ProbeResult("ps/0", incarnation=2))
    assert view.is_another("ps/0")
    now.append(ProbeResult("ps/0", error="Connection refused"))
    assert not view.is_another("ps/0")
