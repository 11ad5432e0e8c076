"""The client of a script in a pod of its own, against the pod's own end of the stream, over real sockets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tfk8s import polling
from tfk8s.backends.downloads import parse
from tfk8s.backends.kubernetes.api_server import errors, streams
from tfk8s.backends.kubernetes.scripts.stream import pod_stream, script_stream
from tfk8s.backends.kubernetes.scripts.stream.pod_stream import PodScript
from tfk8s.core.script import Outcome
from tfk8s.errors import ClusterError, TaskUnreachable
from tfk8s.task.stream import channel, pod_link
from tfk8s.task.stream.pod_link import PodLink

POD = {"metadata": {"namespace": "ns", "name": "pod", "uid": "1"}}
BIG = os.urandom(2_000_000)


class Client:
    """An API server: notes what is deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def send(self, method: str, path: str) -> None:
        assert method == "DELETE"
        self.deleted.append(path)


class Pod:
    """Process 1 of a pod, without a script.

    Attributes:
        link: its end of the stream.
        cut_after: the bytes after which the next connections break, in order.
        dials: the number of connections.
    """

    def __init__(self, folder: Path, source: int | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.link = PodLink(self._listener, source, folder / "script.tar.gz")
        self.link.start()
        self.cut_after: list[int] = []
        self.dials = 0

    def dial(self, *_: object) -> socket.socket:
        """Return a connection, which may break."""
        self.dials += 1
        connection = socket.create_connection(self._listener.getsockname(), 20)
        if not self.cut_after:
            return connection
        near, far = socket.socketpair()
        for source, sink, limit in ((far, connection, 1 << 40), (connection, far, self.cut_after.pop(0))):
            threading.Thread(target=copy, args=(source, sink, limit), daemon=True).start()
        return near

    def close(self) -> None:
        """End a script that has not ended."""
        with contextlib.suppress(OSError):  # it has
            self.link.end(pod_link.end({"exit": 0}, note=""), ())

    def end(self, code: int, *paths: str, pod_ends: bool = False) -> threading.Thread:
        """End the script."""
        result = pod_link.end({"exit": code}, note="", files=bool(paths), pod_ends=pod_ends)
        thread = threading.Thread(target=self.link.end, args=(result, paths), daemon=True)
        thread.start()
        return thread


def copy(source: socket.socket, sink: socket.socket, limit: int) -> None:
    """Copy so many bytes, then break both connections."""
    with contextlib.suppress(OSError):  # the other direction has broken them
        while limit > 0 and (block := source.recv(min(limit, 1 << 16))):
            sink.sendall(block)
            limit -= len(block)
    with source:  # the other direction closes the sink
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pod]:
    made = Pod(tmp_path)
    monkeypatch.setattr(streams, "dial", made.dial)
    monkeypatch.setattr(script_stream, "require_running", lambda *_: None)
    monkeypatch.setattr(script_stream, "REDIAL_INTERVAL", 0.0)
    monkeypatch.setenv(channel.CLIENT_VARIABLE, "")
    monkeypatch.chdir(tmp_path)
    yield made
    monkeypatch.delenv(channel.CLIENT_VARIABLE)  # the script does not wait for a client
    made.close()


@pytest.fixture
def made() -> Iterator[Callable[..., PodScript]]:
    """Makes the client of the script, which is closed at the end."""
    scripts: list[PodScript] = []

    def make(client: Any = None, *wanted: str, **options: Any) -> PodScript:
        scripts.append(PodScript(client, POD, parse(wanted), **options))
        return scripts[-1]

    yield make
    for script in scripts:
        script.close()


def test_the_end_is_confirmed_without_kubelet(pod: Pod, made: Callable[..., PodScript]) -> None:
    script = made()
    script.start()
    pod.end(3).join(20)
    assert script.confirms(3)
    assert not script.confirms(0)
    assert script.report(Outcome(3)) == Outcome(3)


