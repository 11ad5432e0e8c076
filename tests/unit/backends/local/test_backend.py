"""The parts of the local backend that start no process."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from job_files import job_file

from tfk8s import polling
from tfk8s.backends.local import (
    capacity,
    logs,
    script_processes,
    state,
    supervisor_client,
    task_log,
    task_processes,
)
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.backends.local.programs import cluster_end
from tfk8s.backends.local.record import make_record
from tfk8s.backends.local.supervision import requests, supervisor_process
from tfk8s.core.naming import CLUSTER_ID_VARIABLE
from tfk8s.core.programs import Program
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.errors import ClusterError, InvalidInput, WaitTimeout
from tfk8s.sessions.forks import fork_client, processes
from tfk8s.sessions.forks.event_loop import Loop
from tfk8s.task import ipc
from tfk8s.task.programs import import_variables

GIB = 1024**3


# ---- memory, GPUs, ports -------------------------------------------------------------------------------------------


def machine(path: Path, free_gib: int, **cgroup: str) -> tuple[Path, Path]:
    (path / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {free_gib * 1024 * 1024} kB\n")
    for name, text in cgroup.items():
        (path / name.replace("_", ".", 1)).write_text(text + "\n")
    return path, path


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        ({}, 8),
        ({"memory_max": "max", "memory_current": "5"}, 8),
        ({"memory_max": str(4 * GIB), "memory_current": str(GIB)}, 3),
        ({"memory_max": str(40 * GIB), "memory_current": str(GIB)}, 8),
        ({"memory_max": str(GIB), "memory_current": str(2 * GIB)}, 0),
    ],
)
def test_available_memory(tmp_path: Path, cgroup, expected: int) -> None:
    assert capacity.available_memory(*machine(tmp_path, 8, **cgroup)) == expected * GIB


def test_memory_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "available_memory", lambda: 5 * GIB)
    capacity.check_memory(job_file("c", Job(name="worker", tasks=4, memory=Quantity.parse("1Gi"))))
    with pytest.raises(InvalidInput) as caught:
        capacity.check_memory(
            job_file("c", Job(name="ps", tasks=2), Job(name="worker", tasks=4, memory=Quantity.parse("2Gi")))
        )
    assert str(caught.value) == (
        'cluster "c" needs 8.4 GiB of memory (ps 2 × 48Mi, worker 4 × 2Gi); this machine has 5.0 GiB free'
    )
    with pytest.raises(InvalidInput) as caught:
        capacity.check_memory(
            job_file(
                "c", Job(name="worker", tasks=60, program=Program(("a.py",))), Job(name="b", program=Program(("sh",)))
            )
        )
    assert str(caught.value) == (
        'cluster "c" needs 6.2 GiB of memory (worker 60 × 96Mi, b 1 × 256Mi); this machine has 5.0 GiB free'
    )


def test_gpus_go_to_tasks_in_order_until_none_is_left() -> None:
    jobs = (Job(name="a", tasks=2, gpus=1), Job(name="b"), Job(name="c", tasks=2, gpus=2))
    assert capacity.assign_gpus([(job, task) for job in jobs for task in job], range(5)) == {
        Task("a", 0): [0], Task("a", 1): [1], Task("b", 0): [], Task("c", 0): [2, 3], Task("c", 1): [4],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given_file", "message"),
    [
        (job_file("c", Job(name="worker", tasks=3), port=65534), "worker/2 would listen on port 65536, past 65535"),
        (
            job_file("c", Job(name="a", tasks=2), Job(name="b", port=2223)),
            "a/1 and b/0 would both listen on port 2223 of this machine",
        ),
    ],
)
def test_ports_are_checked(given_file: JobFile, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        capacity.check_ports(given_file)
    assert str(caught.value) == message


# ---- state ---------------------------------------------------------------------------------------------------------


def test_a_script_can_not_remove_its_own_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    record = make_record(job_file("c"), "1d", exposed=False)
    state.folder("c").create(record)
    monkeypatch.setenv(CLUSTER_ID_VARIABLE, record.id)
    with pytest.raises(InvalidInput) as caught:
        LocalBackend().delete("c")
    assert str(caught.value) == 'a script of cluster "c" can\'t remove it: the script would end with it, half-way'
    monkeypatch.setenv(CLUSTER_ID_VARIABLE, "another's")
    LocalBackend().delete("c")
    assert state.folder("c").read() is None


def test_invalid_names_have_no_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("../x", "", ".", "a/b", "UPPER"):
        assert state.folder(name).read() is None


def test_the_state_folder_can_not_be_created(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(ClusterError) as caught:
        state.folders()
    assert str(caught.value) == f"can't keep clusters' state in {tmp_path / 'file' / 'tfk8s'}: Not a directory"


# ---- logs ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.text("abc", max_size=5), max_size=12), st.integers(0, 15), st.booleans())
@example(["a", "b"], 3, True)
@example(["", "a"], 0, False)
def test_tail_of_a_file(lines: list[str], count: int, ended: bool) -> None:
    whole = "\n".join(lines).encode() + (b"\n" if ended and lines else b"")
    expected = b"".join(whole.splitlines(keepends=True)[-count:]) if count else b""
    assert whole[logs.tail_offset(io.BytesIO(whole), count) :] == expected


def test_logs_are_read_in_lines(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"one\ntwo\xff\nunfinished")
    read = [line.text for line in logs.read([(Task("worker", 0), path)], follow=False, tail=None)]
    assert read == ["one", "two�", "unfinished"]


RUNS = """\
2026-11-22T10:00:01.000000Z 0 first
2026-11-22T10:00:02.000000Z 1 second
2026-11-22T10:00:03.000000Z 1 third
2026-11-22T10:00:04.000000Z 3 last
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LogOptions(), ["first", "second", "third", "last"]),
        (LogOptions(previous=True), ["second", "third"]),
        (LogOptions(previous=True, tail=1, timestamps=True), ["2026-11-22T10:00:03.000000Z third"]),
        (LogOptions(since=1.5), ["third", "last"]),
        (LogOptions(since=10, tail=1), ["last"]),
    ],
)
def test_parts_of_a_tasks_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: LogOptions, expected: list[str]
) -> None:
    (tmp_path / "log").write_text(RUNS)
    (tmp_path / "once").write_text(RUNS.splitlines()[0])
    now = datetime(2026, 11, 22, 10, 0, 4, tzinfo=UTC).timestamp()
    monkeypatch.setattr(logs.time, "time", lambda: now)
    files = [(Task("ps", 0), tmp_path / "log")]
    assert [line.text for line in logs.read_tasks(files, options)] == expected
    others = [(Task("ps", 1), tmp_path / "once"), (Task("ps", 2), tmp_path / "none")]
    assert list(logs.read_tasks(others, LogOptions(previous=True))) == []


