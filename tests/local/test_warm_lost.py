"""Scripts in a warm pod whose client goes away without a word: the pod ends them."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from clusters import wait_until_gone
from warm_pod import ENTRYPOINT, POD, TIMEOUT, WarmPod, running

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.scripts.stream import script_stream
from tfk8s.errors import ClusterError, TaskUnreachable
from tfk8s.task.stream import channel

# Its pod gives up a client after three seconds, not a minute. The processes of connections are forks of this one.
HASTY = f"from tfk8s.task.stream import channel; channel.RESUME_TIMEOUT = channel.SILENCE_TIMEOUT = 3.0; {ENTRYPOINT}"

# It tells its process, and that SIGTERM has come; it goes on.
IGNORES_SIGTERM = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path(sys.argv[1], "got-sigterm").touch())
pathlib.Path(sys.argv[1], "pid.new").write_text(str(os.getpid()))
pathlib.Path(sys.argv[1], "pid.new").rename(pathlib.Path(sys.argv[1], "pid"))
while True:
    time.sleep(600)
"""

# As the command `submit` does; to be killed.
SUBMIT = """
import pathlib, socket, sys
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.scripts.stream.warm_stream import WarmScript
from tfk8s.task.stream import channel
streams.dial = lambda *_: socket.create_connection(("127.0.0.1", int(sys.argv[1])))
channel.PING_INTERVAL = 0.1
WarmScript(None, POD).run(REQUEST, pathlib.Path(sys.argv[2]).read_bytes())
"""


@pytest.fixture(scope="module")
def pod(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmPod]:
    with running(libraries, tmp_path_factory.mktemp("warm"), HASTY) as warm:
        yield warm


def dialed(pod: WarmPod) -> socket.socket | None:
    """Return a connection to the pod, once the pod listens."""
    with contextlib.suppress(TaskUnreachable):
        return pod.dial()
    return None


def pid_of_script(folder: Path) -> int:
    """Return the process of `IGNORES_SIGTERM` once it ignores SIGTERM."""
    polling.wait_until((folder / "pid").exists, "the script to start", TIMEOUT)
    return int((folder / "pid").read_text())


def check_script_is_ended(pod: WarmPod, pid: int, folder: Path) -> None:
    """Wait until the pod has ended `IGNORES_SIGTERM`, by SIGTERM and then by SIGKILL, and nothing of it is left."""
    wait_until_gone(pid)
    assert (folder / "got-sigterm").exists()
    pod.rest()


def unreachable(*_: object) -> socket.socket:
    raise TaskUnreachable("no network")


@pytest.mark.parametrize("handler", ["lambda *_: (open(sys.argv[1], 'w').close(), sys.exit())", "signal.SIG_IGN"])
def test_a_script_whose_client_stays_away_ends(
    pod: WarmPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: str
) -> None:
    monkeypatch.setattr(streams, "dial", pod.dial)
    monkeypatch.setattr(script_stream, "require_running", lambda *_: None)
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


def test_a_script_ends_when_its_client_is_killed(pod: WarmPod, tmp_path: Path) -> None:
    request, archive = pod.pack(IGNORES_SIGTERM, str(tmp_path))
    (tmp_path / "archive").write_bytes(archive)
    text = SUBMIT.replace("POD", repr(POD)).replace("REQUEST", repr(request))
    client = subprocess.Popen([sys.executable, "-c", text, str(pod.port), tmp_path / "archive"])
    try:
        pid = pid_of_script(tmp_path)
    finally:
        client.kill()
        client.wait()
    check_script_is_ended(pod, pid, tmp_path)


def test_a_script_ends_when_its_client_is_silent(pod: WarmPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PING_INTERVAL", 0.1)
    request, archive = pod.pack(IGNORES_SIGTERM, str(tmp_path))
    with polling.wait_until(lambda: dialed(pod), "the pod to listen", TIMEOUT) as connection:
        channel.say_hello(connection, {"script": "silent", "received": 0, "is_new": True})
        channel.hear_hello(connection)
        client = channel.Channel()
        client.attach(connection, 0)
        client.send_json(channel.RUN, request)
        client.send(channel.ARCHIVE, archive)
        polling.wait_until(lambda: client.keep_alive() or (tmp_path / "pid").exists(), "the script to start", TIMEOUT)
        check_script_is_ended(pod, pid_of_script(tmp_path), tmp_path)
