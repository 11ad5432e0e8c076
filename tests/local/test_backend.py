"""Clusters on this machine: promises beyond those of every backend."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from clusters import addresses, gone, is_ready, pids, wait_for, wait_until_gone
from job_files import job_file

from tfk8s.backends import devices
from tfk8s.backends.local import capacity, state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.backends.local.loopback import sockets
from tfk8s.cluster.gpus import require_gpus
from tfk8s.cluster.program_run import failure
from tfk8s.core.addresses import host_and_port
from tfk8s.core.programs import Program
from tfk8s.core.quantity import Quantity
from tfk8s.core.roles import EVALUATOR
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.core.status import Phase
from tfk8s.errors import ClusterError, InvalidInput, NoSuchCluster
from tfk8s.polling import wait_until

Up = Callable[[JobFile], str]
pytestmark = pytest.mark.usefixtures("servers_only")


def test_a_task_is_unreachable_from_outside(backend: LocalBackend, pair: str) -> None:
    status = wait_for(backend, pair, is_ready)
    if status.isolation != "own network":
        assert [sockets.trouble(host_and_port(task.address)[1]) for task in status.tasks] == ["", ""]
        return
    code = "import socket, sys; sys.exit(socket.socket().connect_ex(('127.0.0.1', 2222)) == 0)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    for port in (2222, 2223):
        with socket.socket() as outside:
            assert outside.connect_ex(("127.0.0.1", port)) != 0


def test_tcp_gives_lost_packets_up_within_a_minute(backend: LocalBackend, pair: str, run) -> None:
    """Else a task whose packets get lost would hold up the others for a quarter of an hour."""
    if backend.observe(pair).isolation != "own network":
        pytest.skip("the network is this machine's")
    retries = Path("/proc/sys/net/ipv4/tcp_retries2")
    if not os.access(retries, os.W_OK):
        pytest.skip("a container keeps /proc/sys as it is")
    assert run(pair, f"print(open('{retries}').read())")[:2] == (0, "6\n\n")


def test_only_the_user_can_read_the_folder(backend: LocalBackend, pair: str) -> None:
    path = state.folder(pair).path
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_another_job_file_of_the_same_name_is_refused(backend: LocalBackend, pair: str) -> None:
    before = pids(wait_for(backend, pair, is_ready))
    with pytest.raises(InvalidInput) as caught:
        backend.apply(job_file(pair, local=3, port=3000))
    assert str(caught.value) == (
        'cluster "pair" runs already, from another job file:\n  jobs.local.tasks: 2 → 3\n  port: 2222 → 3000'
    )
    assert pids(backend.observe(pair)) == before


def test_two_clusters_can_have_the_same_ports(backend: LocalBackend, pair: str, cluster: str) -> None:
    wait_for(backend, pair, is_ready)
    assert [status.name for status in backend.clusters()] == sorted([pair, cluster])
    assert len(devices.list_devices(backend, backend.observe(cluster))) == 3


def test_a_killed_task_is_restarted(backend: LocalBackend, cluster: str) -> None:
    victim = Task("worker", 1)
    before = pids(backend.observe(cluster))
    os.kill(before[victim], signal.SIGKILL)
    status = wait_for(backend, cluster, lambda status: is_ready(status) and status.tasks[1].restarts == 1)
    assert status.tasks[1].reason == "killed by SIGKILL"
    after = pids(status)
    assert after.pop(victim) != before.pop(victim)
    assert after == before
    events = [event for event in backend.events(cluster, follow=False) if event.about == "worker/1"]
    assert [(event.reason, event.message) for event in events] == [
        ("Starting", ""), ("Ready", ""), ("Failed", "killed by SIGKILL"), ("Starting", "killed by SIGKILL"),
        ("Ready", "killed by SIGKILL"),
    ]  # fmt: skip


def test_apply_starts_a_task_that_waits_for_its_restart(backend: LocalBackend, cluster: str) -> None:
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


def test_tasks_end_with_the_supervisor(backend: LocalBackend, cluster: str) -> None:
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


def test_delete_ends_processes_that_a_script_left_behind(backend: LocalBackend, cluster: str, run) -> None:
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


def test_delete_works_after_the_supervisor_was_killed(backend: LocalBackend, cluster: str) -> None:
    supervisor = state.folder(cluster).supervisor()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    backend.delete(cluster)
    assert not state.folder(cluster).path.exists()


def test_status_shows_a_stopped_task(backend: LocalBackend, cluster: str) -> None:
    pid = pids(backend.observe(cluster))[Task("ps", 0)]
    os.kill(pid, signal.SIGSTOP)
    status = wait_for(backend, cluster, lambda status: not is_ready(status))
    assert status.tasks[2].phase is Phase.UNKNOWN
    assert status.tasks[2].reason == f"stopped by a signal; kill -CONT {pid} continues it"
    os.kill(pid, signal.SIGCONT)
    wait_for(backend, cluster, is_ready)


def test_status_shows_a_stopped_supervisor_and_delete_works(
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


def test_an_unknown_name_is_an_error_that_lists_the_clusters(backend: LocalBackend, pair: str) -> None:
    for name in ("absent", "../pair"):
        with pytest.raises(NoSuchCluster) as caught:
            backend.observe(name)
        assert str(caught.value) == f'there is no cluster "{name}" on this machine; the only cluster is pair'


def test_a_cluster_larger_than_free_memory_is_refused(backend: LocalBackend) -> None:
    with pytest.raises(InvalidInput) as caught:
        backend.apply(job_file("huge", Job(name="worker", tasks=4, memory=Quantity.parse("1Ti"))))
    assert 'cluster "huge" needs 4,096.3 GiB of memory (worker 4 × 1Ti); this machine has ' in str(caught.value)
    assert not state.folder("huge").path.exists()


def log_of(backend: LocalBackend, name: str) -> list[str]:
    wait_for(backend, name, is_ready)
    return [line.text for line in backend.logs(name, [Task("worker", 0)], LogOptions())]


def test_settings_for_tensorflow_reach_the_task(backend: LocalBackend, up: Up) -> None:
    name = up(job_file("settings", Job(name="worker", env={"TF_CPP_MIN_LOG_LEVEL": "0"})))
    assert any("Started server with target: grpc://" in line for line in log_of(backend, name))


def test_a_job_sets_the_threads_of_its_servers(backend: LocalBackend, up: Up) -> None:
    jobs = [Job(name=f"with{count}", env={"TF_NUM_INTEROP_THREADS": str(count)}) for count in (3, 7)]
    status = wait_for(backend, up(job_file("threads", *jobs)), is_ready)
    few, more = pids(status).values()
    wait_until(lambda: compute_threads(more) - compute_threads(few) == 7 - 3, "threads to have their names", 30)


def compute_threads(pid: int) -> int:
    """Return the number of threads that run a server's operations, and of some others that all servers have."""
    return sum(path.read_text() == "tf_Compute\n" for path in Path(f"/proc/{pid}/task").glob("*/comm"))