def test_output_is_logged_line_by_line(tmp_path: Path) -> None:
    loop = StubLoop()
    pipe = task_log.LogPipe(loop, tmp_path / "log", 2)
    (readable,) = loop.callbacks.values()
    os.write(pipe.writer, b"one\ntw")
    readable()
    os.write(pipe.writer, b"o\n\nunfinished\xff")
    pipe.drain()
    assert [task_log.parse(line).text for line in (tmp_path / "log").read_text().splitlines()] == ["one", "two", ""]
    os.close(pipe.writer)
    pipe.drain()
    pipe.drain()
    assert loop.callbacks == {}
    last = task_log.parse((tmp_path / "log").read_text(errors="replace").splitlines()[-1])
    assert (last.run, last.text) == (2, "unfinished�")


def test_a_line_is_explained_in_the_log(tmp_path: Path) -> None:
    pipe = task_log.LogPipe(StubLoop(), tmp_path / "log", 0)
    pipe.explain = {"no route": "closed: no route"}.get  # type: ignore[assignment]
    os.write(pipe.writer, b"one\nno route\n")
    pipe.drain()
    texts = [task_log.parse(line).text for line in (tmp_path / "log").read_text().splitlines()]
    assert texts == ["one", "no route", "tfk8s: closed: no route"]
    os.close(pipe.writer)
    pipe.drain()


def test_output_that_can_not_be_written_is_dropped(tmp_path: Path) -> None:
    pipe = task_log.LogPipe(StubLoop(), tmp_path / "none" / "log", 0)
    os.write(pipe.writer, b"one\n")
    os.close(pipe.writer)
    pipe.drain()
    assert list(tmp_path.iterdir()) == []


# ---- processes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "log", "expected"),
    [
        (signal.SIGKILL, "", "killed by SIGKILL"),
        (1 << 8, "", "exited with 1"),
        (1 << 8, "T 0 first\nT 0 error: no such thing\nT 0 \n", "exited with 1: error: no such thing"),
        (
            1 << 8,
            'T 0 E: <RpcError of RPC that terminated with:\nT 0  details = "gone"\nT 0 >\n',
            "exited with 1: E: gone",
        ),
        (1 << 8, "T 0 Traceback (most recent call last):\nT 0 OSError: a\nT 0 \nT 1 b\n", "exited with 1: b"),
    ],
)
def test_the_exit_of_a_process_is_described(tmp_path: Path, status: int, log: str, expected: str) -> None:
    path = tmp_path / "log"
    path.write_text(log)
    assert task_processes.describe_exit(status, path) == expected


def test_the_oom_killer_is_named(tmp_path: Path) -> None:
    assert task_processes.describe_exit(signal.SIGKILL, tmp_path, out_of_memory=True) == (
        "killed by SIGKILL, probably by the kernel because memory was short"
    )
    assert task_processes.describe_exit(signal.SIGTERM, tmp_path, out_of_memory=True) == "killed by SIGTERM"
    (tmp_path / "vmstat").write_text("nr_free_pages 4711\noom_kill 7\nnuma_hit 3\n")
    assert capacity.count_oom_kills(tmp_path) == 7
    assert capacity.count_oom_kills(tmp_path / "none") == 0


