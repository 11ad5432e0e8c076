"""The copy of a script's files from its pod, across broken streams and failures."""

from __future__ import annotations

import contextlib
import functools
import io
import threading
from pathlib import Path
from typing import Any

import pytest

from tfk8s import polling
from tfk8s.backends.downloads import parse
from tfk8s.backends.kubernetes.api_server import commands, errors
from tfk8s.backends.kubernetes.scripts import script_files
from tfk8s.backends.kubernetes.scripts.script_files import ScriptFiles
from tfk8s.core.script import Outcome
from tfk8s.errors import BackendUnreachable, ClusterError
from tfk8s.sessions.pod import file_server
from tfk8s.task.files import packed


class Pods:
    """Stands for commands in pods: each gives its output or its failure."""

    def __init__(self, *outputs: bytes | Exception) -> None:
        self.outputs = list(outputs)
        self.sent: list[bytes] = []
        self.exit_code: int | None = None
        self.breaks_after_receipt = False

    def __call__(self, client: object, namespace: str, pod: str, words: tuple[str, ...], **options: object) -> Pods:
        assert options["container"] == "script"
        self.words, self.exit_code = words, None
        output = self.outputs.pop(0)
        if isinstance(output, Exception):
            raise output
        self.block = output
        return self

    def __enter__(self) -> Pods:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read_output(self) -> tuple[bytes, bytes]:
        block, self.block = self.block, b""
        if self.sent and self.breaks_after_receipt:
            raise ClusterError("the stream broke")
        if not block:
            self.exit_code = 0
        return block, b""

    def wait(self, _: float = 0.0) -> bytes:
        return b"".join(self.read_output())

    def send(self, block: bytes) -> None:
        self.sent.append(block)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The archive of a file, in an empty current folder."""
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod/model").write_text("weights")
    sink = io.BytesIO()
    packed.pack([str(tmp_path / "pod/model")], sink)
    monkeypatch.chdir(tmp_path)
    return sink.getvalue()


def files(monkeypatch: pytest.MonkeyPatch, pods: Any, client: Any = None, grace: int = 0) -> ScriptFiles:
    monkeypatch.setattr(commands, "RemoteCommand", pods)
    return ScriptFiles(client, "ns", "pod", parse(["model"]), grace)


def test_a_broken_stream_is_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: bytes) -> None:
    pods = Pods(BackendUnreachable("no route"), archive[:700], archive)
    copied = files(monkeypatch, pods)
    copied.copy()
    assert copied.report(Outcome(3)) == Outcome(3)
    assert (pods.words, pods.sent) == (file_server.COMMAND, [b"\n"])
    assert (tmp_path / "model").read_text() == "weights"
    assert not copied.interrupt()


def test_files_are_here_even_if_the_stream_breaks_after_the_receipt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: bytes
) -> None:
    pods = Pods(archive)
    pods.breaks_after_receipt = True
    copied = files(monkeypatch, pods)
    copied.copy()
    assert copied.report(Outcome(0)) == Outcome(0)
    assert (tmp_path / "model").read_text() == "weights"


@pytest.mark.parametrize(("second", "is_copied"), [(30, True), (10, False)])
def test_the_timeout_of_retries_begins_when_a_copy_that_came_further_breaks(
    monkeypatch: pytest.MonkeyPatch, archive: bytes, second: int, is_copied: bool
) -> None:
    class Clock:
        """Turned by each copy."""

        now = 0.0

    class Slow(Pods):
        """Each copy takes longer than retries are made."""

        def __call__(self, *words: Any, **options: Any) -> Pods:
            Clock.now += 2 * script_files.RETRY_TIMEOUT
            return super().__call__(*words, **options)

    retries = functools.partial(polling.Retries, clock=lambda: Clock.now, sleep=lambda _: None)
    monkeypatch.setattr(polling, "Retries", retries)
    copied = files(monkeypatch, Slow(archive[:20], archive[:second], archive))
    copied.copy()
    with contextlib.nullcontext() if is_copied else pytest.raises(ClusterError):
        copied.report(Outcome(0))


@pytest.mark.parametrize("error", [errors.ApiError(404, "no such pod"), BackendUnreachable("no such pod")])
def test_a_failure_is_final(
    monkeypatch: pytest.MonkeyPatch, archive: bytes, caplog: pytest.LogCaptureFixture, error: ClusterError
) -> None:
    monkeypatch.setattr(script_files, "RETRY_TIMEOUT", 0.0)
    copied = files(monkeypatch, Pods(error))
    copied.copy()
    assert copied.report(Outcome(3)) == Outcome(3)
    assert caplog.messages == ["its files were not copied: no such pod"]
    with pytest.raises(ClusterError) as caught:
        copied.report(Outcome(0))
    assert str(caught.value) == "the script succeeded, but its files were not copied: no such pod"


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        (b'["device", "0/x", 0]\n', '"device" is no kind of file'),
        (b"not JSON\n", "the archive is damaged"),
        (b'["file", "0/../x", 0]\n', "a path leads out of the folder"),
        (b'["file", "0/x", 1e99]\n', "the archive is damaged"),
        (
            b'["file", "0/x", %d]\n' % 2**60,
            "the files have more than 100Gi bytes (TFK8S_GET_LIMIT sets another limit; or copy fewer files)",
        ),
    ],
)
def test_an_archive_that_lies_is_read_once(
    monkeypatch: pytest.MonkeyPatch, archive: bytes, caplog: pytest.LogCaptureFixture, lie: bytes, reason: str
) -> None:
    pods = Pods(lie, archive)
    copied = files(monkeypatch, pods)
    copied.copy()
    assert copied.report(Outcome(3)) == Outcome(3)
    assert caplog.messages[0].endswith(reason)
    assert pods.outputs == [archive]


def test_the_error_is_that_of_the_copy_which_came_furthest(
    monkeypatch: pytest.MonkeyPatch, archive: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    copied = files(monkeypatch, Pods(BackendUnreachable("no route"), archive[:20], errors.ApiError(404, "no such pod")))
    copied.copy()
    assert copied.report(Outcome(3)) == Outcome(3)
    assert caplog.messages == ["its files were not copied: the files did not arrive whole: unexpected end"]


def test_a_script_that_nobody_waited_for(
    monkeypatch: pytest.MonkeyPatch, archive: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    files(monkeypatch, Pods()).report_loss()
    ScriptFiles(None, "ns", "pod", ()).report_loss()  # type: ignore[arg-type]
    assert caplog.messages == ["the script's files were not copied"]


def test_a_script_that_ignores_ctrl_c_is_deleted(
    monkeypatch: pytest.MonkeyPatch, archive: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    class Client:
        """Notes that the pod was deleted."""

        deleted = threading.Event()

        def send(self, method: str, path: str) -> None:
            assert (method, path) == ("DELETE", "/api/v1/namespaces/ns/pods/pod")
            self.deleted.set()

    monkeypatch.setattr(script_files, "INTERRUPT_TIMEOUT", -600.0)
    assert files(monkeypatch, Pods(b""), Client(), grace=600).interrupt()
    assert Client.deleted.wait(20)
    assert caplog.messages == [
        "the script ends, then its files are copied; Ctrl-C again leaves them behind",
        "the script did not end within 0 s",
    ]


def test_a_script_that_ends_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch, archive: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    interrupted = files(monkeypatch, Pods(b""))
    others = set(threading.enumerate())
    assert interrupted.interrupt()
    (timer,) = set(threading.enumerate()) - others
    interrupted.report_loss()
    timer.join(20)
    assert not timer.is_alive()
    assert caplog.messages[1:] == ["the script's files were not copied"]


def test_a_script_whose_pod_is_gone_can_not_be_interrupted(monkeypatch: pytest.MonkeyPatch, archive: bytes) -> None:
    assert not files(monkeypatch, Pods(errors.ApiError(404, "gone"))).interrupt()
