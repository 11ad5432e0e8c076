"""The entrypoint's forwards and last lines; the rest is in tests/cluster."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tfk8s import polling
from tfk8s.core import naming
from tfk8s.sessions import error_names
from tfk8s.sessions.pod import end_line, entrypoint
from tfk8s.task.stream import channel
from tfk8s.task.stream.channel import Channel

END = end_line.END.decode()


class Listener:
    """Stands for a forward: notes its port and its target."""

    def __init__(self, dial, port: int, *, shared: bool, get_fields: object) -> None:
        assert shared
        (host, remote_port), self.port = dial.args[0], port
        self.leads_to = f"{host}:{remote_port}"


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"local": ["a:2222", "b:2222"]}, {2222: "a:2222", 2223: "b:2222"}),
        (
            {"master": ["m:2222"], "ps": ["p:2222", "q:2222"], "worker": ["w:2222"]},
            {2222: "m:2222", 2223: "p:2222", 2224: "q:2222", 2225: "w:2222"},
        ),
        (
            {"master": ["m:2222"], "ps": ["p:3000", "q:3000"], "worker": ["w:2222"]},
            {2222: "m:2222", 3000: "p:3000", 3001: "q:3000", 2223: "w:2222"},
        ),
    ],
)
def test_ports_are_those_of_a_single_machine(monkeypatch, cluster, expected) -> None:
    monkeypatch.setattr(entrypoint, "Forward", Listener)
    forwards = entrypoint.forward_loopback(cluster, {})
    assert {forward.port: forward.leads_to for forward in forwards} == expected


def test_number_of_forwards_is_limited(monkeypatch) -> None:
    monkeypatch.setattr(entrypoint, "Forward", Listener)
    cluster = {"a": [f"h{i}:2222" for i in range(300)], "b": ["x:2222"]}
    assert len(entrypoint.forward_loopback(cluster, {})) == entrypoint.MAX_FORWARDS


@pytest.mark.parametrize("note", ["", error_names.A_TASK_FAILED_JUST_NOW])
def test_both_streams_end_with_the_exit_code(monkeypatch, tmp_path, note) -> None:
    written: dict[int, bytes] = {}
    monkeypatch.setattr(os, "write", written.__setitem__)
    monkeypatch.setenv(error_names.VARIABLE, str(tmp_path / "note"))
    if note:
        (tmp_path / "note").write_text(note)
    entrypoint.write_end(3)
    line = written[1].decode().removesuffix("\n")
    assert written[1] == written[2]
    assert end_line.read_end(line) == ("", 3, note)
    assert end_line.read_end(f"no end of line{line}") == ("no end of line", 3, note)


# The child's `extract` ends it. The interrupt comes when its files wait.
INTERRUPTED = """
import os, signal, sys
from tfk8s.sessions.pod import entrypoint
entrypoint.forward_loopback = lambda *_: []
entrypoint.extract = lambda _: os._exit(3)
entrypoint.PodLink.end = lambda *_: (os.kill(os.getpid(), signal.SIGINT), print("copied", flush=True))
sys.exit(entrypoint.main(["script.py"]))
"""


@pytest.mark.programs
def test_an_interrupt_after_the_scripts_end_leaves_its_files() -> None:
    variables = {"TFK8S_NAME": "demo", "TFK8S_NAMESPACE": "ns", "TFK8S_JOBS": "chief=1", "TFK8S_PORT": "2222"}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], env={**os.environ, **variables, "TFK8S_ARCHIVE": "none"}, timeout=60,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, f"copied\n{END}3 \n"), done.stderr


@pytest.mark.parametrize(
    "line", ["", "exit code 3", "\x1eerr", "\x1e\x1etfk8s: exit code ", "\x1e\x1etfk8s: exit code x"]
)
def test_other_lines_are_no_end(line) -> None:
    assert end_line.read_end(line) is None


class Pip:
    """A stand-in for pip. It records its arguments, and installs a module."""

    def __init__(self, code: int, folder: Path) -> None:
        self.code, self.folder = code, folder

    def __call__(
        self, command: list[str], env: dict[str, str], **options: object
    ) -> subprocess.CompletedProcess[bytes]:
        self.command, self.env = command, env
        self.folder.mkdir()
        return subprocess.CompletedProcess(command, self.code)


def test_requirements_are_installed_before_the_images_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip = Pip(0, tmp_path / "user")
    monkeypatch.setattr(entrypoint.subprocess, "run", pip)
    monkeypatch.setattr(entrypoint.site, "getusersitepackages", lambda: str(tmp_path / "user"))
    monkeypatch.setattr(entrypoint.sys, "path", ["/opt", "/usr/lib/python3.11", "/usr/lib/python3/dist-packages"])
    monkeypatch.setenv("PIP_TIMEOUT", "60")
    entrypoint.install("my.txt")
    assert pip.command[1:4] == ["-m", "pip", "install"]
    assert pip.command[-2:] == ["-r", "my.txt"]
    assert (pip.env["PIP_TIMEOUT"], pip.env["PIP_RETRIES"]) == ("60", "1")
    assert sys.path == ["/opt", "/usr/lib/python3.11", str(tmp_path / "user"), "/usr/lib/python3/dist-packages"]


def test_failed_requirements_end_the_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Exited(Exception):
        pass

    def end(code: int) -> None:
        raise Exited(code)

    monkeypatch.setattr(entrypoint.subprocess, "run", Pip(1, tmp_path / "user"))
    monkeypatch.setattr(entrypoint.os, "_exit", end)
    with pytest.raises(Exited, match="1"):
        entrypoint.install("my.txt")
    assert capsys.readouterr().err.startswith("error: my.txt can't be installed: pip ended with exit code 1\n")


def test_standard_error_is_marked(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"an error\nnext\n")
    sink = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    entrypoint.mark(os.open(tmp_path / "in", os.O_RDONLY), sink)
    os.close(sink)
    assert (tmp_path / "out").read_bytes() == b"\x1ean error\n\x1enext\n"


def test_files_that_nobody_copies_are_a_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Link:
        """Has no client."""

        @staticmethod
        def end(result: dict[str, object], paths: list[str]) -> bool:
            assert (result["exit"], result["files"], paths) == (7, True, ["model"])
            return False

    monkeypatch.setenv(naming.FILES_VARIABLE, '["model"]')
    entrypoint._end(Link(), 7, is_deleted=False)  # type: ignore[arg-type]
    text = "tfk8s: no client copied the script's files within 300 s: they are lost with the pod\n"
    assert capfd.readouterr().err == end_line.MARK.decode() + text


# The client ends the script's input after its first line. The script is the child's `extract`.
SERVED = """
import os, socket, sys, threading
from tfk8s.sessions.pod import entrypoint
from tfk8s.task.stream import channel
channel.PORT = int(sys.argv[1])
def script(_):
    text = sys.stdin.read()
    print("out", text, flush=True)
    print("err", file=sys.stderr, flush=True)
    os._exit(5)
