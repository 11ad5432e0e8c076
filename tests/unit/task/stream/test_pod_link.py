"""The stream to a script in a pod of its own, over real sockets: clients that break, come back, or never come."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tfk8s import polling
from tfk8s.task.files import packed
from tfk8s.task.stream import channel, pod_link
from tfk8s.task.stream.channel import Channel
from tfk8s.task.stream.pod_link import PodLink

END = pod_link.end({"exit": 0}, note="")


class Pod:
    """A link that listens, and what the script would read.

    Attributes:
        link: the link.
        input: the descriptor of the script's input.
        archive: the file for the script's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.input, source = os.pipe()
        self.archive = folder / "script.tar.gz"
        self.link = PodLink(self.listener, source, self.archive)
        self.link.start()
        self._channels: list[Channel] = []

    def connect(self, one: Channel, name: str = "script-1") -> dict[str, Any]:
        """Continue a client's channel on another connection; return the pod's answer."""
        connection = socket.create_connection(self.listener.getsockname(), 20)
        channel.say_hello(connection, {"script": name, "received": one.received, "is_new": False})
        hello = channel.hear_hello(connection)
        if "received" in hello:
            one.attach(connection, hello["received"])
            one.write()
            self._channels.append(one)
        else:
            connection.close()
        return hello

    def read(self) -> bytes:
        """Return the next input of the script; b"" at its end."""
        assert polling.readable(self.input, 20)
        return os.read(self.input, 100)

    def close(self) -> None:
        """End the script, whose clients are gone."""
        for one in self._channels:
            one.detach()
        with contextlib.suppress(OSError):  # it has ended
            self.link.end(END, ())
        os.close(self.input)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    made = Pod(tmp_path)
    yield made
    made.close()


def frames(one: Channel, kind: int) -> Iterator[bytes]:
    """Yield the data of the pod's frames of this kind."""
    while one.connection is not None:
        polling.ready({one.connection.fileno()}, 20, sink=one.connection.fileno() if one.has_output else None)
        one.write()
        found = one.read()
        one.acknowledge()
        yield from (data for seen, data in found if seen == kind)
    raise AssertionError("the pod has closed the connection")


def ended(pod: Pod, *paths: str) -> tuple[threading.Thread, list[bool]]:
    """End the script on another thread."""
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(pod.link.end(END, paths)), daemon=True)
    thread.start()
    return thread, results


def test_input_is_complete_after_a_connection_that_broke(pod: Pod) -> None:
    one = Channel()
    pod.connect(one)
    one.send(channel.INPUT, b"one ")
    assert pod.read() == b"one "
    one.detach()
    one.send(channel.INPUT, b"two")
    one.send(channel.INPUT)
    pod.connect(one)
    assert pod.read() == b"two"
    assert pod.read() == b""


def test_input_ends_when_the_client_stays_away(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Channel()
    pod.connect(one)
    one.send(channel.INPUT, b"one")
    assert pod.read() == b"one"
    monkeypatch.setattr(channel, "CLIENT_TIMEOUT", 0.0)
    one.detach()
    assert pod.read() == b""
    assert pod.connect(one) == {"gone": True}, "the client learns that the script has a part of its input"


def test_a_folder_appears_when_it_is_complete(pod: Pod) -> None:
    one = Channel()
    pod.connect(one)
    one.send(channel.ARCHIVE, b"one ")
    part = pod.archive.with_name("script.tar.gz.part")
    polling.wait_until(lambda: part.exists() and part.stat().st_size == 4, "the first part", 20)
    assert not pod.archive.exists()
    one.detach()
    one.send(channel.ARCHIVE, b"two")
    one.send(channel.ARCHIVE)
    pod.connect(one)
    polling.wait_until(pod.archive.exists, "the folder", 20)
    assert pod.archive.read_bytes() == b"one two"


def test_a_folder_that_can_not_be_kept_is_an_error(pod: Pod) -> None:
    pod.archive.with_name("script.tar.gz.part").mkdir()
    one = Channel()
    pod.connect(one)
    one.send(channel.ARCHIVE, b"one")
    end = json.loads(next(frames(one, channel.END)))
    assert end["error"] == "its pod can't store its files: Is a directory"


def test_an_interrupt_goes_to_process_1(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    one = Channel()
    pod.connect(one)
    one.send(channel.SIGNAL, b"2")
    polling.wait_until(lambda: sent, "the signal", 20)
    assert sent == [(os.getpid(), signal.SIGINT)]


def test_files_come_whole_over_two_connections(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(os.urandom(3_000_000))
    one = Channel()
    pod.connect(one)
    thread, results = ended(pod, str(tmp_path / "model"))
    assert json.loads(next(frames(one, channel.END))) == END
    received = [next(frames(one, channel.FILES))]
    one.detach()
    pod.connect(one)
    for data in frames(one, channel.FILES):
        received.append(data)
        if not data:
            break
    thread.join(20)
    assert results == [True]
    whole = io.BytesIO()
    packed.pack([str(tmp_path / "model")], whole)
    assert b"".join(received) == whole.getvalue()


def test_the_end_waits_for_a_client_that_is_about_to_come(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(channel.CLIENT_VARIABLE, "")
    thread, results = ended(pod)
    one = Channel()
    pod.connect(one)
    assert json.loads(next(frames(one, channel.END))) == END
    thread.join(20)
    assert results == [True]


def test_the_end_waits_for_no_client_that_never_comes(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_link, "END_TIMEOUT", 600.0)
    assert not pod.link.end(END, ())


def test_the_end_does_not_wait_for_a_client_that_is_gone(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_link, "END_TIMEOUT", 600.0)
    one = Channel()
    pod.connect(one)
    one.detach()
    assert not pod.link.end(END, ())


def test_files_wait_for_a_client_in_vain(pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "CLIENT_TIMEOUT", 0.1)
    assert not pod.link.end(END, [str(tmp_path)])


def test_another_client_and_bytes_that_are_none_leave_the_first_alone(pod: Pod) -> None:
    one, other = Channel(), Channel()
    pod.connect(one)
    assert pod.connect(other, "script-2") == {"gone": True}
    for hello in ({}, {"script": "script-1", "received": "x"}, {"script": "script-1", "received": float("inf")}):
        with socket.create_connection(pod.listener.getsockname(), 20) as connection:
            channel.say_hello(connection, hello)
            assert connection.recv(100) == b""
    one.send(channel.INPUT, b"in")
    assert pod.read() == b"in"
