"""A warm pod's processes on this machine: scripts in forks, their streams, their ends, and what they leave behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from warm_pod import POD, TIMEOUT, WarmPod, running, start

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.scripts import warm_requests
from tfk8s.backends.kubernetes.scripts.stream import script_stream
from tfk8s.backends.kubernetes.scripts.stream.script_stream import Unusable
from tfk8s.core.script import Download, LogOptions
from tfk8s.errors import ClusterError, InvalidInput

PRINTS_UNTIL_FILE = """
import itertools, os, sys, time
open("here", "w").close()
for number in itertools.count():
    print(number, "x" * 5000)
    if number >= 59 and os.path.exists(sys.argv[1]):
        break
    time.sleep(0.01)
"""

MEETS_SEVEN = f"""
import pathlib, sys, time
folder, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
(folder / str(number)).touch()
end = time.monotonic() + {TIMEOUT}
while len(list(folder.iterdir())) < 8:
    assert time.monotonic() < end, "the other scripts do not run at the same time"
    time.sleep(0.01)
sys.exit(number)
"""


@pytest.fixture(scope="module")
def pod(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmPod]:
    with running(libraries, tmp_path_factory.mktemp("warm")) as warm:
        yield warm


@pytest.fixture(autouse=True)
def dialed(pod: WarmPod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "dial", pod.dial)
    monkeypatch.setattr(script_stream, "require_running", lambda *_: None)


class CutConnection:
    """A connection that breaks when so many bytes have arrived."""

    def __init__(self, connection: socket.socket, left: int) -> None:
        self._connection, self._left = connection, left

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def recv(self, size: int) -> bytes:
        if self._left <= 0:
            raise ConnectionResetError
        data = self._connection.recv(size)
        self._left -= len(data)
        return data


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


def test_a_script_that_sets_a_variable_of_the_import_gets_an_interpreter(
    pod: WarmPod, capfd: pytest.CaptureFixture[str]
) -> None:
    ask = "import sys; print('tensorflow' in sys.modules, sys.argv, sys.stdin.read())"
    end = pod.run(f"import os; os.environ['TF_USE_LEGACY_KERAS'] = '1'\n{ask}\nsys.exit(3)", "a b")
    out, err = capfd.readouterr()
    assert (end["exit"], out) == (3, "False ['script.py', 'a b'] \n")
    assert "tfk8s: script.py, line 1, sets TF_USE_LEGACY_KERAS, so it runs in an interpreter of its own\n" in err
    end = pod.run(f"import os; os.environ['TF_USE_' + 'LEGACY_KERAS'] = '1'\n{ask}", "a b")
    assert (end["exit"], capfd.readouterr().out) == (0, "False ['script.py', 'a b'] \n")


def test_fifty_scripts_leave_nothing_behind(pod: WarmPod) -> None:
    pod.run("")
    before = pod.rest()
    for number in range(50):
        end = pod.run(
            f"import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\nraise SystemExit({number})"
        )
        assert end["exit"] == number
    assert pod.rest() == before


def test_eight_scripts_at_once(pod: WarmPod, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(lambda number: pod.run(MEETS_SEVEN, str(tmp_path), str(number))["exit"], range(8)))
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


def test_files_are_copied_whatever_the_exit_code_and_over_connections_that_break(
    pod: WarmPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[CutConnection] = []

    def dial(*_: object) -> CutConnection:
        connections.append(CutConnection(pod.dial(), 5_000_000))
        return connections[-1]

    monkeypatch.setattr(streams, "dial", dial)
    log = tmp_path / "log"  # outside of the script's folder, as /tmp/log is
    wanted = [Download("model", tmp_path / "out"), Download(str(log), tmp_path / "copy"), Download("x", tmp_path / "x")]
    end, problems = pod.run_and_copy(
        wanted,
        "import os, sys\nos.makedirs('model/sub')\nopen('model/sub/big', 'wb').write(os.urandom(4) * 5_000_000)\n"
        f"open({str(log)!r}, 'w').write('text')\nsys.exit(7)",
    )
    assert (end["exit"], problems) == (7, ['"x" was not copied: there is no such file or folder'])
    assert ((tmp_path / "out/sub/big").stat().st_size, (tmp_path / "copy").read_text()) == (20_000_000, "text")
    assert len(connections) > 3
    pod.rest()


def test_the_recording_of_a_script_s_steps_is_copied_and_removed(pod: WarmPod, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    end, problems = pod.run_and_copy(
        [Download(str(recording), tmp_path / "copy")], "import os; print(os.environ.get('TFK8S_TRACE'))",
        TFK8S_TRACE=f"100:{recording}",
    )  # fmt: skip
    assert (end["exit"], problems, (tmp_path / "copy").exists()) == (0, [], True)
    pod.rest()
    assert not recording.exists()


@contextlib.contextmanager
def running_script(pod: WarmPod, text: str, *arguments: str) -> Iterator[tuple[str, Future[dict[str, Any]]]]:
    """Run a script; yield its name once it has made the file `here`, and its end."""
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(pod.run, text, *arguments)
        polling.wait_until(lambda: any(pod.folder.glob("*/files/here")), "the script to start", TIMEOUT)
        (here,) = pod.folder.glob("*/files/here")
        yield here.parent.parent.name, end
    pod.rest()


def texts(name: str, **options: Any) -> Iterator[str]:
    """Yield the lines of a script's log without their times."""
    found = warm_requests.lines(None, POD, name, LogOptions(**options))  # type: ignore[arg-type]
    return (line.partition(" ")[2] for line in found)


def test_the_log_of_a_script_is_shown_and_followed_until_its_end(pod: WarmPod, tmp_path: Path) -> None:
    text = (
        "import os, sys, time\nprint('out')\nprint('err', file=sys.stderr)\nopen('here', 'w').close()\n"
        "while not os.path.exists(sys.argv[1]):\n    time.sleep(0.01)\nprint('last')\nsys.exit(3)"
    )
    with running_script(pod, text, str(tmp_path / "end")) as (name, end):
        polling.wait_until(lambda: len(list(texts(name))) == 2, "the first lines", TIMEOUT)
        assert sorted(texts(name)) == ["\x1eerr", "out"]
        assert len(list(texts(name, tail=1))) == 1
        assert list(texts(name, since=0.0)) == []
        following = texts(name, follow=True)
        assert sorted([next(following), next(following)]) == ["\x1eerr", "out"]
        (tmp_path / "end").touch()
        assert list(following) == ["last", *["\x1e\x1etfk8s: exit code 3 "] * 2]
        assert end.result()["exit"] == 3
    with pytest.raises(InvalidInput, match=f"^{name} has ended: a warm pod keeps a script's log until"):
        next(texts(name))


@pytest.mark.parametrize("handler", ["signal.default_int_handler", "signal.SIG_IGN"])
def test_a_script_is_stopped(pod: WarmPod, handler: str) -> None:
    text = f"import signal, time\nsignal.signal(signal.SIGINT, {handler})\nopen('here', 'w').close()\ntime.sleep(600)"
    with running_script(pod, text) as (name, end):
        warm_requests.stop(None, POD, name, TIMEOUT)  # type: ignore[arg-type]
        ended = end.result()
        is_killed = ended["exit"] == -signal.SIGKILL
        assert (ended["stopped"], ended["pod_ends"], is_killed) == (True, False, handler == "signal.SIG_IGN")


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


def test_a_warm_pod_ends_when_no_script_has_run_for_a_while(libraries: Path, tmp_path: Path) -> None:
    assert start(libraries, tmp_path, TFK8S_IDLE="1").process.wait(TIMEOUT) == 0
