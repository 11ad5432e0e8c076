"""Standard input of a script in a pod."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tfk8s.backends.kubernetes import stdin, streams
from tfk8s.errors import ClusterError, InvalidInput


@pytest.mark.parametrize("what", ["/dev/null", "an empty file", "an ended pipe", "closed"])
def test_no_input(what: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    if what == "an ended pipe":
        read, write = os.pipe()
        os.close(write)
    else:
        read = os.open({"an empty file": tmp_path / "empty"}.get(what, "/dev/null"), os.O_RDONLY)
    if what == "closed":
        os.close(read)
    assert stdin.read_blocks(read) is None


def test_a_pipe_is_read_to_its_end() -> None:
    read, write = os.pipe()
    idle = stdin.read_blocks(read)
    os.write(write, b"one")
    begun = stdin.read_blocks(read)
    os.write(write, b"two")
    os.close(write)
    assert begun is not None
    assert idle is not None
    assert list(begun) == [b"one", b"two"]
    assert list(idle) == []


class InputStream:
    """A pod's standard input."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = False

    def send_binary(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("error", [ClusterError("no"), InvalidInput("no")])
def test_a_pod_that_can_t_be_attached_to(monkeypatch: pytest.MonkeyPatch, error: Any) -> None:
    def attach(*_: object) -> None:
        raise error

    monkeypatch.setattr(streams, "attach", attach)
    failures: list[Exception] = []
    stdin.send(None, "ns", "pod", iter([b"in"]), failures.append)  # type: ignore[arg-type]
    assert failures == [error]


def test_broken_standard_input_closes_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    def blocks() -> Iterator[bytes]:
        yield b"in"
        raise OSError

    stream = InputStream()
    monkeypatch.setattr(streams, "attach", lambda *_: stream)
    stdin.send(None, "ns", "pod", blocks(), print)  # type: ignore[arg-type]
    assert (stream.sent, stream.closed) == ([b"\0in"], True)
