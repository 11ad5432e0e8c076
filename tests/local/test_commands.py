"""Commands on this machine: exit codes, output, and what is left behind."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import REPOSITORY, gone, running, start_tfk8s, tfk8s, wait_until_gone

from tfk8s.backends import interpreter
from tfk8s.backends.local import state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.backends.local.record import make_record
from tfk8s.backends.local.supervision.supervisor_process import SupervisorProcess
from tfk8s.core.addresses import host_and_port
from tfk8s.jobfile.loader import load
from tfk8s.polling import wait_until
from tfk8s.sessions.forks.processes import marked
from tfk8s.task import probe

TUTORIAL = REPOSITORY / "examples" / "tutorial"
pytestmark = pytest.mark.usefixtures("servers_only")
CLUSTER, TWO_TASKS = TUTORIAL / "cluster.yaml", TUTORIAL / "two_tasks.py"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text("apiVersion: tfk8s.dev/v1\nname: mine\njobs: {worker: 2, ps: 1}\n")
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of two workers and a ps that tests leave as it is."""
    path = tmp_path_factory.mktemp("shared") / "shared.yaml"
    path.write_text("apiVersion: tfk8s.dev/v1\nname: shared\njobs: {worker: 2, ps: 1}\n")
    with running(path):
        yield "shared"


@pytest.fixture
def mine(job_file: Path) -> Iterator[str]:
    up = tfk8s("up", "--local", job_file)
    assert up.returncode == 0, up.stderr
    yield "mine"
    if state.folder("mine").read() is not None:
        assert tfk8s("down", "--local", "mine").returncode == 0


def pids(name: str) -> list[int]:
    document = json.loads(tfk8s("status", "--local", name, "-o", "json").stdout)
    return [int(task["where"].removeprefix("pid ")) for task in document["tasks"]]


def test_exec_has_the_network_and_the_variables_of_a_task(shared: str) -> None:
    status = json.loads(tfk8s("status", "--local", shared, "-o", "json").stdout)
    _, port = host_and_port(status["tasks"][1]["address"])
    look = f"import socket; print(socket.create_connection(('127.0.0.1', {port})).getpeername())"
    seen = tfk8s("exec", "--local", shared, "worker/1", "--", sys.executable, "-c", look)
    assert (seen.returncode, seen.stdout, seen.stderr) == (0, f"('127.0.0.1', {port})\n", "")
    own = tfk8s("exec", "--local", shared, "worker/1", "--", "sh", "-c", 'echo "$TFK8S_JOB/$TFK8S_INDEX"')
    assert own.stdout == "worker/1\n"
    absent = tfk8s("exec", "--local", shared, "worker/1", "absent")
    assert (absent.returncode, absent.stderr) == (127, "tfk8s: can't run absent: No such file or directory\n")


@pytest.mark.usefixtures("tensorflow")
def test_run_prints_only_the_result_and_leaves_nothing() -> None:
    proxy = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}  # no effect
    done = tfk8s("run", "--local", "--tf1", CLUSTER, TWO_TASKS, env={**os.environ, **proxy})
    assert (done.returncode, done.stdout) == (0, "238\n"), done.stderr
    assert state.folder("tutorial").read() is None


def test_run_exits_with_the_code_of_the_script(job_file: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:]); sys.exit(7)")
    done = tfk8s("run", "--local", job_file, script, "--steps", "5", "--local")
    assert (done.returncode, done.stdout) == (7, "['--steps', '5', '--local']\n")
    assert state.folder("mine").read() is None


def test_run_of_a_missing_script_starts_nothing(job_file: Path) -> None:
    done = tfk8s("run", "--local", job_file, "absent.py")
    assert done.returncode == 2
    assert done.stderr.startswith('error: there is no script "absent.py"\n')
    assert state.folder("mine").read() is None


def test_a_second_up_keeps_the_cluster(job_file: Path, mine: str) -> None:
    before = pids(mine)
    again = tfk8s("up", "--local", job_file)
    assert again.returncode == 0
    assert again.stdout == 'cluster "mine" is up: nothing changed\n'
    assert pids(mine) == before
    job_file.write_text(job_file.read_text().replace("ps: 1", "ps: {preload: [json]}"))
    done = tfk8s("up", "--local", job_file)
    assert done.returncode == 2
    assert "jobs.ps.preload" in done.stderr


def test_a_second_down_is_an_error(mine: str) -> None:
    processes = pids(mine)
    assert tfk8s("down", "--local", mine).returncode == 0
    for pid in processes:
        wait_until_gone(pid)
    again = tfk8s("down", "--local", mine)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.startswith('error: there is no cluster "mine" on this machine; the')


