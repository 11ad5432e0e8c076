"""The pod's end of a script's stream: another connection may replace one that breaks; input, signals and files.

Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from tfk8s import polling
from tfk8s.task import ipc
from tfk8s.task.files import packed
from tfk8s.task.stream import channel
from tfk8s.task.stream.channel import Channel

_MAX_INPUT = 1 << 20  # bytes that the script has not read
_BLOCK = 1 << 16
POLL_INTERVAL = 1.0


class ClientLink:
    """Copies between a script and its client.

    Args:
        control: the socket to process 1, which sends connections of the client.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control, self._channel = control, Channel()
        self._last_heard = self._last_connected = time.monotonic()
        self._outputs: dict[int, int] = {}  # the kinds of frames, by the descriptors to read from
        self._input: int | None = None  # the descriptor that the script reads from
        self._pending = bytearray()  # of the script's input
        self._input_ends = self._is_over = False

    def attach(self, connection: socket.socket, received: int) -> None:
        """Continue on this connection, whose peer has received so many frames."""
        with contextlib.suppress(OSError):
            channel.say_hello(connection, {"received": self._channel.received})
        self._channel.attach(connection, received)
        self._last_heard = time.monotonic()

    # ---- for subclasses ----

    def _take(self, kind: int, data: bytes) -> None:
        """Take a frame of the client that is no input."""

    def _on_message(self, message: ipc.Message) -> None:
        """Take a message of process 1 that brings no connection."""

    def _on_output(self, output: int) -> None:
        """Read from one of the outputs, which are files here."""
        block = os.read(output, _BLOCK)
        self._channel.send(self._outputs[output], block)  # an empty frame is the end
        if not block:
            os.close(output)
            del self._outputs[output]

    def _send_files(self, paths: Sequence[str], folder: Path) -> None:
        """Send an archive of files, in place of the script's output; relative paths begin in the script's folder."""
        reader, writer = os.pipe()
        threading.Thread(target=_pack, args=(paths, writer, folder), daemon=True).start()
        self._outputs = {reader: channel.FILES}

    def _leave_files(self) -> None:
        """Send no more files: the client can't store them."""
        for output in [output for output, kind in self._outputs.items() if kind == channel.FILES]:
            os.close(output)
            del self._outputs[output]

    # ---- waiting ----

    def _wait(self, timeout: float = POLL_INTERVAL, others: Collection[int] = ()) -> set[int]:
        """Wait for something to do, and do it; return the other descriptors that are readable."""
        connection = self._channel.connection
        ready = self._poll(connection, timeout, others)
        if self._control.fileno() in ready:
            self._on_control()
        if connection is not None and connection is self._channel.connection and connection.fileno() in ready:
            self._on_connection()
        for output in self._outputs.keys() & ready:
            self._on_output(output)
        if self._input in ready:
            self._write_input()
        return ready.intersection(others)

    def _poll(self, connection: socket.socket | None, timeout: float, others: Collection[int]) -> set[int]:
        """Return the descriptors at which something is to do."""
        sources = {self._control.fileno(), *others}
        sinks = set()
        if connection is not None:
            sources.add(connection.fileno())
            if self._channel.has_output:
                sinks.add(connection.fileno())
        if not self._channel.is_full:
            sources.update(self._outputs)
        if self._input is not None and self._pending:
            sinks.add(self._input)
        readable, writable = polling.events(sources, sinks, timeout)
        return readable | writable

    def _absence(self) -> float:
        """Give up a silent connection; return the seconds without a connection."""
        now = time.monotonic()
        if self._channel.connection is not None and now - self._last_heard > channel.SILENCE_TIMEOUT:
            self._channel.detach()
        if self._channel.connection is not None:
            self._last_connected = now
        return now - self._last_connected

    def _on_control(self) -> None:
        received = ipc.receive(self._control)
        if received is None:  # process 1 has ended
            self._is_over = True
            return
        message, descriptors = received
        if "attach" in message:
            for descriptor in descriptors:  # none if this process may open no more
                self.attach(socket.socket(fileno=descriptor), message["attach"])
        else:
            self._on_message(message)

    def _on_connection(self) -> None:
        self._channel.write()
        try:
            frames = self._channel.read()
        except channel.Damaged:  # whoever sent that is no client: another connection may replace this one
            return
        for kind, data in frames:
            if kind == channel.INPUT:
                self._pending += data
                self._input_ends = self._input_ends or not data
                self._write_input()
            elif kind == channel.FILES:
                self._leave_files()
            else:
                self._take(kind, data)
        self._last_heard = time.monotonic()
        if len(self._pending) <= _MAX_INPUT:
            self._channel.acknowledge()

    def _write_input(self) -> None:
        """Write what the script reads; close its input at the end."""
        if self._input is None:
            return
        was_full = len(self._pending) > _MAX_INPUT
        try:
            while self._pending:
                del self._pending[: os.write(self._input, self._pending[:_BLOCK])]
        except BlockingIOError:
            pass
        except OSError:  # the script reads no more
            self._pending.clear()
        if was_full and len(self._pending) <= _MAX_INPUT:
            self._channel.acknowledge()
        if self._input_ends and not self._pending:
            os.close(self._input)
            self._input = None


def _pack(paths: Sequence[str], writer: int, folder: Path) -> None:
    with contextlib.suppress(OSError), open(writer, "wb") as sink:  # nobody reads any more
        packed.pack(paths, sink, folder)
