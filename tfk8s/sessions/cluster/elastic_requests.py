"""Gives the sessions of any program the ClusterSpec of an elastic cluster, on their way to the master.

A program that knows nothing of tfk8s creates sessions without a ClusterSpec, and with a forward's address as the
target. So a forward appends fields to the request `CreateSession`. HTTP/2's windows count the appended bytes, of which
the client knows nothing. So the server gets no more than it takes: what exceeds that waits for the server's next
allowance, and the client gets less of that one. Standard library only.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator

from tfk8s.sessions.cluster.create_session import GetFields, Upload
from tfk8s.sessions.cluster.http2_frames import FrameSplitter, Head
from tfk8s.task import wire
from tfk8s.task.wire import ACK, DATA, END_STREAM, HEADERS, MAX_WINDOW, PADDED, RST_STREAM, SETTINGS, WINDOW_UPDATE

_FIRST_WINDOW = 65535
_TABLE_SIZE, _INITIAL_WINDOW = 1, 4  # settings (RFC 9113, 6.5.2)
_NO_TABLE = struct.pack(">HI", _TABLE_SIZE, 0)
_SETTING_SIZE, _INCREMENT_SIZE = 6, 4  # bytes
_MAX_SETTINGS = 1000  # frames of settings that the client has not acknowledged
_PATH = wire.CREATE_SESSION.encode()


class FillingStream:
    """A connection to a master's server; programs that send requests there get the ClusterSpec for their sessions.

    Args:
        server: the connection.
        get_fields: returns what a session that is created now lacks; None if nothing.
    """

    def __init__(self, server: socket.socket, get_fields: GetFields) -> None:
        self._server, self._get_fields = server, get_fields
        self._state, self._sending = threading.Lock(), threading.Lock()
        self._sent = FrameSplitter(_is_whole_request, len(wire.PREFACE))
        self._answers = FrameSplitter(_is_whole_answer)
        self._uploads: dict[int, Upload] = {}
        self._upload: Upload | None = None  # of the client's current frame
        self._room = _FIRST_WINDOW  # how many bytes the server takes on the connection
        self._excess = 0  # how many bytes more the client may send
        self._first_room = _FIRST_WINDOW  # of each stream
        self._settings: deque[int] = deque()  # the same, in settings that the client has not acknowledged
        self._received = b""

    def shutdown(self, how: int) -> None:
        """As `socket.shutdown`."""
        self._server.shutdown(how)

    # ---- from the client to the server ----

    def sendall(self, data: memoryview | bytes) -> None:
        """Send what came from the client."""
        with self._sending:
            block = memoryview(data)
            if not self._passes_to_server(block):
                block = memoryview(b"".join(map(bytes, self._edit_requests(block))))
            self._server.sendall(block)
        self._send_pending()

    def _passes_to_server(self, data: memoryview) -> bool:
        """Return whether the next bytes stay as they are, as most do; then take note of them."""
        with self._state:
            frames = None if self._uploads or self._upload else self._sent.whole(data)
            if frames is None or any(head.kind == SETTINGS or _is_creation(head, part) for head, part in frames):
                return False
            size = sum(head.size for head, _ in frames if head.kind == DATA)
            if size > self._room:
                return False
            self._sent.skip(data, frames)
            self._room -= size
            return True

    def _send_pending(self) -> None:
        """Send what the server takes now, unless the client is in the middle of a frame."""
        if not any(upload.data for upload in list(self._uploads.values())):
            return
        with self._sending:
            with self._state:
                streams = [] if self._sent.is_inside else list(self._uploads)
                frames = [frame for stream in streams for frame in self._flush(stream)]
            if frames:
                self._server.sendall(b"".join(frames))

    def _edit_requests(self, data: memoryview) -> Iterator[bytes | memoryview]:
        for head, part, is_end in self._sent.parts(data):
            if head is None:  # the preface
                yield part
                continue
            fields = self._get_fields() if _is_creation(head, part) else None  # without the lock: it may take a while
            with self._state:
                if fields is not None:
                    self._uploads[head.stream] = Upload(self._first_room, fields)
                if self._sent.is_start:
                    self._begin_frame(head)
                if self._upload is not None:
                    self._upload.add(part, is_end=is_end and bool(head.flags & END_STREAM))
                    yield from self._flush(head.stream)
                else:
                    yield from ((wire.frame_head(*head), part) if self._sent.is_start else (part,))

    def _begin_frame(self, head: Head) -> None:
        """Take note of the client's next frame."""
        self._upload = None
        if head.kind == RST_STREAM:
            self._uploads.pop(head.stream, None)
        elif head.kind == SETTINGS and head.flags & ACK and self._settings:
            before, self._first_room = self._first_room, self._settings.popleft()
            for upload in self._uploads.values():
                upload.room += self._first_room - before
        elif head.kind == DATA:
            self._upload = self._choose_upload(head)
            if self._upload is None:
                self._room -= head.size
            else:
                self._excess -= head.size  # until `_flush` sends them

    def _choose_upload(self, head: Head) -> Upload | None:
        """Return what takes the client's next data; None if the server gets them as they are."""
        upload = self._uploads.get(head.stream)
        if upload is None and head.size > self._room:  # the server takes less than the client knows
            upload = self._uploads[head.stream] = Upload(MAX_WINDOW)
        if upload is not None and head.flags & PADDED:
            if not upload.is_untouched or head.size > self._room:
                self.shutdown(socket.SHUT_RDWR)
                raise ConnectionError("a frame is padded, in a request that has changed on its way")
            del self._uploads[head.stream]
            return None
        return upload

    def _flush(self, stream: int) -> Iterator[bytes]:
        """Yield the frames of a stream, as far as the server takes them."""
        while upload := self._uploads.get(stream):
            size = max(0, min(len(upload.data), wire.MAX_FRAME, self._room, upload.room))
            is_last = upload.is_ended and size == len(upload.data)
            if not size and not is_last:
                return
            part = bytes(upload.data[:size])
            del upload.data[:size]
            self._room -= size
            upload.room -= size
            self._excess += size
            yield wire.frame(DATA, END_STREAM if is_last else 0, stream, part)
            if is_last:
                del self._uploads[stream]

    # ---- from the server to the client ----

    def recv_into(self, buffer: memoryview) -> int:
        """Receive what goes to the client, as `socket.recv_into`.

        Raises:
            ProbeError: the server sent what HTTP/2 does not allow.
            OSError: the connection broke.
        """
        while not self._received and (count := self._server.recv_into(buffer)):
            with self._state:
                if not (passes := self._passes_to_client(buffer[:count])):
                    self._received = b"".join(map(bytes, self._edit_answers(memoryview(bytes(buffer[:count])))))
            self._send_pending()
            if passes:
                return count
        data, self._received = self._received[: len(buffer)], self._received[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

    def _passes_to_client(self, data: memoryview) -> bool:
        """Return whether the next bytes stay as they are, as most do; then take note of them."""
        frames = None if self._excess or self._uploads else self._answers.whole(data)
        if frames is None or any(head.kind == SETTINGS and not head.flags & ACK for head, _ in frames):
            return False
        self._answers.skip(data, frames)
        self._room += sum(_increment(part) for head, part in frames if head.kind == WINDOW_UPDATE and not head.stream)
        return True

    def _edit_answers(self, data: memoryview) -> Iterator[bytes | memoryview]:
        for head, part, _ in self._answers.parts(data):
            assert head is not None
            if head.kind == SETTINGS and not head.flags & ACK:
                yield self._edit_settings(bytes(part))
            elif head.kind == WINDOW_UPDATE:
                yield self._edit_window(head.stream, _increment(part))
            else:
                if head.kind == RST_STREAM:  # the server takes no more of it
                    self._uploads.pop(head.stream, None)
                yield from ((wire.frame_head(*head), part) if self._answers.is_start else (part,))

    def _edit_settings(self, payload: bytes) -> bytes:
        """Return the server's settings; the client has to write each header in full, so that `_PATH` can be found."""
        if len(payload) % _SETTING_SIZE or len(self._settings) > _MAX_SETTINGS:
            raise wire.ProbeError("the server sent settings that HTTP/2 does not allow, or too many of them")
        latest = self._settings[-1] if self._settings else self._first_room
        self._settings.append(dict(struct.iter_unpack(">HI", payload)).get(_INITIAL_WINDOW, latest))
        return wire.frame(SETTINGS, payload=payload + _NO_TABLE)

    def _edit_window(self, stream: int, increment: int) -> bytes:
        kept = 0
        if stream == 0:
            self._room += increment
            kept = min(self._excess, increment)
            self._excess -= kept
        elif stream in self._uploads:
            self._uploads[stream].room += increment
        return wire.frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment - kept)) if increment > kept else b""


def _increment(payload: memoryview) -> int:
    """Return the bytes that a frame of the kind WINDOW_UPDATE allows (RFC 9113, 6.9).

    Raises:
        ProbeError: the frame has another size.
    """
    if len(payload) != _INCREMENT_SIZE:
        raise wire.ProbeError("the server sent a window that HTTP/2 does not allow")
    return int.from_bytes(payload, "big") & MAX_WINDOW


def _is_creation(head: Head, payload: memoryview) -> bool:
    """Return whether a frame begins a call of `CreateSession`."""
    return head.kind == HEADERS and _PATH in bytes(payload)


def _is_whole_request(head: Head) -> bool:
    return head.kind == HEADERS


def _is_whole_answer(head: Head) -> bool:
    return head.kind in (SETTINGS, WINDOW_UPDATE)