@pytest.mark.parametrize("cuts", [[], [100], [500_000, 300_000, 10]])
def test_files_are_copied_over_streams_that_break(
    pod: Pod, made: Callable[..., PodScript], cuts: list[int], tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/model").write_bytes(BIG)
    pod.cut_after = cuts
    number = len(cuts) + 1
    script = made(None, f"{tmp_path}/there/model")
    script.start()
    pod.end(0, f"{tmp_path}/there/model").join(60)
    assert script.confirms(0)
    assert script.report(Outcome(0)) == Outcome(0)
    assert (tmp_path / "model").read_bytes() == BIG
    assert pod.dials == number


def test_a_folder_is_sent_over_streams_that_break(pod: Pod, made: Callable[..., PodScript], tmp_path: Path) -> None:
    pod.cut_after = [20, 40]
    made().upload(BIG)
    assert (tmp_path / "script.tar.gz").read_bytes() == BIG


def test_a_folder_that_the_pod_can_not_keep(pod: Pod, made: Callable[..., PodScript], tmp_path: Path) -> None:
    (tmp_path / "script.tar.gz.part").mkdir()
    with pytest.raises(ClusterError, match="can't be sent: its pod can't store its files: Is a directory"):
        made().upload(b"folder")


def test_input_goes_on_where_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[..., PodScript]
) -> None:
    (reader, source), (rest, typed) = os.pipe(), os.pipe()
    pod = Pod(tmp_path, source)
    monkeypatch.setattr(streams, "dial", pod.dial)
    monkeypatch.setattr("tfk8s.backends.kubernetes.scripts.stream.pod_stream.STDIN", rest)
    made(begun=b"one ").start()
    os.write(typed, b"two")
    os.close(typed)
    with open(reader, "rb") as script:
        assert script.read() == b"one two"
    os.close(rest)
    pod.close()