entrypoint.forward_loopback = lambda *_: []
entrypoint.extract = script
sys.exit(entrypoint.main(["script.py"]))
"""


@pytest.mark.programs
def test_a_client_gives_input_and_learns_the_end_before_the_container_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        free_port = reserved.getsockname()[1]
    variables = {
        "TFK8S_NAME": "demo", "TFK8S_NAMESPACE": "ns", "TFK8S_JOBS": "chief=1", "TFK8S_PORT": "2222",
        "TFK8S_ARCHIVE": "none", channel.CLIENT_VARIABLE: channel.HAS_INPUT,
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", SERVED, str(free_port)], env={**os.environ, **variables},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        one = Channel()
        connection = polling.wait_until(lambda: connected(free_port), "process 1 to listen", 30)
        channel.say_hello(connection, {"script": "script-1", "received": 0})
        one.attach(connection, channel.hear_hello(connection)["received"])
        one.send(channel.INPUT, b"in")
        one.send(channel.INPUT)
        ends: list[bytes] = []
        while not ends:
            assert polling.readable(connection.fileno(), 20)
            ends = [data for kind, data in one.read() if kind == channel.END]
        assert process.poll() is None, "process 1 waits for the receipt"
        one.acknowledge()
        out, err = process.communicate(timeout=30)
        one.detach()
    assert json.loads(ends[0])["exit"] == 5
    assert (process.returncode, out) == (5, f"out in\n{END}5 \n"), err
    assert err.endswith(f"\x1eerr\n{END}5 \n")


def connected(port: int) -> socket.socket | None:
    """Return a connection to a port; None if nothing listens."""
    try:
        return socket.create_connection(("127.0.0.1", port), 20)
    except OSError:
        return None
