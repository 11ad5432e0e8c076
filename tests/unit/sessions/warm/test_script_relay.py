"""The archive of a script on its way into a warm pod, whose memory all scripts share."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfk8s import polling
from tfk8s.sessions.warm.script_relay import Relay
from tfk8s.task.stream import channel
from tfk8s.task.stream.channel import Channel

SIZE, BLOCK = 10_000_000, bytes(1 << 16)


@contextlib.contextmanager
def client(folder: Path) -> Iterator[Channel]:
    """The channel of a client, whose script has a relay with a folder."""
    (near, far), (process_1, control) = socket.socketpair(), socket.socketpair()
    relay, one = Relay(control, folder), Channel()
    relay.attach(far, 0)
    thread = threading.Thread(target=relay.run)
    thread.start()
    one.attach(near, channel.hear_hello(near)["received"])
    one.send_json(channel.RUN, {"archive": SIZE, "stdin": False, "arguments": [], "environment": {}})
    yield one
    one.detach()
    process_1.close()  # the pod ends
    thread.join(20)
    assert not thread.is_alive()
    control.close()


def next_frame(one: Channel) -> channel.Frame:
    """Return the next frame from the pod."""
    while one.connection is not None:
        polling.ready({one.connection.fileno()}, 20)
        if frames := one.read():
            one.acknowledge()
            return frames[0]
    raise AssertionError("the relay has ended")


def test_an_archive_without_room_is_refused_before_any_of_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=SIZE + SIZE // 2))
    with client(tmp_path / "script-1") as one:
        one.send(channel.ARCHIVE, BLOCK)
        kind, data = next_frame(one)
        assert (kind, json.loads(data)["refused"]) == (channel.END, "the pod has no room for the script's folder")
        assert not (tmp_path / "script-1/script.tar.gz").exists()


def test_an_archive_is_kept_in_a_file(tmp_path: Path) -> None:
    with client(tmp_path / "script-1") as one:
        one.send(channel.ARCHIVE, BLOCK)
        kept = tmp_path / "script-1/script.tar.gz"
        polling.wait_until(lambda: kept.exists() and kept.stat().st_size == len(BLOCK), "the file to grow", 20)
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_can_not_be_kept_ends_the_script(tmp_path: Path) -> None:
    (tmp_path / "script-1").write_text("a file in the place of the folder")
    with client(tmp_path / "script-1") as one:
        kind, data = next_frame(one)
        assert kind == channel.END
        assert json.loads(data)["error"] == "its pod can't store its files: Not a directory"
