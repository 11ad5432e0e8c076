"""Waiting until a cluster is ready."""

from __future__ import annotations

import dataclasses

import pytest
from job_files import job_file

from tfk8s import polling
from tfk8s.backends import devices
from tfk8s.backends.protocol import NODE_TIMEOUT
from tfk8s.cluster.handle import Cluster
from tfk8s.cluster.readiness import TIMEOUT, Readiness
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase
from tfk8s.errors import ClusterError, InvalidInput, NoSuchCluster, TaskUnreachable, WaitTimeout
from tfk8s.testing import FakeBackend, change

CHIEF, FIRST, SECOND = Task("chief", 0), Task("worker", 0), Task("worker", 1)
READY, STARTING, FAILED = Phase.READY, Phase.STARTING, Phase.FAILED


def test_wait_reports_each_change(cluster: Cluster, backend: FakeBackend) -> None:
    backend.updates = [
        change("worker/1", phase=Phase.PENDING),
        change("worker/1", phase=STARTING),
        change("worker/1", phase=STARTING),
        change("worker/1", phase=READY),
    ]
    reported: list[ClusterStatus] = []
    assert cluster.wait(5, reported.append).ready == 3
    assert [status.tasks[2].phase for status in reported] == [Phase.PENDING, STARTING, READY]


def test_a_timeout_names_the_missing_tasks(cluster: Cluster, backend: FakeBackend) -> None:
    backend.updates = [change("worker/1", phase=Phase.PENDING, reason="no node has 4 GPUs free")]
    backend.updates += [change("chief/0", phase=STARTING)]
    with pytest.raises(WaitTimeout) as caught:
        cluster.wait(0.01)
    assert str(caught.value) == (
        'waited 0.01 s for cluster "mnist" to be ready: chief/0 is starting; '
        "worker/1 is pending (no node has 4 GPUs free)"
    )


def test_the_default_timeout_grows_once_a_node_is_started(backend: FakeBackend) -> None:
    starting = change("worker/0", phase=Phase.PENDING, node_is_starting=True)
    backend.updates = [change("worker/0", phase=Phase.PENDING), starting, change("worker/0", node_is_starting=False)]
    readiness = Readiness(backend, "mnist", lambda: backend.observe("mnist"), None, {}, [])
    limits = []
    for _ in range(3):
        readiness.poll()
        limits.append((readiness.limit(TIMEOUT), readiness.limit(5)))
    assert limits == [(TIMEOUT, 5), (NODE_TIMEOUT, 5), (NODE_TIMEOUT, 5)]


def test_the_default_timeout_grows_for_a_pull_until_it_fails(backend: FakeBackend) -> None:
    pulling = change("worker/0", phase=Phase.PENDING, reason="pulling image", is_pulling=True)
    creating = change("worker/0", phase=Phase.PENDING, reason="", is_pulling=False)
    backend.updates = [change("worker/0", phase=Phase.PENDING), pulling, creating, pulling]
    backend.updates += [change("worker/0", reason='image "x" can\'t be pulled', is_pulling=False)]
    readiness = Readiness(backend, "mnist", lambda: backend.observe("mnist"), None, {}, [])
    limits = []
    for _ in range(5):
        readiness.poll()
        limits.append((readiness.limit(TIMEOUT), readiness.limit(5)))
    assert limits == [(TIMEOUT, 5), (NODE_TIMEOUT, 5), (NODE_TIMEOUT, 5), (NODE_TIMEOUT, 5), (TIMEOUT, 5)]


def test_a_timeout_names_at_most_five_reasons() -> None:
    backend = FakeBackend(job_file("big", worker=9), phase=Phase.PENDING)

    def look(status: ClusterStatus) -> ClusterStatus:
        tasks = [dataclasses.replace(task, reason=f"reason {task.task.index}") for task in status.tasks]
        return dataclasses.replace(status, tasks=tuple(tasks))

    backend.updates = [look]
    with pytest.raises(WaitTimeout) as caught:
        Cluster(backend, "big").wait(0)
    assert str(caught.value) == (
        'waited 0 s for cluster "big" to be ready: worker/0 is pending (reason 0); worker/1 is pending (reason 1); '
        "worker/2 is pending (reason 2); worker/3 is pending (reason 3); worker/4 is pending (reason 4); and 4 more"
    )