def test_a_module_to_preload_is_imported_by_the_task(
    backend: LocalBackend, up: Up, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "own_operations.py").write_text("print('own operations are here', flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lines = log_of(backend, up(job_file("preload", Job(name="worker", preload=("own_operations",)))))
    assert "own operations are here" in lines
    assert "(by importing TensorFlow: to preload own_operations)" in lines[-1]


def test_the_reason_names_a_module_that_is_missing(backend: LocalBackend, up: Up) -> None:
    name = up(job_file("broken", Job(name="worker", preload=("no_such_module",))))
    status = wait_for(backend, name, lambda status: status.tasks[0].phase is Phase.FAILED)
    assert "no_such_module" in status.tasks[0].reason


def test_the_evaluator_is_no_part_of_the_cluster(backend: LocalBackend, up: Up) -> None:
    name = up(job_file("evaluated", chief=1, **{EVALUATOR: 1}))
    status = wait_for(backend, name, is_ready)
    assert list(devices.view(backend, status).addresses) == ["chief/0"]
    (_, evaluator) = devices.list_devices(backend, status)
    assert evaluator.devices[0].name.startswith("/job:evaluator/")


def test_a_task_without_its_gpus_runs_and_reports_that(backend: LocalBackend, up: Up) -> None:
    status = wait_for(backend, up(job_file("gpus", Job(name="worker", gpus=99))), is_ready)
    assert status.tasks[0].reason.startswith("asks for 99 GPUs, has ")


def test_gpus_that_tensorflow_does_not_see_are_reported(
    backend: LocalBackend, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "gpus", lambda: 2)
    jobs = Job(name="master", gpus=1, gpus_optional=True), Job(name="worker", gpus=1)
    status = wait_for(backend, up(job_file("unseen", *jobs)), is_ready)
    with pytest.raises(ClusterError) as caught:
        require_gpus(backend, status)
    assert str(caught.value) == (
        f'cluster "{status.name}" is up, but TensorFlow does not see all GPUs: worker/0 sees 0 of 1: '
        "this machine has TensorFlow for CPUs only"
    )


def test_a_program_begins_only_with_its_gpus(
    backend: LocalBackend, up: Up, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(capacity, "gpus", lambda: 3)
    (tmp_path / "train.py").write_text("open('began', 'w')")
    script, command = Program(("train.py",), str(tmp_path)), Program(("sh", "-c", "echo >began"), str(tmp_path))
    jobs = Job(name="chief", gpus=1, program=script), Job(name="worker", gpus=2, program=command)
    name = up(job_file("programs", *jobs))
    with pytest.raises(ClusterError) as caught:
        require_gpus(backend, backend.observe(name))
    reason = "this machine has TensorFlow for CPUs only"
    first = {f"see all GPUs: {task}: {reason}" for task in ("chief/0 sees 0 of 1", "worker/0 sees 0 of 2")}
    assert any(text in str(caught.value) for text in first)
    status = wait_for(backend, name, lambda status: status.exit_code is not None)
    assert status.exit_code == 2
    assert failure(status).endswith(f" GPUs: {reason}")
    assert not (tmp_path / "began").exists()


def test_a_restarted_task_has_that_as_its_reason(backend: LocalBackend, cluster: str) -> None:
    backend.restart(cluster, Task("ps", 0))
    status = wait_for(backend, cluster, lambda status: is_ready(status) and status.tasks[2].restarts == 1)
    assert status.tasks[2].reason == "restarted on request"


def test_the_log_names_the_version_of_tensorflow(backend: LocalBackend, pair: str) -> None:
    wait_for(backend, pair, is_ready)
    (line,) = backend.logs(pair, [Task("local", 1)], LogOptions(tail=1))
    assert line.task == Task("local", 1)
    port = addresses(backend, pair)[1].rpartition(":")[2]
    assert line.text.startswith(f"tfk8s: local/1 listens on port {port}: TensorFlow 2.")
    assert line.text.endswith(", 1 CPU")