def test_files_are_copied_after_ctrl_c(
    pod: Pod, made: Callable[..., PodScript], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    interrupted = threading.Event()
    monkeypatch.setattr(os, "kill", lambda pid, number: number == signal.SIGINT and interrupted.set())
    (tmp_path / "there").mkdir()
    (tmp_path / "there/model").write_text("weights")
    client = Client()
    script = made(client, f"{tmp_path}/there/model")
    script.start()
    assert script.interrupt()
    assert interrupted.wait(20)
    pod.end(130, f"{tmp_path}/there/model").join(20)
    assert script.confirms(130)
    assert not script.interrupt()
    assert script.report(Outcome(130)) == Outcome(130)
    assert (tmp_path / "model").read_text() == "weights"
    assert client.deleted == []
    assert caplog.messages == ["the script ends, then its files are copied; Ctrl-C again leaves them behind"]


def test_a_script_that_ignores_ctrl_c_is_deleted(
    pod: Pod, made: Callable[..., PodScript], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: None)
    monkeypatch.setattr("tfk8s.backends.kubernetes.scripts.stream.pod_stream.INTERRUPT_TIMEOUT", -600.0)
    client = Client()
    script = made(client, "model", grace=600)
    script.start()
    assert script.interrupt()
    polling.wait_until(lambda: client.deleted, "the pod to be deleted", 20)
    assert client.deleted == ["/api/v1/namespaces/ns/pods/pod"]
    assert caplog.messages[1:] == ["the script did not end within 0 s"]


def test_ctrl_c_ends_a_script_without_files_at_once(pod: Pod, made: Callable[..., PodScript]) -> None:
    script = made()
    script.start()
    assert not script.interrupt()


def test_a_pod_that_ends_sends_no_files(pod: Pod, made: Callable[..., PodScript]) -> None:
    script = made(None, "model")
    script.start()
    pod.end(130, pod_ends=True).join(20)
    with pytest.raises(ClusterError, match="its files were not copied: its pod ends"):
        script.report(Outcome(0))


@pytest.mark.parametrize(
    ("begun", "wanted", "what"),
    [(b"in", (), "standard input"), (None, ("model",), "files"), (b"", ("model",), "standard input")],
)
def test_a_script_that_needs_a_connection_and_gets_none_is_ended(
    begun: bytes | None, wanted: tuple[str, ...], what: str, monkeypatch: pytest.MonkeyPatch,
    made: Callable[..., PodScript],
) -> None:  # fmt: skip
    def dial(*_: object) -> None:
        raise errors.ApiError(403, "you may not connect")

    monkeypatch.setattr(streams, "dial", dial)
    client = Client()
    monkeypatch.setattr(script_stream, "require_running", lambda *_: None)
    script = made(client, *wanted, begun=begun)
    script.start()
    polling.wait_until(lambda: client.deleted == ["/api/v1/namespaces/ns/pods/pod"], "the end of the script", 20)
    assert not script.confirms(0)
    with pytest.raises(ClusterError, match=rf"^the script's {what} can't be passed on: you may not connect"):
        script.require_connection()


def test_a_script_that_got_a_part_of_its_input_is_ended(
    pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[..., PodScript]
) -> None:
    def dial(*_: object) -> socket.socket:
        if pod.dials:
            raise errors.ApiError(403, "you may not connect")
        return pod.dial()

    rest, typed = os.pipe()
    pod.cut_after = [20]
    monkeypatch.setattr(streams, "dial", dial)
    monkeypatch.setattr(script_stream, "REFUSAL_TIMEOUT", 0.0)
    monkeypatch.setattr(pod_stream, "STDIN", rest)
    client = Client()
    script = made(client, begun=b"one ")
    script.start()
    polling.wait_until(lambda: client.deleted, "the end of the script", 20)
    with pytest.raises(ClusterError, match=r"standard input can't be passed on: .* you may not connect to its pod"):
        script.require_connection()
    for descriptor in (rest, typed):
        os.close(descriptor)


@pytest.mark.parametrize("refused", ["the connection", "the pod"])
def test_an_api_server_that_does_not_know_the_roles_yet_is_asked_again(
    pod: Pod,
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[..., PodScript],
    refused: str,
    tmp_path: Path,
) -> None:
    refusals = [errors.ApiError(403, "no Role is known"), errors.ApiError(403, "no Role is known")]

    def refuse(*_: object) -> None:
        if refusals:
            raise refusals.pop()

    def dial(*_: object) -> socket.socket:
        if pod.dials and refused == "the connection":
            refuse()
        elif pod.dials and refusals:
            raise TaskUnreachable("nothing answers")
        return pod.dial()

    pod.cut_after = [20]
    monkeypatch.setattr(streams, "dial", dial)
    monkeypatch.setattr(script_stream, "require_running", refuse if refused == "the pod" else lambda *_: None)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/model").write_text("a model")
    script = made(None, f"{tmp_path}/there/model")
    script.start()
    ended = pod.end(3, f"{tmp_path}/there/model")
    polling.wait_until(lambda: not refusals, "the refusals", 20)
    ended.join(20)
    assert script.confirms(3)
    assert (tmp_path / "model").read_text() == "a model"


def test_files_that_are_on_their_way_have_no_limit(
    pod: Pod, made: Callable[..., PodScript], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: None)
    (tmp_path / "there").mkdir()
    (tmp_path / "there/model").write_bytes(BIG)
    client, copy_files = Client(), pod_stream.arriving_files.copy

    def copy(script: Any, *arguments: Any) -> list[str]:
        assert script._limit.finished.is_set()
        script._on_limit()  # as if the limit had been reached just before
        return copy_files(script, *arguments)

    monkeypatch.setattr(pod_stream.arriving_files, "copy", copy)
    script = made(client, f"{tmp_path}/there/model")
    script.start()
    assert script.interrupt()
    pod.end(130, f"{tmp_path}/there/model").join(20)
    assert script.report(Outcome(130)) == Outcome(130)
    assert (tmp_path / "model").read_bytes() == BIG
    assert client.deleted == []


def test_a_script_whose_pod_has_ended_needs_no_stream(
    monkeypatch: pytest.MonkeyPatch, made: Callable[..., PodScript], caplog: pytest.LogCaptureFixture
) -> None:
    def dial(*_: object) -> None:
        raise TaskUnreachable("no such pod")

    def require_running(*_: object) -> None:
        raise ClusterError("its pod has ended")

    monkeypatch.setattr(streams, "dial", dial)
    monkeypatch.setattr(script_stream, "require_running", require_running)
    client = Client()
    script = made(client, "model", begun=b"in")
    script.start()
    assert script._is_done.wait(20)
    assert not script.confirms(0)
    script.require_connection()
    script.report_loss()
    assert client.deleted == []
    assert caplog.messages == ["the script's files were not copied"]
    with pytest.raises(ClusterError, match="its files were not copied: its pod has ended"):
        script.report(Outcome(0))