def test_status_devices_logs_ls_and_restart(shared: str) -> None:
    assert re.search(r"^worker/1 +Ready +[a-z0-9.]+:[0-9]+ ", tfk8s("status", "--local", shared).stdout, re.MULTILINE)
    listed = json.loads(tfk8s("ls", "--local", "-o", "json").stdout)
    assert shared in [cluster["name"] for cluster in listed]
    devices = tfk8s("devices", "--local", shared).stdout
    assert re.search(r"^worker/1 +CPU:0 ", devices, re.MULTILINE)
    logs = tfk8s("logs", "--local", shared, "worker/1").stdout
    assert re.search(r"tfk8s: worker/1 listens on port \d+: TensorFlow 2\.", logs)
    before = pids(shared)
    assert tfk8s("restart", "--local", shared, "ps/0").returncode == 0
    assert len(set(before) & set(pids(shared))) == 2


@pytest.mark.parametrize("delay", [0.15, 0.3])
def test_up_completes_an_up_that_was_killed(job_file: Path, delay: float) -> None:
    process = start_tfk8s("up", "--local", job_file)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(delay)
    process.kill()
    process.communicate()
    again = tfk8s("up", "--local", job_file)
    assert again.returncode == 0, again.stderr
    record = state.folder("mine").read()
    assert record is not None
    processes = pids("mine")
    assert tfk8s("down", "--local", "mine").returncode == 0
    assert [pid for pid in (*processes, *state.cluster_processes(record.id)) if not gone(pid)] == []


def test_a_supervisor_outlives_an_up_that_is_killed_while_it_waits(job_file: Path) -> None:
    folder, record = state.folder("mine"), make_record(load(job_file), secrets.token_hex(16), exposed=False)
    folder.create(record)
    process = SupervisorProcess(record.id)
    with open(folder.supervisor_log, "ab") as log:
        process.supervise(folder.path, log.fileno()).close()
    process.reap()
    wait_until(lambda: folder.supervisor() is not None, "the supervisor to start", 60)
    supervisor = folder.supervisor()
    again = tfk8s("up", "--local", job_file)
    assert again.returncode == 0, again.stderr
    assert folder.supervisor() == supervisor
    assert tfk8s("down", "--local", "mine").returncode == 0


@pytest.mark.parametrize("text", ["name: mine\njobs: {worker: many}\n", ""])
def test_a_command_that_starts_nothing_leaves_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    environment = {**os.environ, "TEST_OF": str(tmp_path)}
    assert tfk8s("up", "--local", tmp_path / "bad.yaml", env=environment).returncode == 2
    wait_until(lambda: not marked("TEST_OF", str(tmp_path)), "the supervisor's process to end", 20)


