"""The probe against known answers, and against any bytes at all."""

from __future__ import annotations

import contextlib

import pytest
from fakes import tensorflow_server
from fakes.tensorflow_server import device, refusal, response
from hypothesis import example, given
from hypothesis import strategies as st

from tfk8s.task import probe, wire
from tfk8s.task.wire import field, frame, grpc_message

NAME = "/job:worker/replica:0/task:1/device:GPU:0"
GPU = device(NAME, "GPU", memory=256, incarnation=77, description="name: NVIDIA L4") + field(5, b"\x08\x01")
HEADERS = frame(1, 4, 1, b"\x88")
TRAILERS = frame(1, 5, 1, b"\0\x0bgrpc-status\x010")
SETTINGS = frame(4)
GRAPH_OF_THE_FUTURE = b"\x0a\x08\x22\x06\x10\xff\x93\xeb\xdc\x03"


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


def get_status(*chunks: bytes) -> list[probe.Device]:
    return probe.get_status(Stream(*chunks), 1.0)


def test_answer_has_devices() -> None:
    expected = probe.Device(name=NAME, kind="GPU", memory=256, incarnation=77, description="name: NVIDIA L4")
    answer = frame(0, 0, 1, grpc_message(field(1, GPU)))
    assert get_status(SETTINGS + HEADERS + answer + TRAILERS) == [expected]
    assert expected.own_memory == 256
    assert expected._replace(kind="CPU").own_memory is None


def test_answer_may_come_byte_by_byte_in_several_frames() -> None:
    body = grpc_message(field(1, GPU) * 3)
    padded = frame(0, 8, 1, b"\x02" + body[10:] + b"\0\0")
    answer = SETTINGS + HEADERS + frame(0, 0, 1, body[:10]) + padded + TRAILERS
    assert len(get_status(*(bytes([byte]) for byte in answer))) == 3


def test_list_devices_has_all_tasks() -> None:
    stream = Stream(tensorflow_server.answer([device("a")], [device("b")]))
    answer = wire.call(stream, wire.LIST_DEVICES, 1.0)
    assert [found.name for found in probe.all_devices(answer)] == ["a", "b"]


def test_settings_and_pings_are_acknowledged() -> None:
    stream = Stream(SETTINGS + frame(6, 0, 0, b"12345678") + HEADERS + response(b""))
    assert probe.get_status(stream, 1.0) == []
    assert stream.sent.endswith(frame(4, 1) + frame(6, 1, 0, b"12345678"))
    assert stream.sent.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert b"/tensorflow.WorkerService/GetStatus" in stream.sent


ANSWERS = [
    (b"", "the server closed the connection without an answer"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a web server answers there, not a TensorFlow server"),
    (frame(3, 0, 1, bytes(4)), "the server ended the call without an answer"),
    (refusal(12), "a gRPC server answers there, but not a TensorFlow server"),
    (refusal(14, "gone"), "the server refused (gRPC status 14: gone)"),
    (refusal(14), "the server refused (gRPC status 14)"),
    (frame(0, 1, 1, b"\0\0\0\0\x09abc"), "the server's answer is not a gRPC message"),
    (response(b"\x0a\x7fabc"), "the server's answer is not a message of TensorFlow's"),
    (response(b"\x0a"), "the server's answer ends in the middle"),
]


def test_other_answers_are_errors() -> None:
    for answer, message in ANSWERS:
        with pytest.raises(wire.ProbeError) as caught:
            get_status(answer if answer[:4] in (b"", b"HTTP") else SETTINGS + answer)
        assert str(caught.value) == message, answer


TOO_OLD = "GraphDef min consumer version 999999999 above current version 2474 for TensorFlow {}.  Please upgrade."


@pytest.mark.parametrize("version", ["2.21.0", "2.22.0-rc1", "2.23.0-dev20270101.with.a.long.tail"])
def test_refusal_has_the_version(version: str) -> None:
    stream = Stream(SETTINGS + refusal(3, TOO_OLD.format(version)))
    assert probe.get_version(stream, "/job:worker/task:1", 1.0) == version
    assert b"/tensorflow.MasterService/CreateSession" in stream.sent
    config = b"\x12\x14\x22\x12/job:worker/task:1"
    assert grpc_message(GRAPH_OF_THE_FUTURE + config) in stream.sent


def test_server_without_a_version() -> None:
    assert probe.get_version(Stream(refusal(3, "no")), "/job:a/task:0", 1.0) == ""
    assert probe.get_version(Stream(response(b"")), "/job:a/task:0", 1.0) == ""
    with pytest.raises(wire.ProbeError, match="status 14"):
        probe.get_version(Stream(refusal(14)), "/job:a/task:0", 1.0)


@given(st.binary(max_size=200), st.booleans())
@example(b"\x08\x01", True)  # a number where a device should be
def test_any_bytes_are_an_answer_or_an_error(data: bytes, as_message: bool) -> None:
    with contextlib.suppress(wire.ProbeError):
        get_status(SETTINGS + response(data) if as_message else data)


@given(st.lists(st.text(max_size=200), max_size=5))
def test_any_names_are_read(names: list[str]) -> None:
    answer = tensorflow_server.answer([device(name) for name in names])
    assert [found.name for found in get_status(SETTINGS + answer)] == names


def test_master_is_asked_for_the_tasks_that_it_reaches() -> None:
    tasks = ["/job:worker/task:1", "/job:ps/task:0"] * 10
    filters = b"".join(b"\x22" + bytes([len(task)]) + task.encode() for task in tasks)
    assert probe.reach_request(tasks) == GRAPH_OF_THE_FUTURE + b"\x12\xe8\x02" + filters
    assert len(filters) == 0x68 + (2 << 7)
