"""A warm pod's processes on this machine: scripts in forks, their streams, their ends, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.scripts import script_archive, warm_pods
from tfk8s.backends.kubernetes.scripts.warm_stream import Unusable, WarmScript
from tfk8s.errors import ClusterError, TaskUnreachable
from tfk8s.sessions.warm import channel

TIMEOUT = 60.0
KEEPER = "import sys; from tfk8s.sessions.warm import keeper; sys.exit(keeper.main(int(sys.argv[1])))"
HASTY = f"from tfk8s.sessions.warm import channel; channel.RESUME_TIMEOUT = 0; {KEEPER}"  # waits for no client
POD = {"metadata": {"namespace": "lab", "name": "demo-warm", "uid": "1"}}
CLUSTER = {"TFK8S_JOBS": "worker=0", "TFK8S_TARGET": "grpc://127.0.0.1:9"}  # no task, so that none has to answer

PRINTS_UNTIL_FILE = """
import itertools, os, sys, time
open("here", "w").close()
for number in itertools.count():
    print(number, "x" * 5000)
    if number >= 59 and os.path.exists(sys.argv[1]):
        break
    time.sleep(0.01)
"""


class WarmPod:
    """Process 1 of a warm pod, and what its scripts write."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, port: int) -> None:
        self.process, self.folder, self.port = process, folder, port
        self.connections: list[socket.socket] = []

    def dial(self, *_: object) -> socket.socket:
        try:
            connection = socket.create_connection(("127.0.0.1", self.port))
        except OSError as error:
            raise TaskUnreachable(str(error)) from error
        self.connections.append(connection)
        return connection

    def run(self, text: str, *arguments: str, stdin: bool = False, **environment: str) -> dict[str, Any]:
        folder = self.folder.parent / f"script-{len(self.connections)}-{threading.get_ident()}"
        folder.mkdir()
        script = folder / "script.py"
        script.write_text(text)
        archive = script_archive.pack(script)
        request = {
            "arguments": ["script.py", *arguments], "archive": len(archive), "stdin": stdin,
            "environment": {**CLUSTER, **environment},
        }  # fmt: skip
        with contextlib.closing(WarmScript(None, POD)) as running:  # type: ignore[arg-type]
            return running.run(request, archive)

    def processes(self) -> dict[int, int]:
        """Return the number of open files of process 1 and its children, 0 for a zombie."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        found = {}
        for number in (pid, *map(int, children)):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                try:
                    found[number] = len(list(Path(f"/proc/{number}/fd").iterdir()))
                except PermissionError:  # only root may look at a zombie's
                    found[number] = 0
        return found

    def rest(self) -> dict[int, int]:
        """Return `processes` once no script is left."""
        polling.wait_until(lambda: not any(self.folder.iterdir()), "the scripts' folders to go", TIMEOUT)
        polling.wait_until(lambda: len(self.processes()) == 3, "the scripts' processes to go", TIMEOUT)
        return self.processes()


def start(libraries: Path, folder: Path, keeper: str = KEEPER, **environment: str) -> WarmPod:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    work = folder / "work"
    work.mkdir()
    own = {
        "PYTHONPATH": os.pathsep.join([str(libraries), *sys.path]), "TFK8S_NAME": "demo", "TFK8S_NAMESPACE": "lab",
        "TFK8S_PORT": "2222",
    }  # fmt: skip
    command = [sys.executable, "-c", keeper, str(port)]
    process = subprocess.Popen(
        command, cwd=work, env={**os.environ, **own, **environment}, text=True, stdout=subprocess.DEVNULL
    )
    return WarmPod(process, work, port)


@pytest.fixture(scope="module")
def pod(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmPod]:
    warm = start(libraries, tmp_path_factory.mktemp("warm"))
    yield warm
    warm.process.send_signal(signal.SIGTERM)
    assert warm.process.wait(TIMEOUT) == 0


@pytest.fixture(autouse=True)
def dialed(pod: WarmPod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "dial", pod.dial)
    monkeypatch.setattr(warm_pods, "require_running", lambda *_: None)


def unreachable(*_: object) -> socket.socket:
    raise TaskUnreachable("no network")


@contextlib.contextmanager
def standard_input() -> Iterator[int]:
    """Replace this process' standard input by a pipe; yield the end that writes, which the caller closes."""
    reader, writer = os.pipe()
    stdin = os.dup(0)
    os.dup2(reader, 0)
    os.close(reader)
    try:
        yield writer
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)