def test_a_timeout_joins_tasks_in_the_same_state() -> None:
    backend = FakeBackend(job_file("big", worker=9), phase=Phase.PENDING)
    with pytest.raises(WaitTimeout, match=r'"big" to be ready: worker/0 to worker/8 are pending$'):
        Cluster(backend, "big").wait(0)


def test_a_ready_task_must_answer(cluster: Cluster, backend: FakeBackend) -> None:
    backend.unresponsive = {SECOND}
    with pytest.raises(WaitTimeout) as caught:
        cluster.wait(0)
    assert str(caught.value) == (
        'waited 0 s for cluster "mnist" to be ready: chief/0 does not answer: Connection refused; '
        "worker/1 does not answer: Connection refused"
    )


def test_a_master_that_reaches_no_task_may_be_silent_later(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off = "chief/0 can't reach worker/1: asked from this machine, worker/1 answers"
    errors = iter([devices.MasterCutOff(cut_off)])

    def require(*_: object) -> None:
        raise next(errors, TaskUnreachable("chief/0 does not answer within 2 s"))

    monkeypatch.setattr(devices, "require_servers", require)
    with pytest.raises(WaitTimeout, match=f'cluster "mnist" to be ready: {cut_off}$'):
        cluster.wait(0.05)


def test_a_silent_master_is_reported_once(
    cluster: Cluster, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    backend.unresponsive = {SECOND}
    reported: list[ClusterStatus] = []
    with pytest.raises(WaitTimeout):
        cluster.wait(0.02, reported.append)
    reasons = [[task.reason for task in status.tasks] for status in reported]
    assert reasons == [["", "", ""], ["does not answer: Connection refused", "", ""]]


def test_an_excluded_task_is_not_waited_for(cluster: Cluster, backend: FakeBackend) -> None:
    backend.updates = [change("worker/1", phase=FAILED, reason="its node is gone")]
    assert [task.task for task in cluster.wait(5, without=["worker/1"]).tasks] == [CHIEF, FIRST]
    backend.unresponsive = {FIRST}
    with pytest.raises(WaitTimeout, match=r"worker/0 does not answer: Connection refused$"):
        cluster.wait(0, without=["worker/1"])
    with pytest.raises(InvalidInput, match=r"^sessions can't run without chief/0"):
        cluster.wait(0, without=["chief/0"])


def test_a_task_may_fail_once(cluster: Cluster, backend: FakeBackend) -> None:
    backend.updates = [
        change("worker/1", phase=FAILED, reason="killed by SIGKILL"),
        change("worker/1", phase=STARTING, restarts=1),
        change("worker/1", phase=READY),
    ]
    assert cluster.wait(5).tasks[2].restarts == 1


def test_a_task_that_fails_twice_ends_the_wait(cluster: Cluster, backend: FakeBackend) -> None:
    backend.updates = [
        change("worker/1", phase=STARTING, restarts=7),  # before the wait
        change("worker/1", phase=FAILED, reason="exited with 1: port in use"),
        change("worker/1", phase=FAILED, restarts=8),
    ]
    with pytest.raises(ClusterError) as caught:
        cluster.wait(5)
    assert str(caught.value) == (
        'cluster "mnist" can\'t come up: worker/1 was started again and ended again: exited with 1: port in use'
    )
    assert caught.value.help == "tfk8s logs --local mnist worker/1 shows what it wrote"
    assert caught.value.exit_code == 1


def test_a_removed_cluster_ends_the_wait(cluster: Cluster, backend: FakeBackend) -> None:
    def removed(_: ClusterStatus) -> ClusterStatus:
        raise NoSuchCluster("there is none")

    backend.updates = [change("worker/1", phase=STARTING), removed]
    with pytest.raises(ClusterError, match=r'^cluster "mnist" was removed by somebody while it came up$'):
        cluster.wait(5)


def test_a_lost_cluster_ends_the_wait(cluster: Cluster, backend: FakeBackend) -> None:
    backend.updates = [lambda status: dataclasses.replace(status, reason="its supervisor was killed")]
    with pytest.raises(ClusterError, match=r"^its supervisor was killed$"):
        cluster.wait(5)


def test_a_task_that_another_start_can_not_mend_ends_the_wait(cluster: Cluster, backend: FakeBackend) -> None:
    backend.updates = [change("worker/1", phase=FAILED, has_given_up=True, reason="exited with 2: no module")]
    with pytest.raises(ClusterError, match=r"worker/1 has ended: exited with 2: no module"):
        cluster.wait(30)
