"""The stream of a script in a warm pod: its connection, this process' standard streams, and signals."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import secrets
import signal
import sys
import time
from collections.abc import Collection
from typing import Any, TextIO

from tfk8s import polling, spans
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.scripts import warm_end, warm_pods
from tfk8s.backends.kubernetes.scripts.script_output import ScriptOutput
from tfk8s.errors import BackendUnreachable, ClusterError, TaskUnreachable
from tfk8s.render.pods import Object
from tfk8s.sessions.forks.escalation import forwarded_signals
from tfk8s.sessions.warm import channel
from tfk8s.sessions.warm.channel import Channel

_DETACH = "`tfk8s submit --detach` runs a script that needs no connection"
CONNECT_TIMEOUT = 30.0  # until process 1 of a pod that has just started listens
FILES_TIMEOUT = 2 * channel.RESUME_TIMEOUT  # for the next part of a script's files
REDIAL_INTERVAL = 1.0  # at least, between two connections
_BLOCK, _PIPE_BLOCK = 1 << 16, 4096  # PIPE_BUF in pipe(7): a pipe that takes anything takes so much
_STREAMS = {channel.OUTPUT: "stdout", channel.ERROR: "stderr"}


class Unusable(Exception):
    """The warm pod does not take a script, which needs a pod of its own."""


class WarmScript:
    """A script in a warm pod, from the connection to the pod on.

    Args:
        client: the API server.
        pod: the warm pod.

    Raises:
        Unusable: no process in the pod answers.
    """

    def __init__(self, client: Client, pod: Object) -> None:
        self._client, self._pod = client, pod
        self._name = f"script-{secrets.token_hex(3)}"
        self._channel = Channel()
        self._end: dict[str, Any] | None = None
        self._files, self._has_files = b"", False  # of those that have arrived, what is not read; whether all have
        self._is_known = self._has_begun = False  # to the pod; in the pod
        self._input: int | None = None
        self._decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in _STREAMS}
        self._output = ScriptOutput()
        self._connect()
        self._signals, self._signals_end = os.pipe()

    def close(self) -> None:
        """End the script if it still runs, and the connection."""
        if self._end is None:
            self._channel.send(channel.SIGNAL, str(int(signal.SIGTERM)).encode())
        self._channel.detach()
        os.close(self._signals)
        os.close(self._signals_end)
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            for kind in _STREAMS:
                self._write_text(kind, b"", is_last=True)
            self._output.close()

    def run(self, request: dict[str, Any], archive: bytes) -> dict[str, Any]:
        """Run the script to its end; return the frame `END`.

        Args:
            request: the frame `RUN`; `stdin` in it says whether this process' standard input is the script's.
            archive: the script's folder.

        Raises:
            Unusable: the pod refuses the script.
            ClusterError, ScriptLost: the connection broke, and the pod is gone.
        """
        with forwarded_signals(self._forward_signal):
            self._input = 0 if request["stdin"] else None
            self._channel.send_json(channel.RUN, request)
            for start in range(0, len(archive), _BLOCK):
                self._channel.send(channel.ARCHIVE, archive[start : start + _BLOCK])
            with spans.part("upload folder") as part:
                part[spans.FOLDER_SIZE] = len(archive)
                while self._end is None and not self._has_begun:
                    self._reconnected_step()
            while self._end is None:
                self._reconnected_step()
        if "refused" in self._end:
            raise Unusable
        return self._end

    def read_files(self) -> bytes:
        """Return the next part of the archive of the script's files, after the script's end; b"" at the archive's end.

        Raises:
            ClusterError, ScriptLost: as `run`; or nothing comes for too long.
        """
        deadline = time.monotonic() + FILES_TIMEOUT
        while not (self._files or self._has_files):
            if time.monotonic() > deadline:
                raise ClusterError(f"its pod sent nothing of them for {FILES_TIMEOUT:g} s")
            self._reconnected_step()
        part, self._files = self._files, b""
        return part

    # ---- the connection ----

    def _connect(self) -> None:
        """Connect to the pod, whose process 1 may have started just now."""
        retries = polling.Retries(CONNECT_TIMEOUT)
        try:
            while not self._dial():
                warm_pods.require_running(self._client, self._pod)
                if not retries.wait():
                    raise Unusable
        except ClusterError as error:  # the pod ends now
            raise Unusable from error

    def _dial(self) -> bool:
        """Connect to the pod, and continue where the last connection ended; return whether a process answers.

        Raises:
            Unusable: the user may not connect to the pod.
            ClusterError: the pod does not know the script any more, or is no warm pod.
        """
        self._dialled = time.monotonic()
        metadata = self._pod["metadata"]
        try:
            connection = streams.dial(self._client, metadata["namespace"], metadata["name"], channel.PORT)
        except ApiError as error:
            raise Unusable from error
        except (TaskUnreachable, BackendUnreachable):
            return False
        try:
            position = {"received": self._channel.received, "is_new": not self._is_known}
            channel.say_hello(connection, {"script": self._name, **position})
            hello = channel.hear_hello(connection)
        except OSError:
            connection.close()
            return False
        if "gone" in hello:
            connection.close()
            raise ClusterError(
                "the script was ended: its connection was broken for too long, or its pod ends", help=_DETACH
            )
        received = hello.get("received")
        if not isinstance(received, int):
            connection.close()
            raise warm_end.damaged()
        self._channel.attach(connection, received)
        self._is_known = True
        return True

    def _reconnect(self) -> None:
        """Connect again after a connection broke.

        Raises:
            ClusterError, ScriptLost: the pod is gone, or can't be reached in time.
        """
        retries = polling.Retries(channel.RESUME_TIMEOUT)
        if time.monotonic() - self._dialled < REDIAL_INTERVAL:
            retries.wait(REDIAL_INTERVAL)
        try:
            while not self._dial():
                warm_pods.require_running(self._client, self._pod)
                if not retries.wait():
                    raise ClusterError(
                        f"lost sight of the script: no connection to its pod for {channel.RESUME_TIMEOUT:g} s, "
                        "after which the pod ends the script",
                        help=_DETACH,
                    )
        except Unusable as error:  # the script runs, and may not run twice
            raise ClusterError(
                "lost sight of the script: you may not connect to its pod any more, which ends the script", help=_DETACH
            ) from error

    # ---- copying ----

    def _reconnected_step(self) -> None:
        """Wait for something to do, and do it, after connecting again if the connection is broken."""
        if self._channel.connection is None:
            self._reconnect()
        self._step()

    def _step(self) -> None:
        """Wait for something to do, and do it."""
        connection = self._channel.connection
        assert connection is not None
        sources = {connection.fileno(), self._signals}
        if self._input is not None and self._has_begun and not self._channel.is_full:
            sources.add(self._input)
        sink = connection.fileno() if self._channel.has_output else None
        ready = polling.ready(sources, channel.PING_INTERVAL, sink=sink)
        self._channel.write()
        self._send_signals(ready)
        if self._input in ready:
            self._send_input(0)
        if connection.fileno() in ready:
            try:
                frames = self._channel.read()
            except channel.Damaged as error:
                raise warm_end.damaged() from error
            for end in (data for kind, data in frames if kind == channel.END):
                self._end, self._input = warm_end.parse(end), None  # what is left to write needs no connection
            for kind, data in frames:
                self._take(kind, data)
            self._channel.acknowledge()
        self._channel.keep_alive()

    def _forward_signal(self, number: int) -> bool:
        """Have a signal sent to the script, if the script can get signals now; return whether that is so."""
        if self._channel.connection is None or not self._has_begun:
            return False
        os.write(self._signals_end, bytes([number]))
        return True

    def _send_signals(self, ready: Collection[int]) -> None:
        if self._signals in ready:
            for number in os.read(self._signals, 16):
                self._channel.send(channel.SIGNAL, str(number).encode())

    def _send_input(self, source: int) -> None:
        try:
            block = os.read(source, _BLOCK)
        except OSError:
            block = b""
        self._channel.send(channel.INPUT, block)
        if not block:
            self._input = None

    def _take(self, kind: int, data: bytes) -> None:
        if kind == channel.BEGUN:
            self._has_begun = True
        elif kind in _STREAMS:
            self._write(kind, data)
        elif kind == channel.FILES and self._end is not None:
            self._files, self._has_files = self._files + data, not data

    def _write(self, kind: int, data: bytes) -> None:
        """Write bytes as they are, or as text where the stream takes nothing else, as in a notebook."""
        stream: TextIO = getattr(sys, _STREAMS[kind])
        stream.flush()
        if (buffer := getattr(stream, "buffer", None)) is None:
            self._write_text(kind, data)
            return
        for start in range(0, len(data), _PIPE_BLOCK):
            with contextlib.suppress(io.UnsupportedOperation):  # a buffer in memory has no descriptor
                self._wait_for_room(buffer.fileno())
            block = data[start : start + _PIPE_BLOCK]
            if self._output.is_in_place and stream.isatty():
                self._write_text(kind, block)
                continue
            buffer.write(block)
            buffer.flush()

    def _write_text(self, kind: int, data: bytes, *, is_last: bool = False) -> None:
        if text := self._decoders[kind].decode(data, is_last):
            self._output.write(text, is_error=kind == channel.ERROR)

    def _wait_for_room(self, sink: int) -> None:
        """Wait until a stream takes a block, as a pager's does late; serve signals, and show the pod this is alive."""
        while not polling.writable(sink):
            if self._channel.connection is None and self._end is None:
                self._reconnect()
            ready = polling.ready({self._signals}, channel.PING_INTERVAL, sink=sink)
            self._send_signals(ready)
            self._channel.keep_alive()