def test_a_script_has_streams_arguments_variables_and_a_folder_of_its_own(
    pod: WarmPod, capfd: pytest.CaptureFixture[str]
) -> None:
    end = pod.run(
        "import os, sys\nprint(sys.argv, os.environ['RATE'], os.listdir())\nopen('left', 'w').close()\n"
        "open(os.environ['TMPDIR'] + '/left', 'w').close()\nsys.exit('bad')",
        "a b",
        RATE="2",
    )
    out, err = capfd.readouterr()
    assert out == "['script.py', 'a b'] 2 ['script.py']\n"
    assert err.endswith("bad\n")
    assert (end["exit"], end["note"], end["pod_ends"]) == (1, "", False)
    pod.rest()


def test_fifty_scripts_leave_nothing_behind(pod: WarmPod) -> None:
    pod.run("")
    before = pod.rest()
    for number in range(50):
        end = pod.run(
            f"import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\nraise SystemExit({number})"
        )
        assert end["exit"] == number
    assert pod.rest() == before


def test_eight_scripts_at_once(pod: WarmPod) -> None:
    text = "import pathlib, sys, time\npathlib.Path('x').touch()\ntime.sleep(0.5)\nsys.exit(int(sys.argv[1]))"
    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(lambda number: pod.run(text, str(number))["exit"], range(8)))
    assert ends == list(range(8))
    pod.rest()


def test_input_reaches_the_script(pod: WarmPod, capfd: pytest.CaptureFixture[str]) -> None:
    text = b"".join(b"%d\n" % number for number in range(300_000))

    def write(writer: int) -> None:
        with open(writer, "wb") as file:
            file.write(text)

    with ThreadPoolExecutor(1) as pool, standard_input() as writer:
        writing = pool.submit(write, writer)
        pod.run("import sys\nsys.stdout.write(sys.stdin.read())", stdin=True)
        writing.result()
    assert capfd.readouterr().out == text.decode()