def test_variables_that_tensorflow_reads_at_import() -> None:
    environment = {"TF_USE_LEGACY_KERAS": "1", "HOME": "/", "CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": "x", "TERM": "y"}
    assert import_variables.read_at_import(environment).keys() == {
        "TF_USE_LEGACY_KERAS",
        "CUDA_VISIBLE_DEVICES",
        "PYTHONPATH",
    }


def test_following_ends_when_another_cluster_has_the_name(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\n")
    lines = logs.read([(Task("ps", 0), tmp_path / "log")], follow=True, tail=None)
    assert next(lines).text == "one"
    (tmp_path / "new").write_text("another cluster's\n")
    (tmp_path / "new").rename(tmp_path / "log")
    assert list(lines) == []


def test_a_cluster_whose_record_is_damaged_can_be_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = state.folder("damaged")
    folder.path.mkdir()
    (folder.path / "cluster.json").write_text('{"name": "damaged"')
    with pytest.raises(ClusterError) as caught:
        LocalBackend().observe("damaged")
    assert caught.value.help == "tfk8s down --local damaged removes it"
    LocalBackend().delete("damaged")
    assert not folder.path.exists()


def test_ctrl_c_in_scale_waits_until_the_cluster_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = state.folder("c")
    worker = Job(name="worker", tasks=2, program=Program(("sleep", "1")))
    folder.create(make_record(job_file("c", worker), "1d", exposed=False))
    monkeypatch.setattr(state.Folder, "is_running", lambda _: True)
    started = []
    monkeypatch.setattr(cluster_end, "end", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    monkeypatch.setattr(supervisor_process, "waiting", lambda: contextlib.nullcontext(SimpleNamespace(id="x1")))
    monkeypatch.setattr(supervisor_client, "start", lambda _, record, *__, **___: started.append(record))
    with pytest.raises(KeyboardInterrupt):
        LocalBackend().scale("c", {"worker": 3})
    assert started == [folder.read()]
    assert len(started[0].tasks) == 3


def test_ended_cluster_is_not_scaled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state.folder("c").create(make_record(job_file("c", Job(name="worker", tasks=2)), "1d", exposed=False))
    with pytest.raises(ClusterError, match=r'^cluster "c" has ended: its supervisor is gone'):
        LocalBackend().scale("c", {"worker": 3})


def test_a_lock_of_another_command_is_awaited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(polling, "TELL_SECONDS", 0.0)
    with state.locked():
        assert caplog.messages == []
        monkeypatch.setattr(state, "LOCK_TIMEOUT", 0.01)
        with pytest.raises(WaitTimeout), state.locked():
            pass
    assert caplog.messages == ["waiting for another `tfk8s up`, `scale` or `down` of this user to end"]


# ---- scripts -------------------------------------------------------------------------------------------------------


class StubLoop(Loop):
    """Records callbacks, for a test to call."""

    def __init__(self) -> None:
        self.callbacks: dict[object, Callable[[], None]] = {}

    def on_readable(self, source: int | socket.socket, callback: Callable[[], None]) -> None:
        self.callbacks[source] = callback

    def forget(self, source: int | socket.socket) -> None:
        del self.callbacks[source]

    def on_end(self, pid: int, callback: Callable[[int], None]) -> None:
        pass


def test_a_script_ends_before_tensorflow_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(processes.os, "killpg", lambda pid, number: killed.append((pid, number)))
    client, clients_side = socket.socketpair()
    client.settimeout(10)
    fork_server, fork_servers_side = socket.socketpair()
    monkeypatch.setattr(fork_client.socket, "socketpair", lambda: (fork_servers_side, fork_server.dup()))
    monkeypatch.setattr(processes, "spawn", lambda *_: 4711)
    loop = StubLoop()
    forks = fork_client.ForkClient(loop, ["python"], {}, tmp_path / "scripts.log")
    runner = script_processes.ScriptRunner(loop, forks, lambda _: [], lambda: None, None, lambda *_: None)
    with client, fork_server, fork_servers_side:
        request = requests.RunScript(
            fresh=False, python="python", folder="/", umask=0, arguments=["train.py"], environment={},
            progress=str(tmp_path / "progress"),
        )  # fmt: skip
        runner.run(clients_side, request, [os.dup(0)])
        ipc.send(client, {"signal": signal.SIGINT})
        loop.callbacks[clients_side]()
        assert ipc.receive(client) == ({"exit": -signal.SIGINT}, [])
        assert runner.describe() == []

        ipc.send(fork_server, {"pid": 4712})  # the fork server has imported TensorFlow, and forked
        loop.callbacks[fork_servers_side]()
        ipc.send(fork_server, {"ended": 4712, "status": int(signal.SIGKILL)})
        loop.callbacks[fork_servers_side]()
    assert killed == [(4712, signal.SIGKILL)]


def test_a_new_cluster_takes_the_early_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    taken: list[object] = []
    waiting = SimpleNamespace(id="x1")
    monkeypatch.setattr(supervisor_process, "waiting", lambda: contextlib.nullcontext(waiting))
    monkeypatch.setattr(supervisor_client, "start", lambda _, record, process, **__: taken.append((record.id, process)))
    assert LocalBackend().apply(job_file("c", worker=1))
    assert taken == [("x1", waiting)]
