"""Bytes that are nearly what a parser expects, for hypothesis: frames, messages and archives with lies in them."""

from __future__ import annotations

import gzip
import json
import struct

from fakes import tensorflow_server
from hypothesis import strategies as st

from fuzz import archives
from tfk8s.task import wire

Bytes = st.SearchStrategy[bytes]

_NUMBERS = st.sampled_from([0, 1, 2, 5, 127, 128, 2**31 - 1, 2**32, 2**64 - 1, 2**70])
_SMALL = st.binary(max_size=40)


def _varint(value: int) -> bytes:
    return wire.varint(value)


_fields = st.one_of(
    st.builds(lambda number, value: wire.field(number, value), st.integers(0, 20), st.one_of(_NUMBERS, _SMALL)),
    st.builds(lambda number, size: _varint(number << 3 | 2) + _varint(size), st.integers(0, 20), _NUMBERS),
    st.builds(lambda size: b"\x08" + b"\xff" * size, st.sampled_from([1, 9, 10, 100, 20_000])),
    st.builds(lambda text, memory: wire.field(1, tensorflow_server.device(text, memory=memory)), st.text(), _NUMBERS),
    st.builds(lambda count: b"\x0a\x00" * count, st.sampled_from([10, 1000, 100_000])),
    _SMALL,
)
_messages = st.lists(_fields, max_size=8).map(b"".join)

_payloads = st.one_of(
    _SMALL,
    _messages.map(wire.grpc_message),
    st.builds(lambda size: bytes(size), st.sampled_from([4, 5, 6, 8, 9, 16_384, 16_385, 100_000])),
    st.builds(lambda key, value: struct.pack(">HI", key, value), st.integers(0, 8), st.integers(0, 2**32 - 1)),
    st.builds(
        lambda status, text: wire.header_block({"grpc-status": str(status), "grpc-message": text}),
        st.integers(0, 17), st.text(max_size=200),
    ),
    st.just(wire.header_block({":path": wire.CREATE_SESSION})),
)  # fmt: skip


def _frame(kind: int, flags: int, stream: int, payload: bytes, size: int, count: int) -> bytes:
    head = wire.frame_head(len(payload) if size < 0 else size, kind, flags, stream)
    return (head + payload) * (count if len(payload) < 100 else 1)


_frames = st.builds(
    _frame, st.integers(0, 10), st.sampled_from([0, 1, 4, 5, 8, 9, 12, 255]),
    st.sampled_from([0, 1, 1, 1, 3, 2**32 - 1]), _payloads, st.sampled_from([-1] * 8 + [0, 1, 2**24 - 1]),
    st.sampled_from([1, 1, 1, 1, 3000]),
)  # fmt: skip
HTTP2 = st.builds(
    lambda part, frames: bytes([part]) + b"".join(frames), st.integers(0, 255), st.lists(_frames, max_size=8)
)


def _channel_frame(kind: int, data: bytes, size: int) -> bytes:
    return struct.pack("!BI", kind, len(data) if size < 0 else size) + data


_TEXTS = (b"{}", b"[" * 60_000, b'{"received": 1}', b"9" * 5000)
_channel_frames = st.builds(
    _channel_frame, st.integers(0, 11), st.one_of(_SMALL, st.binary(min_size=8, max_size=8), st.sampled_from(_TEXTS)),
    st.sampled_from([-1] * 6 + [0, 8, 2**22, 2**32 - 1]),
)  # fmt: skip
CHANNEL = st.builds(
    lambda part, frames: bytes([part]) + b"".join(frames), st.integers(0, 255), st.lists(_channel_frames, max_size=8)
)


def _message(head: int, size: int, data: bytes) -> bytes:
    length = struct.pack("!BQ", 127, size) if size >= 0 else struct.pack("!BH", 126, len(data))
    return bytes([head]) + length + data


_STATUSES = (b'{"status": "Success"}', b"[]", b"[" * 60_000, b'{"details": [{"causes": 1}]}', b'{"message": 1}')
WEB_SOCKET = st.builds(
    lambda part, messages: bytes([part]) + b"".join(messages), st.integers(0, 255),
    st.lists(
        st.builds(
            _message, st.sampled_from([0x82, 0x82, 0x82, 0x02, 0x00, 0x80, 0x81, 0x88, 0x89, 0x8A, 0xFF]),
            st.sampled_from([-1] * 6 + [0, 5, 2**22 + 1, 2**63]),
            st.one_of(_SMALL, st.sampled_from(_STATUSES).map(b"\x03".__add__), st.just(b"9" * 5000)),
        ),
        max_size=8,
    ),
)  # fmt: skip
_LINES = (
    b"HTTP/1.1 101 Switching", b"HTTP/1.1 500 no", b"HTTP/1.1", b"content-length: 99999999999", b"content-length: x",
    b"location: http://[", b"sec-websocket-accept: \xff", b"upgrade: websocket", b"", b"x" * 100_000,
)  # fmt: skip
ANSWER = st.builds(
    lambda part, lines: bytes([part]) + b"\r\n".join(lines),
    st.integers(0, 255),
    st.lists(st.one_of(st.sampled_from(_LINES), _SMALL), max_size=8),
)
_seeds = st.integers(0, 2**32)

_KEYS = (
    "pid", "state", "computes", "problem", "python", "script", "name", "is_main", "frames", "call", "seconds", "needs",
    "cpu", "memory",
)  # fmt: skip
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=len(_KEYS)),
)
LOOKS: Bytes = st.lists(_json, max_size=3).map(lambda documents: json.dumps(documents).encode()) | st.binary()


def _shared_record(name: object, part: object, content: bytes, size: int) -> bytes:
    packed = gzip.compress(content) if size < 0 else content
    header = {"record": name, "mark": "0" * 16, "parts": [[part, len(packed) if size < 0 else size]]}
    return json.dumps(header).encode() + b"\n" + packed


RECORDS: Bytes = st.lists(
    st.builds(
        _shared_record, st.sampled_from(["a.00000000-0000-0000-0000-000000000000"] * 6 + ["../a", None]),
        st.sampled_from(["facts.jsonl", "events.jsonl", "logs/worker-0.gz", "logs/../a.gz", None]),
        st.one_of(_SMALL, st.sampled_from([b"[" * 60_000, b"x" * 9_000_000, b'{"kind": "start", "time": 1}\n'])),
        st.sampled_from([-1] * 6 + [0, 5, 2**22, 2**63]),
    )
    | st.sampled_from([b'{"left_out": 0}\n', b'{"left_out": "x"}\n', b"{" + b" " * 2_000_000, b"[" * 60_000 + b"\n"])
    | _SMALL,
    max_size=8,
).map(b"".join)  # fmt: skip

INPUTS: dict[str, Bytes] = {
    "shared_records": RECORDS,
    "answer": HTTP2,
    "devices": _messages,
    "version": HTTP2,
    "forward": HTTP2,
    "filling": HTTP2,
    "upload": HTTP2,
    "warm_pod": CHANNEL,
    "warm_log": CHANNEL,
    "web_socket": WEB_SOCKET,
    "web_socket_answer": ANSWER,
    "log_lines": st.lists(st.sampled_from([b"\n", b"x", b"\xff", b"ab\ncd", b"y" * 5000]), max_size=300).map(b"".join),
    "downloads": _seeds.map(archives.entries),
    "script_archive": _seeds.map(archives.tar),
    "looks_into_containers": LOOKS,
}