def test_output_is_complete_over_connections_that_break(
    pod: WarmPod, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cuts = 5
    before = len(pod.connections)
    cut_all = tmp_path / "cut-all"

    def cut() -> None:
        polling.wait_until(lambda: any(pod.folder.glob("*/files/here")), "the script to start", TIMEOUT)
        for number in range(1, cuts + 1):
            polling.wait_until(lambda n=number: len(pod.connections) >= before + n, "a connection", TIMEOUT)  # type: ignore[misc]
            with contextlib.suppress(OSError):
                pod.connections[-1].shutdown(socket.SHUT_RDWR)
        cut_all.touch()

    with ThreadPoolExecutor(1) as pool:
        cutting = pool.submit(cut)
        end = pod.run(PRINTS_UNTIL_FILE, str(cut_all))
        cutting.result()
    assert end["exit"] == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines == [f"{number} {'x' * 5000}" for number in range(len(lines))]
    assert len(lines) >= 60
    assert len(pod.connections) >= before + 1 + cuts
    pod.rest()


def test_ctrl_c_ends_the_script(pod: WarmPod, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        polling.wait_until(lambda: any(pod.folder.glob("*/files/here")), "the script to start", TIMEOUT)
        os.kill(os.getpid(), signal.SIGINT)

    text = "import time\ninput()\nopen('here', 'w').close()\ntime.sleep(600)"  # input comes after BEGUN
    with ThreadPoolExecutor(1) as pool, standard_input() as writer:
        os.write(writer, b"\n")
        interrupting = pool.submit(interrupt)
        assert pod.run(text, stdin=True)["exit"] in (130, -signal.SIGINT)
        interrupting.result()
        os.close(writer)
    assert "KeyboardInterrupt" in capfd.readouterr().err
    pod.rest()


def test_a_killed_script_is_named(pod: WarmPod) -> None:
    assert pod.run("import os\nos.kill(os.getpid(), 9)")["exit"] == -signal.SIGKILL


@contextlib.contextmanager
def another_script(pod: WarmPod, end: Path) -> Iterator[None]:
    """Run a script beside the test, until the file `end` exists."""
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(pod.run, PRINTS_UNTIL_FILE, str(end))
        try:
            polling.wait_until(lambda: any(pod.folder.glob("*/files/here")), "the other script to start", TIMEOUT)
            yield
        finally:
            end.touch()
        assert other.result()["exit"] == 0
    pod.rest()


def test_a_script_of_another_size_needs_a_pod_of_its_own_while_others_run(pod: WarmPod, tmp_path: Path) -> None:
    with another_script(pod, tmp_path / "end"), pytest.raises(Unusable):
        pod.run("", TFK8S_JOBS="worker=0,ps=0")
    assert pod.run("", TFK8S_JOBS="worker=0,ps=0")["exit"] == 0


def test_a_script_whose_tasks_can_t_be_forwarded_needs_a_pod_of_its_own(pod: WarmPod) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        jobs = f"worker=1:{taken.getsockname()[1]}"
        for _ in range(2):
            with pytest.raises(Unusable):
                pod.run("", TFK8S_JOBS=jobs)
    assert pod.run("")["exit"] == 0


def test_a_refused_script_leaves_its_input(pod: WarmPod, tmp_path: Path) -> None:
    with another_script(pod, tmp_path / "end"), standard_input() as writer:
        os.write(writer, b"data")
        os.close(writer)
        with pytest.raises(Unusable):
            pod.run("", stdin=True, TFK8S_JOBS="worker=0,ps=0,master=0")
        assert os.read(0, 10) == b"data"


def test_a_script_that_the_pod_has_forgotten_does_not_begin_again(pod: WarmPod) -> None:
    pod.run("")
    kept = pod.rest().keys()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(pod.run, "import time\nopen('here', 'w').close()\ntime.sleep(600)")
        polling.wait_until(lambda: any(pod.folder.glob("*/files/here")), "the script to start", TIMEOUT)
        (relay,) = pod.processes().keys() - kept
        os.kill(relay, signal.SIGKILL)
        with pytest.raises(ClusterError, match=r"^the script was ended: its connection was broken for too long"):
            running.result()
    polling.wait_until(lambda: pod.processes().keys() == kept, "the relay to end", TIMEOUT)
    for left in pod.folder.iterdir():  # by the killed relay, which would have removed it
        shutil.rmtree(left)


@pytest.mark.parametrize("handler", ["lambda *_: (open(sys.argv[1], 'w').close(), sys.exit())", "signal.SIG_IGN"])
def test_a_script_whose_client_stays_away_ends(
    libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: str
) -> None:
    pod = start(libraries, tmp_path, HASTY)
    monkeypatch.setattr(streams, "dial", pod.dial)
    text = f"import signal, sys, time\nsignal.signal(signal.SIGTERM, {handler})\nopen('here', 'w').close()\n"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(pod.run, f"{text}while True:\n    time.sleep(1)", str(tmp_path / "got-sigterm"))
        polling.wait_until(lambda: any(pod.folder.glob("*/files/here")), "the script to start", TIMEOUT)
        monkeypatch.setattr(streams, "dial", unreachable)
        monkeypatch.setattr(channel, "RESUME_TIMEOUT", 0)
        pod.connections[-1].shutdown(socket.SHUT_RDWR)
        with pytest.raises(ClusterError, match=r"^lost sight of the script: no connection to its pod"):
            running.result()
    pod.rest()
    assert (tmp_path / "got-sigterm").exists() == (handler != "signal.SIG_IGN")
    pod.process.send_signal(signal.SIGTERM)
    assert pod.process.wait(TIMEOUT) == 0


def test_a_warm_pod_ends_when_no_script_has_run_for_a_while(libraries: Path, tmp_path: Path) -> None:
    assert start(libraries, tmp_path, TFK8S_IDLE="1").process.wait(TIMEOUT) == 0
