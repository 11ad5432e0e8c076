"""Scripts without TensorFlow: their variables, and their ends with the processes that they depend on."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import children, is_ready, wait_for
from job_files import job_file

from tfk8s.backends.local import state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.job_file.mappings import EnvSource
from tfk8s.core.script import Script
from tfk8s.core.spec import Job, Task
from tfk8s.errors import TaskUnreachable
from tfk8s.jobfile.loader import load

pytestmark = pytest.mark.usefixtures("servers_only")


@pytest.fixture(scope="module")
def ready(state_home: Path, servers_only: None, backend: LocalBackend) -> Iterator[str]:
    """A cluster whose fork server a test may end."""
    backend.apply(job_file("forks", worker=1))
    wait_for(backend, "forks", is_ready)
    yield "forks"
    backend.delete("forks")


def fork_server(name: str) -> int:
    supervisor = state.folder(name).supervisor()
    (found,) = [pid for pid in children(supervisor) if b"fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def test_a_large_request_does_not_block_the_supervisor(backend: LocalBackend, ready: str, run) -> None:
    server = fork_server(ready)
    os.kill(server, signal.SIGSTOP)
    try:
        path = Path("/dev/null")
        many = [str(number) for number in range(100_000)]
        thread = threading.Thread(
            target=lambda: backend.scripts.run(ready, Script(path=path, arguments=many)), daemon=True
        )
        thread.start()
        wait_for(backend, ready, lambda status: status.running == 1)
    finally:
        os.kill(server, signal.SIGCONT)
    thread.join(120)
    assert not thread.is_alive()


def test_scripts_end_with_the_fork_server(backend: LocalBackend, ready: str, start, run) -> None:
    process = start(ready, "import time; print('up', flush=True); time.sleep(60)")
    assert process.stdout.readline() == "up\n"
    os.kill(fork_server(ready), signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "the process that runs scripts ended; " in err
    status = backend.observe(ready)
    assert (status.running, is_ready(status)) == (0, True)
    assert run(ready, "print('again')")[:2] == (0, "again\n")


def test_an_unread_request_ends_with_the_fork_server(backend: LocalBackend, ready: str, start) -> None:
    os.kill(fork_server(ready), signal.SIGSTOP)
    process = start(ready, "print('not reached')")
    wait_for(backend, ready, lambda status: status.running == 1)
    os.kill(fork_server(ready), signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "the process that runs scripts ended" in err
    assert is_ready(backend.observe(ready))


def test_scripts_end_with_the_supervisor(backend: LocalBackend, cluster: str, start) -> None:
    process = start(cluster, "import time; print('up', flush=True); time.sleep(60)")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    supervisor = state.folder(cluster).supervisor()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "its supervisor is gone" in err


def test_a_task_that_stays_down_is_named(backend: LocalBackend, up, run) -> None:
    name = up(job_file("halfdown", Job(name="worker"), Job(name="ps", preload=("no_such_module",))))
    words = "ps/0 is failed: exited with 2: error: ps/0 can't import no_such_module"
    with pytest.raises(TaskUnreachable, match=words):
        run(name, "print('not reached')", fresh=True)


def test_a_module_beside_the_job_file_is_loaded(tmp_path: Path, up, backend: LocalBackend, tensorflow: None) -> None:
    (tmp_path / "own_operations.py").write_text("import sys\nprint('loaded by', sys.argv[0].rpartition('/')[2])")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('read before the interpreter was ready')")
    (tmp_path / "cluster.yaml").write_text(
        "apiVersion: tfk8s.dev/v1\nname: beside\njobs: {worker: {preload: [own_operations]}}\n"
    )
    wait_for(backend, up(load(tmp_path / "cluster.yaml")), is_ready)
    assert "loaded by server.py" in state.folder("beside").log(Task("worker", 0)).read_text()


def test_a_script_has_the_masters_variables(run, up, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"TF_OF_CLUSTER": "a", "RATE": "1e-3", "TOKEN": EnvSource(secret="s", key="k"), "TF_SEED": "5"}
    monkeypatch.setenv("TOKEN", "of up")
    name = up(dataclasses.replace(job_file("own", Job(name="local", env={"RATE": "1e-4"})), env=env))
    for variable in ("TOKEN", "RATE", "TF_SEED"):
        monkeypatch.setenv(variable, "of submit")
    text = (
        "import os, pathlib\n"
        "print(*(os.environ[name] for name in ('TF_OF_CLUSTER', 'RATE', 'TOKEN', 'TF_SEED')), sep=', ')\n"
        "print('fork_server' in pathlib.Path(f'/proc/{os.getppid()}/cmdline').read_text())"
    )
    for fresh in (False, True):
        assert run(name, text, fresh=fresh)[:2] == (0, f"a, 1e-4, of up, 5\n{not fresh}\n")
