"""GPUs that tasks were given, compared with those that TensorFlow sees; the fake backend's tasks see none."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar

import pytest
from job_files import job_file

import tfk8s
from tfk8s.cluster.gpus import require_gpus
from tfk8s.core.programs import Program
from tfk8s.core.script import LogLine, LogOptions
from tfk8s.core.spec import Job, Task
from tfk8s.core.status import Phase
from tfk8s.errors import ClusterError, NoSuchCluster
from tfk8s.task import gpus
from tfk8s.testing import FakeBackend, change, use_backend

WRITTEN = "2026-11-25T12:00:00.000001+00:00"
CPUS = "the image has TensorFlow for CPUs only"


class Backend(FakeBackend):
    """A backend whose logs have the reasons of some tasks, and the GPUs of others."""

    reasons: dict[str, str] = {}  # noqa: RUF012
    seen: dict[str, int] = {}  # noqa: RUF012

    def logs(self, name: str, tasks: Sequence[Task], options: LogOptions) -> Iterator[LogLine]:
        del name
        assert options.timestamps
        for task in tasks:
            for reason in ("an old server's", self.reasons[str(task)]) if str(task) in self.reasons else ():
                yield LogLine(task=task, text=f"{WRITTEN} {gpus.unseen_line(str(task), 0, 1, reason)}")
            if str(task) in self.seen:
                yield LogLine(task=task, text=f"{WRITTEN} {gpus.seen_line(str(task), self.seen[str(task)])}")


@pytest.fixture
def backend() -> Backend:
    return Backend(job_file("c", Job(name="chief"), Job(name="worker", tasks=3)))


def check(backend: FakeBackend, *tasks: str, required: int = 1) -> str:
    """Return the message for tasks that were given GPUs."""
    for task in tasks:
        backend.statuses["c"] = change(task, required_gpus=required)(backend.statuses["c"])
    with pytest.raises(ClusterError) as caught:
        require_gpus(backend, backend.observe("c"))
    assert caught.value.exit_code == 1
    return str(caught.value)


def test_tasks_with_the_same_reason_are_named_together(backend: Backend) -> None:
    backend.reasons = {"worker/0": CPUS, "worker/1": CPUS, "worker/2": "there is no NVIDIA driver"}
    assert check(backend, "worker/0", "worker/1", "worker/2") == (
        f'cluster "c" is up, but TensorFlow does not see all GPUs: worker/0 to worker/1 see 0 of 1: {CPUS}; '
        "worker/2 sees 0 of 1: there is no NVIDIA driver"
    )


def test_the_help_names_the_jobs(backend: Backend) -> None:
    backend.reasons = {"chief/0": CPUS, "worker/1": CPUS}
    for task in backend.reasons:
        backend.statuses["c"] = change(task, required_gpus=2)(backend.statuses["c"])
    with pytest.raises(ClusterError) as caught:
        require_gpus(backend, backend.observe("c"))
    assert caught.value.help == (
        "tfk8s logs --local c chief/0 shows TensorFlow's messages; gpus_optional: true in jobs.chief, jobs.worker lets "
        "tasks run without GPUs"
    )


def test_a_run_that_removes_its_cluster_does_not_lead_to_the_logs(backend: Backend) -> None:
    backend.reasons = {"worker/0": CPUS}
    backend.statuses["c"] = change("worker/0", required_gpus=1)(backend.statuses["c"])
    with pytest.raises(ClusterError) as caught:
        require_gpus(backend, backend.observe("c"), keep=False)
    assert str(caught.value) == f"TensorFlow does not see all GPUs: worker/0 sees 0 of 1: {CPUS}"
    assert caught.value.help == (
        "`tfk8s run --keep` leaves the cluster and its logs; gpus_optional: true in jobs.worker lets tasks run without "
        "GPUs"
    )


def test_a_log_without_a_reason(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfk8s.cluster.gpus.REASON_TIMEOUT", 0.01)
    assert check(backend, "worker/0", required=2) == (
        'cluster "c" is up, but TensorFlow does not see all GPUs: worker/0 sees 0 of 2: its log shows no reason'
    )


def test_tasks_without_required_gpus_are_not_asked(backend: Backend) -> None:
    backend.unresponsive = set(backend.job_files["c"])
    require_gpus(backend, backend.observe("c"))


PROGRAM = Program(("train.py",))


@pytest.fixture
def programs() -> Backend:
    """Return a backend with a server, and with three programs that have GPUs."""
    made = Backend(job_file("p", Job(name="ps"), Job(name="worker", tasks=3, gpus=1, program=PROGRAM)))
    for index in range(3):
        made.statuses["p"] = change(f"worker/{index}", required_gpus=1)(made.statuses["p"])
    return made


def test_programs_that_see_their_gpus(programs: Backend) -> None:
    programs.seen = {f"worker/{index}": 1 for index in range(3)}
    programs.unresponsive = {Task("ps", 0)}  # a program has no server that answers
    require_gpus(programs, programs.observe("p"))


def test_the_log_of_a_program_has_its_reason(programs: Backend) -> None:
    programs.seen, programs.reasons = {"worker/0": 1, "worker/1": 1}, {"worker/2": CPUS}
    with pytest.raises(ClusterError) as caught:
        require_gpus(programs, programs.observe("p"))
    assert str(caught.value) == (
        f'cluster "p" is up, but TensorFlow does not see all GPUs: worker/2 sees 0 of 1: {CPUS}'
    )


@pytest.mark.parametrize(
    ("nodes", "bad"),
    [
        (("a", "b", "c"), "`tfk8s up --avoid c FILE` leaves out c"),
        (("a", "a", "a"), None),  # the same node shows its GPUs to others: the node is not at fault
        (("", "", ""), None),  # this machine
    ],
)
def test_a_node_that_shows_no_gpus_is_named(programs: Backend, nodes: tuple[str, ...], bad: str | None) -> None:
    programs.seen, programs.reasons = {"worker/0": 1, "worker/1": 1}, {"worker/2": CPUS}
    for index, node in enumerate(nodes):
        place = f"p-worker-{index} on {node}" if node else "pid 1"
        programs.statuses["p"] = change(f"worker/{index}", runs_on=place)(programs.statuses["p"])
    with pytest.raises(ClusterError) as caught:
        require_gpus(programs, programs.observe("p"))
    advice = f"; tasks on other nodes see their GPUs: {bad}" if bad else ""
    assert str(caught.value.help).endswith(f"lets tasks run without GPUs{advice}")


@pytest.mark.parametrize(
    ("may", "keep", "command"),
    [
        (True, True, "`tfk8s restart --local p` starts worker/2 on another node, once; "),
        (False, True, ""),  # this user may not note it
        (True, False, ""),  # no task is left that could start
    ],
)
def test_the_next_start_of_a_task_avoids_the_node(programs: Backend, may: bool, keep: bool, command: str) -> None:
    class Shared:
        noted: ClassVar[list[tuple[str, Sequence[str]]]] = []

        def note_bad_places(self, name: str, pods: Sequence[str]) -> bool:
            self.noted.append((name, pods))
            return may

    shared: Any = Shared()
    programs.shared = shared
    programs.seen, programs.reasons = {"worker/0": 1, "worker/1": 1}, {"worker/2": CPUS}
    for index in range(3):
        update = change(f"worker/{index}", runs_on=f"p-worker-{index}-abcde on node-{index}")
        programs.statuses["p"] = update(programs.statuses["p"])
    with pytest.raises(ClusterError) as caught:
        require_gpus(programs, programs.observe("p"), keep=keep)
    assert str(caught.value.help).endswith(
        f"; tasks on other nodes see their GPUs: {command}`tfk8s up --avoid node-2 FILE` leaves out node-2"
    )
    assert Shared.noted == ([("p", ["p-worker-2-abcde"])] if keep else [])


def test_no_node_is_named_where_all_lack_their_gpus(programs: Backend) -> None:
    programs.reasons = {f"worker/{index}": CPUS for index in range(3)}
    for index in range(3):
        update = change(f"worker/{index}", runs_on=f"p-worker-{index} on node-{index}")
        programs.statuses["p"] = update(programs.statuses["p"])
    with pytest.raises(ClusterError) as caught:
        require_gpus(programs, programs.observe("p"))
    assert "--avoid" not in str(caught.value.help)


def test_a_line_of_an_earlier_run_does_not_count(programs: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.seen, programs.reasons = {"worker/0": 1, "worker/1": 1}, {"worker/2": "the driver is too old"}
    start = datetime.fromisoformat(WRITTEN).timestamp()
    monkeypatch.setattr("time.time", lambda: start + 60)
    monkeypatch.setattr("tfk8s.cluster.gpus.COMPARE_TIMEOUT", 100.0)
    monkeypatch.setattr("tfk8s.polling.poll", lambda timeout, least_interval: iter([timeout]))
    for index, later in enumerate((0.0, 0.0, 1.0)):
        update = change(f"worker/{index}", phase=Phase.RUNNING, since=start + later)
        programs.statuses["p"] = update(programs.statuses["p"])
    require_gpus(programs, programs.observe("p"))


def test_a_program_that_has_run_for_long_has_its_gpus(programs: Backend) -> None:
    for index in range(3):
        update = change(f"worker/{index}", phase=Phase.RUNNING, since=time.time() - 1000)
        programs.statuses["p"] = update(programs.statuses["p"])
    require_gpus(programs, programs.observe("p"))


def test_a_program_that_has_ended_writes_no_more(programs: Backend) -> None:
    for index in range(3):
        programs.statuses["p"] = change(f"worker/{index}", phase=Phase.FAILED, exit_code=1)(programs.statuses["p"])
    require_gpus(programs, programs.observe("p"))


def test_users_who_may_not_read_the_logs_of_programs(programs: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, tasks: Sequence[Task], options: LogOptions) -> Iterator[LogLine]:
        raise ClusterError("forbidden")

    monkeypatch.setattr(programs, "logs", refuse)
    require_gpus(programs, programs.observe("p"))


def test_up_removes_its_cluster_if_gpus_are_missing() -> None:
    backend = Backend()
    backend.reasons = {"worker/0": CPUS}
    backend.updates = [change("worker/0", required_gpus=1)]
    with use_backend(backend), pytest.raises(ClusterError, match=CPUS):
        tfk8s.up(job_file("c", Job(name="worker", gpus=1)))
    with pytest.raises(NoSuchCluster):
        backend.observe("c")
