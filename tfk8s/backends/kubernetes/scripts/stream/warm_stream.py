"""The stream of a script in a warm pod: its connection, this process' standard streams, and signals."""

from __future__ import annotations

import codecs
import contextlib
import io
import signal
import sys
from typing import Any, TextIO

from tfk8s import polling, spans
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.scripts.script_output import ScriptOutput
from tfk8s.backends.kubernetes.scripts.stream.script_stream import BLOCK, ScriptStream, Unusable
from tfk8s.render.pods import Object
from tfk8s.sessions.forks.escalation import forwarded_signals
from tfk8s.task.stream import channel

_PIPE_BLOCK = 4096  # PIPE_BUF in pipe(7): a pipe that takes anything takes so much
_STREAMS = {channel.OUTPUT: "stdout", channel.ERROR: "stderr"}


class WarmScript(ScriptStream):
    """A script in a warm pod, from the connection to the pod on.

    Args:
        client: the API server.
        pod: the warm pod.

    Raises:
        Unusable: no process in the pod answers.
    """

    def __init__(self, client: Client, pod: Object) -> None:
        super().__init__(client, pod)
        self._has_begun = False  # in the pod
        self._decoders = {kind: codecs.getincrementaldecoder("utf-8")("replace") for kind in _STREAMS}
        self._output = ScriptOutput()
        self._connect()

    def close(self) -> None:
        """End the script if it still runs, and the connection."""
        if self._end is None:
            self._channel.send(channel.SIGNAL, str(int(signal.SIGTERM)).encode())
        self._close()
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
            for start in range(0, len(archive), BLOCK):
                self._channel.send(channel.ARCHIVE, archive[start : start + BLOCK])
            with spans.part("upload folder") as part:
                part[spans.FOLDER_SIZE] = len(archive)
                while self._end is None and not self._has_begun:
                    self._reconnected_step()
            while self._end is None:
                self._reconnected_step()
        if "refused" in self._end:
            raise Unusable
        return self._end

    # ---- copying ----

    def _reads_input(self) -> bool:
        return self._has_begun

    def _forward_signal(self, number: int) -> bool:
        """Have a signal sent to the script, if the script can get signals now; return whether that is so."""
        if self._channel.connection is None or not self._has_begun:
            return False
        self._signals_end.send(bytes([number]))
        return True

    def _take(self, kind: int, data: bytes) -> None:
        if kind == channel.BEGUN:
            self._has_begun = True
        elif kind in _STREAMS:
            self._write(kind, data)
        else:
            super()._take(kind, data)

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
            ready = polling.ready({self._signals.fileno()}, channel.PING_INTERVAL, sink=sink)
            self._send_signals(ready)
            self._channel.keep_alive()