def test_two_ups_at_once_make_one_cluster(job_file: Path) -> None:
    both = [start_tfk8s("up", "--local", job_file) for _ in range(2)]
    for process in both:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert len(pids("mine")) == 3
    assert tfk8s("down", "--local", "mine").returncode == 0


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- 2>&-"])
def test_a_closed_stream_is_no_socket_of_the_command(job_file: Path, tmp_path: Path, closed: str) -> None:
    script, seen = tmp_path / "script.py", tmp_path / "seen"
    script.write_text(
        "import os, sys\n"
        f"with open({str(seen)!r}, 'w') as seen:\n"
        "    print(repr(sys.stdin.read()), *(os.readlink(f'/proc/self/fd/{n}') for n in range(3)), file=seen)\n"
    )
    words = [sys.executable, "-m", "tfk8s", "run", "--local", str(job_file), str(script)]
    done = subprocess.run(
        ["bash", "-c", f'"$@" {closed}', "bash", *words], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0
    assert seen.read_text().startswith("''")
    assert "socket" not in seen.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_removes_its_cluster(job_file: Path, tmp_path: Path, number: int) -> None:
    script = tmp_path / "script.py"
    script.write_text("import time; print('up', flush=True); time.sleep(60)")
    process = start_tfk8s("run", "--local", job_file, script)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    processes = pids("mine")
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode in (130, 143)
    assert state.folder("mine").read() is None
    for pid in processes:
        wait_until_gone(pid)


def killed_in_a_script(*words: object) -> tuple[int, list[int]]:
    """Kill a `run` whose script waits; return the processes of the supervisor and of the tasks."""
    process = start_tfk8s("run", "--local", *map(str, words))
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    supervisor, tasks = state.folder("mine").supervisor(), pids("mine")
    assert supervisor is not None
    process.kill()
    process.communicate(timeout=30)
    return supervisor, tasks


def test_a_killed_run_takes_its_own_cluster_along(job_file: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import time; print('up', flush=True); time.sleep(60)")
    supervisor, tasks = killed_in_a_script("--keep", job_file, script)
    assert killed_in_a_script(job_file, script) == (supervisor, tasks)  # the second one uses the cluster of the first
    wait_until(lambda: not LocalBackend().observe("mine").scripts, "both scripts to end", 30)
    assert LocalBackend().observe("mine").ready == len(tasks)
    assert tfk8s("down", "--local", "mine").returncode == 0
    supervisor, tasks = killed_in_a_script(job_file, script)
    for pid in (supervisor, *tasks):
        wait_until_gone(pid)
    assert not state.folder("mine").path.exists()


def test_a_run_right_after_a_killed_run_removes_its_cluster(job_file: Path, tmp_path: Path) -> None:
    waits, ends = tmp_path / "waits.py", tmp_path / "ends.py"
    waits.write_text("import time; print('up', flush=True); time.sleep(60)")
    ends.write_text("")
    killed_in_a_script(job_file, waits)
    done = tfk8s("run", "--local", job_file, ends)
    assert done.returncode == 0, done.stderr
    assert not state.folder("mine").path.exists()


@pytest.mark.usefixtures("tensorflow")
def test_an_interrupted_up_can_be_continued(job_file: Path) -> None:
    job_file.write_text(job_file.read_text().replace("ps: 1", "ps: {tasks: 1, preload: [tensorflow]}"))
    process = start_tfk8s("up", "--local", job_file)  # importing TensorFlow takes long enough
    folder = state.folder("mine")
    wait_until(lambda: folder.control.exists(), "the supervisor to listen", 60)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130
    if folder.read() is not None:  # up keeps what it made: a second up goes on from there
        assert tfk8s("down", "--local", "mine").returncode == 0


def test_only_this_user_can_connect_to_the_address_of_connect(shared: str, tmp_path: Path) -> None:
    process = start_tfk8s("connect", "--local", shared)
    try:
        assert process.stdout is not None
        target = process.stdout.readline().strip()
        port = int(target.removeprefix("grpc://127.0.0.1:"))
        with socket.create_connection(("127.0.0.1", port)) as stream:
            assert len(probe.get_status(stream, 5)) == 1
        if os.geteuid() == 0 and (other := shutil.which("su")):
            code = f"import socket; s = socket.create_connection(('127.0.0.1', {port})); print(s.recv(1))"
            python = "/usr/bin/python3"
            said = subprocess.run(
                [other, "nobody", "-s", "/bin/sh", "-c", f'{python} -c "{code}"'],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert said.stdout in ("b''\n", ""), said
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 130


@pytest.mark.usefixtures("tensorflow")
def test_the_example_of_the_page_on_python(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "python.md").read_text()
    path = tmp_path / "example.py"
    path.write_text(
        re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
        + "    with tf.compat.v1.Session(cluster.target) as session:\n"
        "        print([device.name for device in session.list_devices()])\n"
    )
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, cwd=REPOSITORY, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    devices = [f"/job:local/replica:0/task:{index}/device:CPU:0" for index in (0, 1)]
    target, *lines = done.stdout.splitlines()
    assert re.fullmatch(r"grpc://127\.0\.0\.1:\d+ \['local/0', 'local/1'\]", target)
    assert lines == ["238", str(devices)]
    assert state.folder("tutorial").read() is None


def test_an_unknown_name_is_an_error_of_every_command() -> None:
    for command in ("status", "devices", "logs", "restart", "connect", "down"):
        done = tfk8s(command, "--local", "absent")
        assert (done.returncode, done.stdout) == (2, ""), command
        assert done.stderr.startswith('error: there is no cluster "absent" on this machine; the')


def test_missing_tensorflow_is_an_error_with_help(job_file: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "empty"], check=True)
    environment = {**os.environ, "VIRTUAL_ENV": str(tmp_path / "empty")}
    done = tfk8s("up", "--local", job_file, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: TensorFlow is not installed for {tmp_path}/empty/bin/python\n")
    assert "pip install" in done.stderr


def test_an_interpreter_that_the_user_names(job_file: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "own"], check=True)
    (packages,) = (tmp_path / "own").glob("lib/python3*/site-packages")
    (packages / "others.pth").write_text(str(Path(str(interpreter.tensorflow_folder(sys.executable))).parent))
    (tmp_path / "prefix.py").write_text("import sys; print(sys.prefix)")
    up = tfk8s("up", "--local", "--python", tmp_path / "own", job_file)
    python = f"{tmp_path}/own/bin/python"
    assert f"\npython: {python}, TensorFlow 2." in up.stderr, up.stderr
    assert f"\npython: {python}, TensorFlow 2." in tfk8s("status", "--local", "mine").stdout
    prefixes = [
        tfk8s("submit", "--local", *options, "mine", tmp_path / "prefix.py").stdout.strip()
        for options in ([], ["--python", sys.executable])
    ]
    assert prefixes == [str(tmp_path / "own"), sys.prefix]
    other = tfk8s("up", "--local", "--python", sys.executable, job_file)
    assert other.stderr.startswith(f'error: cluster "mine" runs already, with {python}\n'), other.stderr
    assert tfk8s("down", "--local", "mine").returncode == 0


def test_a_cluster_in_a_shared_network_gets_free_ports(job_file: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        job_file.write_text(job_file.read_text() + f"port: {port}\n")
        up = tfk8s("up", "--local", "--allow-exposed-ports", job_file)
        assert up.returncode == 0, up.stderr
    assert "isolation: loopback: other users of this machine can connect (--allow-exposed-ports)" in up.stderr
    status = json.loads(tfk8s("status", "--local", "mine", "-o", "json").stdout)
    _, own = host_and_port(status["tasks"][0]["address"])
    assert own != port
    with socket.create_connection(("127.0.0.1", own)) as stream:
        assert len(probe.get_status(stream, 5)) == 1
    assert tfk8s("down", "--local", "mine").returncode == 0
