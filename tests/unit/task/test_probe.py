"""The probe against answers that are written out, and against any bytes at all."""

from __future__ import annotations

import contextlib
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.task import probe, wire


class Stream:
    """A connected stream that answers with given chunks, then ends."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)
        self.sent = b""

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def recv(self, _: int) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def grpc(message: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(message)) + message


NAME = b"/job:worker/replica:0/task:1/device:GPU:0"
DEVICE = field(1, NAME) + field(2, b"GPU") + bytes([4 << 3, 0x80, 0x02]) + bytes([6 << 3 | 1]) + struct.pack("<Q", 77)
DEVICE += field(5, b"\x08\x01") + field(7, b"name: NVIDIA L4")
HEADERS = frame(1, 4, 1, b"\x88")
TRAILERS = frame(1, 5, 1, b"\0\x0bgrpc-status\x010")
SETTINGS = frame(4)


def ask(*chunks: bytes) -> list[probe.Device]:
    return probe.get_status(Stream(*chunks), 1.0)


def test_an_answer_is_read_into_devices() -> None:
    answer = SETTINGS + HEADERS + frame(0, 0, 1, grpc(field(1, DEVICE))) + TRAILERS
    expected = probe.Device(name=NAME.decode(), kind="GPU", memory=256, incarnation=77, description="name: NVIDIA L4")
    assert ask(answer) == [expected]


def test_an_answer_may_come_byte_by_byte_in_several_frames() -> None:
    body = grpc(field(1, DEVICE) * 3)
    padded = frame(0, 8, 1, b"\x02" + body[10:] + b"\0\0")
    answer = SETTINGS + HEADERS + frame(0, 0, 1, body[:10]) + padded + TRAILERS
    assert len(ask(*(bytes([byte]) for byte in answer))) == 3


def test_settings_and_pings_are_acknowledged() -> None:
    stream = Stream(SETTINGS + frame(6, 0, 0, b"12345678") + HEADERS + frame(0, 1, 1, grpc(b"")))
    assert probe.get_status(stream, 1.0) == []
    assert stream.sent.endswith(frame(4, 1) + frame(6, 1, 0, b"12345678"))
    assert stream.sent.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert b"/tensorflow.WorkerService/GetStatus" in stream.sent


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "the server closed the connection without an answer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a web server answers there, not a TensorFlow server"),
        (SETTINGS + frame(3, 0, 1, bytes(4)), "the server ended the call without an answer"),
        (
            SETTINGS + frame(1, 5, 1, b"\x88\0\x0bgrpc-status\x0212"),
            "a gRPC server answers there, but not a TensorFlow server",
        ),
        (
            SETTINGS + frame(1, 5, 1, b"\0\x0bgrpc-status\x0214\0\x0cgrpc-message\x04gone"),
            "the server refused (gRPC status 14: gone)",
        ),
        (SETTINGS + frame(1, 5, 1, b"\0\x0bgrpc-status\x0214"), "the server refused (gRPC status 14)"),
        (SETTINGS + frame(0, 1, 1, b"\0\0\0\0\x09abc"), "the server's answer is not a gRPC message"),
        (SETTINGS + frame(0, 1, 1, grpc(b"\x0a\x7fabc")), "the server's answer is not a message of TensorFlow's"),
        (SETTINGS + frame(0, 1, 1, grpc(b"\x0a")), "the server's answer ends in the middle"),
    ],
)
def test_what_is_no_answer_is_said_in_words(answer: bytes, message: str) -> None:
    with pytest.raises(wire.ProbeError) as caught:
        ask(answer)
    assert str(caught.value) == message


SAYS = (
    "GraphDef min consumer version 999999999 above current version 2474 for TensorFlow {}.  Please upgrade TensorFlow."
)


@pytest.mark.parametrize("version", ["2.21.0", "2.22.0-rc1", "2.23.0-dev20270101.with.a.long.tail"])
def test_a_version_is_read_from_a_refusal(version: str) -> None:
    said = SAYS.format(version).encode()
    length = bytes([len(said)]) if len(said) < 127 else bytes([127, len(said) - 127])
    stream = Stream(SETTINGS + frame(1, 5, 1, b"\x88@\x0bgrpc-status\x013\0\x0cgrpc-message" + length + said))
    assert probe.get_version(stream, "/job:worker/task:1", 1.0) == version
    assert b"/tensorflow.MasterService/CreateSession" in stream.sent
    graph, config = b"\x0a\x08\x22\x06\x10\xff\x93\xeb\xdc\x03", field(2, field(4, b"/job:worker/task:1"))
    assert grpc(graph + config) in stream.sent


def test_a_server_that_does_not_say_its_version() -> None:
    other = SETTINGS + frame(1, 5, 1, b"\0\x0bgrpc-status\x013\0\x0cgrpc-message\x02no")
    assert probe.get_version(Stream(other), "/job:a/task:0", 1.0) == ""
    assert probe.get_version(Stream(SETTINGS + frame(0, 1, 1, grpc(b""))), "/job:a/task:0", 1.0) == ""
    with pytest.raises(wire.ProbeError, match="status 14"):
        probe.get_version(Stream(SETTINGS + frame(1, 5, 1, b"\0\x0bgrpc-status\x0214")), "/job:a/task:0", 1.0)


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_break_it(data: bytes, as_message: bool) -> None:
    with contextlib.suppress(wire.ProbeError):
        ask(SETTINGS + frame(0, 1, 1, grpc(data)) if as_message else data)


@given(st.lists(st.text(max_size=20), max_size=5))
def test_field_by_field(names: list[str]) -> None:
    message = b"".join(
        bytes([1 << 3 | 2]) + _varint(len(device)) + device
        for device in (bytes([1 << 3 | 2]) + _varint(len(n.encode())) + n.encode() for n in names)
    )
    assert [device.name for device in ask(SETTINGS + frame(0, 1, 1, grpc(message)))] == names


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


def test_a_master_is_asked_whom_it_reaches() -> None:
    refused = SETTINGS + frame(1, 5, 1, b"\0\x0bgrpc-status\x013\0\x0cgrpc-message\x02no")
    stream = Stream(refused)
    tasks = ["/job:worker/task:1", "/job:ps/task:0"] * 10
    assert probe.can_reach(stream, tasks, 1.0)
    graph, filters = b"\x0a\x08\x22\x06\x10\xff\x93\xeb\xdc\x03", b"".join(field(4, one.encode()) for one in tasks)
    assert grpc(graph + b"\x12\xe8\x02" + filters) in stream.sent
    assert len(filters) == 0x68 + (2 << 7)
    late = Stream()
    late.recv = lambda _: time.sleep(0.02) or SETTINGS  # type: ignore[method-assign]
    assert not probe.can_reach(late, tasks, 0.01)
