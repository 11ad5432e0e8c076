"""The client of a script in a warm pod, against a pod that the test plays."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.scripts.stream import script_stream
from tfk8s.backends.kubernetes.scripts.stream.warm_stream import WarmScript
from tfk8s.errors import ClusterError
from tfk8s.task.stream import channel
from tfk8s.task.stream.channel import Channel

POD = {"metadata": {"namespace": "lab", "name": "demo-warm", "uid": "1"}}
REQUEST = {"archive": 0, "stdin": False}
END = {"exit": 0, "note": "", "since": 1.0, "pod_ends": False, "out_of_memory": False, "files": False, "stopped": False}


@contextlib.contextmanager
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Channel, Future[dict[str, Any]]]]:
    """Run a script in a pod; yield the pod's channel, and the script's end."""
    near, far = socket.socketpair()
    monkeypatch.setattr(streams, "dial", lambda *_: near)

    def run() -> dict[str, Any]:
        with contextlib.closing(WarmScript(None, POD)) as script:  # type: ignore[arg-type]
            return script.run(REQUEST, b"")

    pod = Channel()
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(run)
        assert channel.hear_hello(far)["is_new"]
        channel.say_hello(far, {"received": 0})
        pod.attach(far, 0)
        far.settimeout(10)
        assert pod.read() == [(channel.RUN, json.dumps(REQUEST).encode())]
        pod.send(channel.BEGUN)
        try:
            yield pod, end
        except BaseException:  # the script must end before the pool does
            pod.send_json(channel.END, END)
            raise
    pod.detach()


def test_a_client_whose_output_is_blocked_shows_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PING_INTERVAL", 0.01)
    reader, writer = os.pipe()
    with open(writer, "w") as pipe, open(reader, "rb") as source, played(monkeypatch) as (pod, end):
        monkeypatch.setattr(sys, "stdout", pipe)
        pod.send(channel.OUTPUT, b"x" * 200_000)
        for _ in range(20):  # its signs of life
            assert pod.read() == []
            assert pod.connection is not None
        assert not end.done()
        assert len(source.read(200_000)) == 200_000
        pod.send_json(channel.END, END)
        assert end.result() == END


def test_a_client_whose_output_is_blocked_connects_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PING_INTERVAL", 0.01)
    (near, far), (reader, writer) = socket.socketpair(), os.pipe()
    with open(writer, "w") as pipe, played(monkeypatch) as (pod, end), open(reader, "rb") as source:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(streams, "dial", lambda *_: near)
        pod.send(channel.OUTPUT, b"x" * 100_000)
        assert pod.read() == [], "a sign of life"
        pod.detach()
        hello = channel.hear_hello(far)
        assert not hello["is_new"]
        channel.say_hello(far, {"received": pod.received})
        pod.attach(far, hello["received"])
        output = bytearray()
        os.set_blocking(source.fileno(), False)

        def read_all() -> bool:
            pod.write()  # what the connection had no room for
            with contextlib.suppress(BlockingIOError):
                output.extend(os.read(source.fileno(), 100_000))
            return len(output) == 100_000

        polling.wait_until(read_all, "the output", 20)
        pod.send_json(channel.END, END)
        assert end.result() == END


def test_a_client_that_knows_the_end_needs_no_connection_to_write_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "PING_INTERVAL", 0.01)
    reader, writer = os.pipe()
    polls: list[int] = []
    is_writable = polling.writable

    def writable(sink: int) -> bool:
        polls.append(sink)
        return is_writable(sink)

    with open(writer, "w") as pipe, played(monkeypatch) as (pod, end), open(reader, "rb") as source:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(polling, "writable", writable)
        with monkeypatch.context() as together:
            together.setattr(pod, "write", lambda: None)
            pod.send(channel.OUTPUT, b"x" * 70_000)
            pod.send_json(channel.END, END)
        pod.write()
        while not pod.is_acknowledged:
            assert pod.read() == []
            assert pod.connection is not None
        monkeypatch.setattr(streams, "dial", lambda *_: pytest.fail("connects again"))
        pod.detach()
        before = len(polls)
        polling.wait_until(lambda: end.done() or len(polls) > before + 5, "the client to see the break", 10)
        assert not end.done(), end.exception()
        assert len(source.read(70_000)) == 70_000
        assert end.result() == END


def test_characters_may_be_cut_between_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    class TextStream:
        """A stream without bytes, as in a notebook."""

        written = ""

        def write(self, text: str) -> None:
            self.written += text

        def flush(self) -> None:
            """Do nothing."""

    stream, text = TextStream(), "Größe".encode()
    monkeypatch.setattr(sys, "stdout", stream)
    with played(monkeypatch) as (pod, end):
        pod.send(channel.OUTPUT, text[:3])
        pod.send(channel.OUTPUT, text[3:] + b"\xc3")
        pod.send_json(channel.END, END)
        assert end.result() == END
    assert stream.written == "Größe\N{REPLACEMENT CHARACTER}", "the last character is cut"


def test_a_script_whose_terminal_is_gone_gets_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    user, script = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    frames = []
    with contextlib.suppress(OSError), open(script, "w") as terminal:  # `close` can't write what is left
        monkeypatch.setattr(sys, "stderr", terminal)
        with played(monkeypatch) as (pod, end):
            pod.send(channel.ERROR, b"tfk8s: step 1/2 (50%)\n")
            shown = os.read(user, 1000)
            os.close(user)
            pod.send(channel.ERROR, b"text\n")
            while pod.connection is not None:
                frames += pod.read()
    assert b"1/2 (50%)" in shown
    assert isinstance(end.exception(), OSError)
    assert frames == [(channel.SIGNAL, b"15")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_script_has_begun_ends_the_command(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    near, far = socket.socketpair()
    monkeypatch.setattr(streams, "dial", lambda *_: near)
    monkeypatch.setattr(polling, "ready", lambda *_, **__: signal.raise_signal(number))
    channel.say_hello(far, {"received": 0})
    before = signal.signal(number, end)
    try:
        script = WarmScript(None, POD)  # type: ignore[arg-type]
        with far, contextlib.closing(script), pytest.raises(SystemExit) as ended:
            script.run(REQUEST, b"")
    finally:
        signal.signal(number, before)
    assert ended.value.code == 128 + number


@pytest.mark.parametrize(
    "frame",
    [
        bytes([channel.ACKNOWLEDGED, 0, 0, 0, 1, 7]),  # no number of eight bytes
        bytes([channel.OUTPUT]) + b"\xff" * 4,  # 4 GiB
        bytes([channel.END, 0, 0, 0, 2]) + b"{}",
        bytes([channel.END, 0, 0, 0, 100]) + b"[" * 100,
        *(channel.frame(channel.END, json.dumps({**END, "exit": code}).encode()) for code in (256, -65, 10**40, None)),
    ],
)
def test_a_pod_that_is_no_warm_pod_ends_the_command(monkeypatch: pytest.MonkeyPatch, frame: bytes) -> None:
    with played(monkeypatch) as (pod, end):
        assert pod.connection is not None
        pod.connection.sendall(frame)
        with pytest.raises(ClusterError, match="its pod sent what no pod of tfk8s sends"):
            end.result(20)


@pytest.mark.parametrize("kind", [None, 77, channel.BEGUN])
def test_files_that_do_not_come_have_an_end(monkeypatch: pytest.MonkeyPatch, kind: int | None) -> None:
    monkeypatch.setattr(script_stream, "FILES_TIMEOUT", 0.1)
    monkeypatch.setattr(channel, "PING_INTERVAL", 0.01)
    near, far = socket.socketpair()
    monkeypatch.setattr(streams, "dial", lambda *_: near)
    channel.say_hello(far, {"received": 0})
    end = {**END, "files": True}
    others = b"" if kind is None else channel.frame(kind, b"x") * 1000
    far.sendall(channel.frame(channel.END, json.dumps(end).encode()) + others)
    with far, contextlib.closing(WarmScript(None, POD)) as script:  # type: ignore[arg-type]
        assert script.run(REQUEST, b"") == end
        with pytest.raises(ClusterError, match=r"its pod sent nothing of them for 0\.1 s"):
            script.read_files()


def test_connections_that_break_at_once_are_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(polling.Retries, "wait", lambda _, at_least=0.0: waits.append(at_least))

    def dial(*_: object) -> socket.socket:
        near, far = socket.socketpair()
        channel.say_hello(far, {"received": 0})
        if len(waits) == 3:
            far.sendall(channel.frame(channel.END, json.dumps(END).encode()))
        far.shutdown(socket.SHUT_WR)
        peers.enter_context(far)
        return near

    monkeypatch.setattr(streams, "dial", dial)
    with contextlib.ExitStack() as peers, contextlib.closing(WarmScript(None, POD)) as script:  # type: ignore[arg-type]
        assert script.run(REQUEST, b"") == END
    assert waits == [script_stream.REDIAL_INTERVAL] * 3
