"""The request `CreateSession` on its way: what it lacks on an elastic cluster is appended to its message.

Messages merge, and the last value of a text counts (protobuf.dev/programming-guides/encoding). Standard library only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tfk8s.sessions.cluster import elastic
from tfk8s.task import wire

_PREFIX_SIZE = 5  # of a gRPC message: a flag for compression, and the size
_CONFIG = 2  # a field of a CreateSessionRequest
_FILTERS, _CLUSTER_DEF, _ISOLATE = 4, 14, 15  # fields of a ConfigProto


@dataclass(frozen=True)
class SessionFields:
    """The fields that sessions of a cluster lack.

    Attributes:
        addresses: the address of each task, by its short name.
        master: the task to which the forward leads.
    """

    addresses: Mapping[str, str]
    master: str

    @cached_property
    def size(self) -> int:
        """The number of bytes that `after` returns."""
        return len(elastic.session_fields(self.master, self.addresses, is_filtered=True))

    def after(self, config: bytes) -> bytes:
        """Return the bytes to append to a request with that `ConfigProto`."""
        try:
            own = dict(wire.fields(config))
        except wire.ProbeError:  # the server refuses it
            own = {}
        if _CLUSTER_DEF in own:
            return _unknown_field(self.size)
        isolate, is_filtered = bool(own.get(_ISOLATE)), _FILTERS in own
        fields = elastic.session_fields(self.master, self.addresses, isolate=isolate, is_filtered=is_filtered)
        return fields if is_filtered else fields + _unknown_field(self.size - len(fields))


GetFields = Callable[[], SessionFields | None]


def _unknown_field(size: int) -> bytes:
    """Return a field of that size which no message has; its bytes are zero."""
    content = size - 7  # two bytes for the field, and five for its size
    digits = bytes((content >> shift & 0x7F) | (0x80 if shift < 28 else 0) for shift in range(0, 35, 7))
    return wire.varint(1000 << 3 | 2) + digits + bytes(content)


@dataclass
class Upload:
    """The data of a stream on their way to the server.

    Attributes:
        room: how many bytes the server takes on the stream.
        fields: what the message lacks, a CreateSessionRequest; None for other messages.
        data: the bytes that the server has not taken yet.
        is_ended: whether these are the last ones.
    """

    room: int
    fields: SessionFields | None = None
    data: bytearray = field(default_factory=bytearray)
    is_ended: bool = False
    _prefix: bytes = b""
    _config: bytes = b""
    _head: bytes = b""
    _skip: int = 0
    _is_config: bool = False

    @property
    def is_untouched(self) -> bool:
        """True if none of the message has come."""
        return self.fields is not None and not self._prefix

    def add(self, part: memoryview, *, is_end: bool) -> None:
        """Take the client's next bytes; append what the message lacks to the last ones."""
        if self.fields is not None and (missing := _PREFIX_SIZE - len(self._prefix)):
            self._prefix, part = self._prefix + part[:missing], part[missing:]
            if len(self._prefix) == _PREFIX_SIZE or is_end:
                self._begin()
        self.data += part
        self.is_ended = is_end
        if self.fields is not None:
            self._read(part)
            self.data += self.fields.after(self._config) if is_end else b""

    def _begin(self) -> None:
        """Put the size that the message will have in its prefix."""
        size = int.from_bytes(self._prefix[1:], "big")
        is_message = len(self._prefix) == _PREFIX_SIZE and not self._prefix[0] and not size >> 31
        if self.fields is not None and is_message:
            self.data += struct.pack(">BI", 0, size + self.fields.size)
        else:  # it is compressed, or the server refuses it
            self.fields = None
            self.data += self._prefix

    def _read(self, part: memoryview) -> None:
        """Find the `ConfigProto` in the next bytes of the message."""
        while part:
            if self._skip:
                count = min(self._skip, len(part))
                if self._is_config:
                    self._config += part[:count]
                self._skip -= count
                part = part[count:]
                continue
            self._head += part[:1]
            part = part[1:]
            if len(self._head) > 1 and self._head[-1] < 0x80:
                number, size = self._head[0] >> 3, _varint(self._head[1:])
                self._is_config, self._skip, self._head = number == _CONFIG, size, b""


def _varint(data: bytes) -> int:
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data))
