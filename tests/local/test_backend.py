"""The life of a local cluster: what apply, observe, restart and delete promise."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import stat
import subprocess
import sys

import pytest
from clusters import gone, is_ready, job_file, pids, wait_for, wait_until_gone

from tfk8s.backends.local import LocalBackend, state
from tfk8s.core.plan import Plan
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import EVALUATOR, Job, Task
from tfk8s.core.status import Phase
from tfk8s.errors import InvalidInput, NoSuchCluster
from tfk8s.task import probe


def test_every_task_answers_through_dial(backend: LocalBackend, pair: str) -> None:
    wait_for(backend, pair, is_ready)
    for index in (0, 1):
        with backend.dial(pair, Task("local", index)) as stream:
            (device,) = probe.get_status(stream, 5)
        assert device.name == f"/job:local/replica:0/task:{index}/device:CPU:0"


def test_the_master_lists_all_devices(backend: LocalBackend, pair: str) -> None:
    wait_for(backend, pair, is_ready)
    with backend.dial(pair, Task("local", 0)) as stream:
        names = sorted(device.name for device in probe.list_devices(stream, 5))
    assert names == [f"/job:local/replica:0/task:{index}/device:CPU:0" for index in (0, 1)]


def test_nobody_outside_can_connect_to_a_task(backend: LocalBackend, pair: str) -> None:
    wait_for(backend, pair, is_ready)
    code = "import socket, sys; sys.exit(socket.socket().connect_ex(('127.0.0.1', 2222)) == 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    for port in (2222, 2223):
        with socket.socket() as outside:
            assert outside.connect_ex(("127.0.0.1", port)) != 0


def test_the_folder_is_for_the_users_eyes_only(backend: LocalBackend, pair: str) -> None:
    path = state.folder(pair).path
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_second_apply_changes_nothing(backend: LocalBackend, pair: str) -> None:
    before = pids(wait_for(backend, pair, is_ready))
    assert backend.apply(job_file(pair, local=2)) is False
    assert pids(backend.observe(pair)) == before


def test_another_job_file_of_that_name_is_refused_and_says_what_differs(backend: LocalBackend, pair: str) -> None:
    before = pids(wait_for(backend, pair, is_ready))
    with pytest.raises(InvalidInput) as caught:
        backend.apply(dataclasses.replace(job_file(pair, local=3), port=3000))
    assert str(caught.value) == (
        'cluster "pair" runs already, from another job file:\n  jobs.local.tasks: 2 → 3\n  port: 2222 → 3000'
    )
    assert pids(backend.observe(pair)) == before


def test_two_clusters_on_the_same_ports_do_not_meet(backend: LocalBackend, pair: str, cluster: str) -> None:
    wait_for(backend, pair, is_ready)
    assert [status.name for status in backend.clusters()] == sorted([pair, cluster])
    with backend.dial(cluster, Task("worker", 0)) as stream:
        assert len(probe.list_devices(stream, 5)) == 3


def test_a_killed_task_is_started_again_and_says_why(backend: LocalBackend, cluster: str) -> None:
    victim = Task("worker", 1)
    before = pids(backend.observe(cluster))
    os.kill(before[victim], signal.SIGKILL)
    status = wait_for(backend, cluster, lambda status: is_ready(status) and status.tasks[1].restarts == 1)
    assert status.tasks[1].reason == "killed by SIGKILL"
    after = pids(status)
    assert after.pop(victim) != before.pop(victim)
    assert after == before
    told = [
        (event.reason, event.message) for event in backend.events(cluster, follow=False) if event.about == "worker/1"
    ]
    assert told == [
        ("Starting", ""), ("Ready", ""), ("Failed", "killed by SIGKILL"), ("Starting", "killed by SIGKILL"),
        ("Ready", "killed by SIGKILL"),
    ]  # fmt: skip


def test_a_task_that_keeps_dying_is_started_later_and_apply_starts_it_now(backend: LocalBackend, cluster: str) -> None:
    victim = Task("ps", 0)
    for restarts in range(3):
        status = wait_for(
            backend, cluster, lambda status, n=restarts: pids(status).get(victim) and status.tasks[2].restarts == n
        )
        os.kill(pids(status)[victim], signal.SIGKILL)
    status = wait_for(backend, cluster, lambda status: status.tasks[2].phase is Phase.FAILED)
    assert status.phase is Phase.FAILED
    assert status.tasks[2].reason == "killed by SIGKILL; restarts in 2 s"
    assert backend.apply(job_file(cluster, worker=2, ps=1)) is True
    wait_for(backend, cluster, is_ready)


def test_restart_starts_one_task_or_all_anew(backend: LocalBackend, cluster: str) -> None:
    before = pids(backend.observe(cluster))
    backend.restart(cluster, Task("ps", 0))
    one = pids(wait_for(backend, cluster, lambda status: is_ready(status) and status.tasks[2].restarts == 1))
    assert {task for task in before if one[task] != before[task]} == {Task("ps", 0)}
    backend.restart(cluster, None)
    status = wait_for(backend, cluster, lambda status: is_ready(status) and all(t.restarts for t in status.tasks))
    assert not set(pids(status).values()) & set(one.values())
    assert {task.reason for task in status.tasks} == {"restarted on request"}


def test_nothing_outlives_the_supervisor_and_a_second_apply_works(backend: LocalBackend, cluster: str) -> None:
    status = backend.observe(cluster)
    supervisor = state.folder(cluster).supervisor()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    for pid in (supervisor, *pids(status).values()):
        wait_until_gone(pid)
    lost = backend.observe(cluster)
    assert lost.phase is Phase.FAILED
    assert "its supervisor is gone" in lost.reason
    assert {task.phase for task in lost.tasks} == {Phase.FAILED}
    assert backend.apply(job_file(cluster, worker=2, ps=1)) is True
    wait_for(backend, cluster, is_ready)


def test_delete_ends_everything_even_what_a_script_left_behind(backend: LocalBackend, cluster: str, run) -> None:
    text = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    code, out, _ = run(cluster, text, fresh=True)
    assert code == 0
    record, left_behind = state.folder(cluster).read(), int(out)
    assert record is not None
    assert not gone(left_behind)
    everything = [left_behind, *pids(backend.observe(cluster)).values()]
    backend.delete(cluster)
    for pid in everything:
        wait_until_gone(pid)
    assert [pid for pid in state.cluster_processes(record.id) if not gone(pid)] == []
    assert not state.folder(cluster).path.exists()


def test_delete_also_removes_what_a_killed_supervisor_left(backend: LocalBackend, cluster: str) -> None:
    supervisor = state.folder(cluster).supervisor()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    backend.delete(cluster)
    assert not state.folder(cluster).path.exists()


def test_a_stopped_task_is_told_of(backend: LocalBackend, cluster: str) -> None:
    pid = pids(backend.observe(cluster))[Task("ps", 0)]
    os.kill(pid, signal.SIGSTOP)
    status = wait_for(backend, cluster, lambda status: not is_ready(status))
    assert status.tasks[2].phase is Phase.UNKNOWN
    assert status.tasks[2].reason == f"stopped by a signal; kill -CONT {pid} continues it"
    os.kill(pid, signal.SIGCONT)
    wait_for(backend, cluster, is_ready)


def test_a_stopped_supervisor_is_told_of_and_can_be_removed(
    backend: LocalBackend, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfk8s.backends.local.supervisor_client._STOPPED_INTERVAL", 0.2)
    supervisor = state.folder(cluster).supervisor()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGSTOP)
    status = backend.observe(cluster)
    assert status.reason == f'the supervisor of cluster "{cluster}" is stopped by a signal'
    assert {task.phase for task in status.tasks} == {Phase.UNKNOWN}
    backend.delete(cluster)
    assert not state.folder(cluster).path.exists()


def test_a_cluster_that_is_not_there(backend: LocalBackend, pair: str) -> None:
    for call in (backend.observe, backend.delete, lambda name: backend.restart(name, None)):
        with pytest.raises(NoSuchCluster) as caught:
            call("absent")
        assert str(caught.value) == 'there is no cluster "absent" on this machine; there is pair'
    with pytest.raises(NoSuchCluster):
        backend.observe("../pair")


def test_memory_that_is_not_there(backend: LocalBackend) -> None:
    huge = dataclasses.replace(
        job_file("huge", worker=4), jobs=(Job(name="worker", tasks=4, memory=Quantity.parse("1Ti")),)
    )
    with pytest.raises(InvalidInput) as caught:
        backend.apply(huge)
    assert 'cluster "huge" needs 4,096.3 GiB of memory (worker 4 × 1Ti); this machine has ' in str(caught.value)
    assert not state.folder("huge").path.exists()


def test_a_job_file_with_settings_for_tensorflow_gets_interpreters_of_their_own(backend: LocalBackend) -> None:
    own = dataclasses.replace(
        job_file("settings", worker=1), jobs=(Job(name="worker", env={"TF_CPP_MIN_LOG_LEVEL": "0"}),)
    )
    backend.apply(own)
    try:
        wait_for(backend, "settings", is_ready)
        lines = [line.text for line in backend.logs("settings", [Task("worker", 0)], follow=False, tail=None)]
        assert any("Started server with target: grpc://localhost:2222" in line for line in lines)
    finally:
        backend.delete("settings")


def test_a_module_to_preload_is_imported_by_the_task(backend: LocalBackend, monkeypatch, tmp_path) -> None:
    (tmp_path / "own_operations.py").write_text("print('own operations are here', flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    backend.apply(
        dataclasses.replace(job_file("preload", worker=1), jobs=(Job(name="worker", preload=("own_operations",)),))
    )
    try:
        wait_for(backend, "preload", is_ready)
        lines = [line.text for line in backend.logs("preload", [Task("worker", 0)], follow=False, tail=None)]
        assert "own operations are here" in lines
        assert "(by importing TensorFlow: to preload own_operations)" in lines[-1]
    finally:
        backend.delete("preload")


def test_a_task_that_can_not_start_says_why(backend: LocalBackend) -> None:
    broken = dataclasses.replace(job_file("broken", worker=1), jobs=(Job(name="worker", preload=("no_such_module",)),))
    backend.apply(broken)
    try:
        status = wait_for(backend, "broken", lambda status: status.tasks[0].phase is Phase.FAILED)
        assert "no_such_module" in status.tasks[0].reason
    finally:
        backend.delete("broken")


def test_the_evaluator_runs_and_nobody_else_sees_it(backend: LocalBackend) -> None:
    backend.apply(job_file("evaluated", chief=1, **{EVALUATOR: 1}))
    try:
        wait_for(backend, "evaluated", is_ready)
        with backend.dial("evaluated", Task("chief", 0)) as stream:
            assert len(probe.list_devices(stream, 5)) == 1
        with backend.dial("evaluated", Task(EVALUATOR, 0)) as stream:
            assert probe.get_status(stream, 5)[0].name.startswith("/job:evaluator/")
    finally:
        backend.delete("evaluated")


def test_a_task_without_the_gpus_it_asks_for_runs_and_says_so(backend: LocalBackend) -> None:
    asks = dataclasses.replace(job_file("gpus", worker=1), jobs=(Job(name="worker", gpus=99),))
    backend.apply(asks)
    try:
        status = wait_for(backend, "gpus", is_ready)
        assert status.tasks[0].reason.startswith("asks for 99 GPUs, has ")
    finally:
        backend.delete("gpus")


def test_logs_begin_with_a_line_that_says_what_runs(backend: LocalBackend, pair: str) -> None:
    wait_for(backend, pair, is_ready)
    (line,) = backend.logs(pair, [Task("local", 1)], follow=False, tail=1)
    assert line.task == Task("local", 1)
    assert line.text.startswith("tfk8s: local/1 of 2 tasks listens on port 2223: TensorFlow 2.")
    assert line.text.endswith(", 1 CPU")


def test_scaling_starts_all_tasks_anew_in_a_cluster_of_the_new_size(backend: LocalBackend, cluster: str) -> None:
    before = backend.observe(cluster)
    assert backend.scale(cluster, {"worker": 2}) is False
    assert pids(backend.observe(cluster)) == pids(before)
    assert backend.scale(cluster, {"worker": 1}) is True
    after = wait_for(backend, cluster, is_ready)
    assert [str(task.task) for task in after.tasks] == ["worker/0", "ps/0"]
    assert not set(pids(before).values()) & set(pids(after).values())
    with backend.dial(cluster, Task("worker", 0)) as stream:
        assert len(probe.list_devices(stream, 5)) == 2
    assert backend.plan(job_file(cluster, worker=1, ps=1)) == Plan(name=cluster)
    (change,) = backend.plan(job_file(cluster, worker=2, ps=1)).changes
    assert [str(field) for field in change.fields] == ["jobs.worker.tasks: 1 → 2"]
