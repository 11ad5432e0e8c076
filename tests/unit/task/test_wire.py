"""Hostile answers of a server: each ends in time, in little memory, with one kind of error."""

from __future__ import annotations

import itertools
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterable

import pytest
from fakes.tensorflow_server import device, response

from tfk8s.task import probe, wire
from tfk8s.task.wire import DATA, PADDED, frame

MEBIBYTE = 1 << 20
TIMEOUT = 0.05


def ask(frames: Iterable[bytes]) -> list[probe.Device]:
    """Ask a server that sends these frames, without an end if there are so many."""
    client, server = socket.socketpair()

    def send() -> None:
        try:
            for one in frames:
                server.sendall(one)
        except OSError:  # the client has closed the connection
            pass

    sender = threading.Thread(target=send)
    sender.start()
    try:
        return probe.get_status(client, TIMEOUT)
    finally:
        client.close()
        sender.join()
        server.close()


def in_frames(body: bytes) -> Iterable[bytes]:
    message = wire.grpc_message(body)
    parts = [message[start : start + wire.MAX_FRAME] for start in range(0, len(message), wire.MAX_FRAME)]
    return [*(frame(DATA, 0, 1, part) for part in parts), frame(DATA, wire.END_STREAM, 1)]


HOSTILE = {
    "varint": in_frames(b"\x08" + b"\xff" * (3 * MEBIBYTE)),
    "large number": [response(b"\x08" + b"\xff" * 10 + b"\x01")],
    "empty fields": in_frames(b"\x0a\x00" * MEBIBYTE),
    "long body": itertools.repeat(frame(DATA, 0, 1, bytes(wire.MAX_FRAME))),
    "long frame": [frame(DATA, 0, 1, bytes(wire.MAX_FRAME + 1))],
    "no padding": [frame(DATA, PADDED, 1)],
    "too much padding": [frame(DATA, PADDED, 1, b"\x05abcd")],
}


@pytest.mark.parametrize("frames", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_is_an_error(frames: Iterable[bytes]) -> None:
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises((wire.ProbeError, TimeoutError)):
            ask(frames)
        assert tracemalloc.get_traced_memory()[1] < 64 * MEBIBYTE
    finally:
        tracemalloc.stop()
    assert time.process_time() - start < 5, "of which 5 ms are normal"


@pytest.mark.parametrize("kind", [wire.SETTINGS, DATA])
def test_empty_frames_without_an_end_end_in_time(kind: int) -> None:
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        ask(itertools.repeat(frame(kind, wire.ACK if kind == wire.SETTINGS else 0, 1) * 1000))
    assert time.monotonic() - start < 200 * TIMEOUT


def test_answers_of_large_clusters_are_no_attacks() -> None:
    devices = [
        wire.field(1, device(f"/job:worker/replica:0/task:{index}", description="x" * 150)) for index in range(9000)
    ]
    assert len(list(probe.all_devices(b"".join(devices)))) == 9000
    assert len(b"".join(devices)) < wire.MAX_BODY


def test_numbers_have_64_bits() -> None:
    number = 2**64 - 1
    assert list(wire.fields(wire.field(1, number) + wire.field(2, 0))) == [(1, number), (2, 0)]
    with pytest.raises(wire.ProbeError, match="ends in the middle"):
        list(wire.fields(b"\x08" + b"\xff" * 9))
