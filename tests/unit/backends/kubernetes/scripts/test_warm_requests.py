"""The log and the end of a script in a warm pod, against a pod that the test plays."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.scripts import warm_requests
from tfk8s.core.script import LogOptions
from tfk8s.errors import ClusterError, InvalidInput, TaskUnreachable
from tfk8s.task.stream import channel

POD = {"metadata": {"namespace": "lab", "name": "demo-warm", "uid": "1"}}
TIME = "2026-01-01T00:00:00.000000Z"


@contextlib.contextmanager
def played(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any], data: bytes = b"") -> Iterator[None]:
    """A pod that answers a request, sends bytes, and closes the connection."""
    near, far = socket.socketpair()
    monkeypatch.setattr(streams, "dial", lambda *_: near)

    def play() -> None:
        with far, contextlib.suppress(OSError):
            channel.hear_hello(far)
            channel.say_hello(far, answer)
            far.sendall(data)

    thread = threading.Thread(target=play)
    thread.start()
    yield
    thread.join(10)


def lines(**options: Any) -> list[str]:
    return list(warm_requests.lines(None, POD, "script-1", LogOptions(**options)))  # type: ignore[arg-type]


def output(text: str) -> bytes:
    return channel.frame(channel.OUTPUT, text.encode())


def test_frames_are_joined_to_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    data = output(f"{TIME} on") + output(f"e\n{TIME} two\n") + channel.frame(channel.END, b"{}")
    with played(monkeypatch, {"received": 0}, data):
        assert lines() == [f"{TIME} one", f"{TIME} two"]


def test_the_exit_code_of_a_followed_script_is_returned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{TIME} out\n{TIME} \x1eerr\n" + f"{TIME} \x1e\x1etfk8s: exit code 3 \n" * 2
    for follow, code in ((True, 3), (False, 0)):
        with played(monkeypatch, {"received": 0}, output(text) + channel.frame(channel.END, b"{}")):
            outcome = warm_requests.show(None, POD, "script-1", LogOptions(follow=follow))  # type: ignore[arg-type]
        assert outcome.code == code
        assert capsys.readouterr() == ("out\n", "err\n")


def test_a_connection_that_breaks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        played(monkeypatch, {"received": 0}, output(f"{TIME} one\n")),
        pytest.raises(ClusterError, match=r"^lost sight of script-1, which goes on: the connection to its pod broke"),
    ):
        lines(follow=True)


@pytest.mark.parametrize(
    "data", [b"\xff" * 5, output("x" * (1 << 21)), channel.frame(channel.ACKNOWLEDGED, b"1")], ids=len
)
def test_a_hostile_pod_ends_the_command(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    with (
        played(monkeypatch, {"received": 0}, data),
        pytest.raises(ClusterError, match=r"^lost sight of .*: its pod sent what no pod of tfk8s sends"),
    ):
        lines()


def test_a_script_that_has_just_ended_has_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    with played(monkeypatch, {"gone": True}), pytest.raises(InvalidInput, match=r"^script-1 has ended: a warm pod"):
        lines()


def test_a_script_whose_pod_is_gone_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def find(self, path: str) -> None:
            assert path == "/api/v1/namespaces/lab/pods/demo-warm"

    def dial(*_: object) -> socket.socket:
        raise TaskUnreachable("no such pod")

    monkeypatch.setattr(streams, "dial", dial)
    warm_requests.stop(Client(), POD, "script-1", 10)  # type: ignore[arg-type]
