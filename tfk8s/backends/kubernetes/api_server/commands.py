"""Commands in a pod's container, by WebSockets to the API server.

Each message begins with the number of a channel (k8s.io/apimachinery, pkg/util/remotecommand). Version 5 of the
protocol can end the standard input of a command; API servers before Kubernetes 1.30 speak version 4.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

import websocket

from tfk8s.backends.kubernetes.api_server import paths, streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.core import naming
from tfk8s.errors import ClusterError

STDIN, STDOUT, STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_VERSION_5 = "v5.channel.k8s.io"
_NO_STATUS = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
_MAX_REASON = 1 << 16  # bytes of what a command writes that fails
_END_TIMEOUT = 600.0  # for a command that has its input; large files may have to reach a slow disk


class RemoteCommand:
    """A command that runs in a pod's container, in a `with`. Leaving the `with` closes the stream.

    Args:
        stdin: give the command a standard input.
        tty: give the command a terminal, which has one stream for output and errors.
        timeout: the longest time without a message from the pod; None waits for ever.

    Attributes:
        exit_code: the command's exit code; None until its end.
        failure: why the command could not run; "" if it ran.

    Raises:
        ApiError: the API server refuses the command.
        BackendUnreachable: there is no connection.
    """

    def __init__(
        self, client: Client, namespace: str, pod: str, words: Sequence[str], *,
        container: str = naming.SERVER_CONTAINER, stdin: bool = True, tty: bool = False,
        timeout: float | None = 60.0,
    ) -> None:  # fmt: skip
        options = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
        query = [*(("command", word) for word in words), *((name, str(on).lower()) for name, on in options.items())]
        protocols = [_VERSION_5, streams.PROTOCOL]
        self._pod, self._program, self._timeout = pod, words[0], timeout
        self._stream = streams.open_stream(client, paths.container(namespace, pod, container, "exec"), query, protocols)
        self._stream.settimeout(timeout)
        self.exit_code: int | None = None
        self.failure = ""
        self._sent = self._read = 0  # bytes of the standard input

    def __enter__(self) -> RemoteCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def send(self, block: bytes) -> None:
        """Send a block of the standard input."""
        self._send(STDIN, block)
        self._sent += len(block)

    @property
    def is_input_read(self) -> bool:
        """True if the peer answered a ping that was sent after all input."""
        return self._read == self._sent

    def let_read_late(self) -> None:
        """Let writes wait for as long as the command does not read."""
        streams.set_write_timeout(self._stream, 0)

    def end_input(self) -> bool:
        """End the standard input; return False if the API server can't do that."""
        headers = self._stream.getheaders() or {}
        if headers.get("sec-websocket-protocol") != _VERSION_5:
            return False
        self._send(_CLOSE, bytes([STDIN]))
        return True

    def resize(self, columns: int, lines: int) -> None:
        """Send the size of the terminal."""
        self._send(_RESIZE, json.dumps({"Width": columns, "Height": lines}).encode())

    def ping(self) -> None:
        """Send a ping, which the peer answers."""
        try:
            self._stream.ping(str(self._sent))
        except (OSError, websocket.WebSocketException) as error:
            raise self._broken(error) from error

    def fileno(self) -> int:
        """Return the stream's descriptor, for `poll`."""
        assert self._stream.sock is not None
        return int(self._stream.sock.fileno())

    def has_message(self) -> bool:
        """Return whether a part of a message is decrypted, which `poll` does not report."""
        return streams.has_decrypted(self._stream.sock)

    def receive(self) -> tuple[int, bytes]:
        """Return the next message: a channel and its data. At the end, `exit_code` or `failure` is set.

        Raises:
            ClusterError: the stream broke.
        """
        try:
            operation, frame = self._stream.recv_data_frame(True)
        except (OSError, websocket.WebSocketException) as error:
            raise self._broken(error) from error
        if operation == websocket.ABNF.OPCODE_CLOSE:
            raise ClusterError(f"the stream to pod {self._pod} ended before {self._program} did")
        if operation == websocket.ABNF.OPCODE_PONG and frame.data == str(self._sent).encode():
            self._read = self._sent
        if operation != websocket.ABNF.OPCODE_BINARY or not frame.data:
            return STDOUT, b""
        channel, data = frame.data[0], bytes(frame.data[1:])
        if channel == _STATUS:
            try:
                self._end(json.loads(data))
            except _NO_STATUS as error:
                raise ClusterError(f"pod {self._pod} sent no status of {self._program}: {error}") from error
            return STDOUT, b""
        return channel, data

    def wait(self, timeout: float = _END_TIMEOUT) -> bytes:
        """Wait for the end of a command that has its input; return the last part of its output and its errors.

        Raises:
            ClusterError: the stream broke, or the command writes on after the timeout.
        """
        output, deadline = b"", time.monotonic() + timeout
        while self.exit_code is None:
            self._check(deadline)
            output = (output + self.receive()[1])[-_MAX_REASON:]
        return output

    def _check(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise ClusterError(f"{self._program} in pod {self._pod} does not end")

    def read_output(self) -> tuple[bytes, bytes]:
        """Return the next block of the standard output, b"" at the end, and the errors that came before the block.

        Raises:
            ClusterError: the stream broke, or there was no output for the longest time without a message.
        """
        errors, deadline = b"", time.monotonic() + (self._timeout or math.inf)
        while self.exit_code is None:
            self._check(deadline)
            channel, data = self.receive()
            if channel == STDOUT and data:
                return data, errors
            errors = (errors + data)[-_MAX_REASON:]
        return b"", errors

    def _end(self, status: dict[str, Any]) -> None:
        causes = {cause.get("reason"): cause["message"] for cause in status.get("details", {}).get("causes", ())}
        if status.get("status") == "Success":
            self.exit_code = 0
        elif "ExitCode" in causes:
            self.exit_code = int(causes["ExitCode"])
        else:
            self.exit_code, self.failure = 1, str(status.get("message", "for an unknown reason"))

    def _send(self, channel: int, data: bytes) -> None:
        try:
            self._stream.send_binary(bytes([channel]) + data)
        except (OSError, websocket.WebSocketException) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> ClusterError:
        return ClusterError(f"the stream to pod {self._pod} broke: {error}")


class Output(io.RawIOBase):
    """The standard output of a command as a file, as it arrives.

    Attributes:
        count: the bytes that were read.
    """

    def __init__(self, command: RemoteCommand) -> None:
        self._command = command
        self._block = b""
        self.count = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes, or 0 when the command has ended.

        Raises:
            ClusterError: the stream broke, or the command failed.
        """
        errors = b""
        if not self._block:
            self._block, errors = self._command.read_output()
        if self._command.exit_code:
            raise ClusterError(self._command.failure or errors.decode(errors="replace").strip())
        count = min(len(buffer), len(self._block))
        buffer[:count], self._block = self._block[:count], self._block[count:]
        self.count += count
        return count


def execute(
    client: Client, namespace: str, pod: str, words: Sequence[str], data: Iterable[bytes], timeout: float = 60.0,
    container: str = naming.SERVER_CONTAINER,
) -> None:  # fmt: skip
    """Run a command in a pod's container until the command ends.

    Args:
        words: the command, which must not wait for the end of its standard input.
        data: the standard input.
        timeout: the longest time without a message from the pod.

    Raises:
        ClusterError: the command failed, with its output as the reason; or the stream broke.
    """
    with RemoteCommand(client, namespace, pod, words, container=container, timeout=timeout) as command:
        for block in data:
            command.send(block)
        output = command.wait()
    if command.exit_code:
        reason = output.decode(errors="replace").strip() or command.failure
        raise ClusterError(f"{words[0]} failed in pod {pod}: {reason}")
