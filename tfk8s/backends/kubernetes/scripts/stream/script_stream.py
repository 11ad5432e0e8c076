"""The stream to the pod of a script: its connection, which another may replace, input, and files."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import socket
import time
from collections.abc import Collection
from typing import Any

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths, streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.pods import disruptions
from tfk8s.backends.kubernetes.scripts import script_pod, script_start
from tfk8s.backends.kubernetes.workloads import script_status
from tfk8s.errors import BackendUnreachable, ClusterError, TaskUnreachable
from tfk8s.render.pods import Object
from tfk8s.task.stream import channel
from tfk8s.task.stream.channel import Channel

CONNECT_TIMEOUT = 30.0  # until process 1 of a pod that has just started listens
FILES_TIMEOUT = 2 * channel.RESUME_TIMEOUT  # for the next part of a script's files
REFUSAL_TIMEOUT = 10.0  # an API server that has just started refuses everybody, until it has read the Roles
REDIAL_INTERVAL = 1.0  # at least, between two connections
BLOCK = 1 << 16
_FLAGS = ("pod_ends", "out_of_memory", "files", "stopped")
_EXITS = range(-64, 256)  # the codes of processes, and signals
_LEAVE_TIMEOUT = 5.0  # for the pod to close the connection, when nobody takes the rest of the files
_WAKE = 0  # no signal's number


class Unusable(Exception):
    """The pod takes no connection, or no script."""


class ScriptStream:
    """A stream to a pod of a script.

    Args:
        client: the API server.
        pod: the pod.
    """

    _subject = "the script"
    _resume_timeout = channel.RESUME_TIMEOUT
    _gone = "the script was ended: its connection was broken for too long, or its pod ends"
    _lost = "after which the pod ends the script"
    _refused = "which ends the script"
    _help: str | None = "`tfk8s submit --detach` runs a script that needs no connection"
    _without: str | None = "`tfk8s submit --fresh` runs the script in a pod of its own"

    def __init__(self, client: Client, pod: Object) -> None:
        self._client, self._pod = client, pod
        self._name = f"script-{secrets.token_hex(3)}"
        self._channel = Channel()
        self._dialled = 0.0
        self._end: dict[str, Any] | None = None
        self._files, self._has_files = b"", False  # of those that have arrived, what is not read; whether all have
        self._is_known = False  # to the pod
        self._is_stopped = False
        self._input: int | None = None
        self._signals, self._signals_end = socket.socketpair()  # wakes a wait, also on Windows

    def stop(self) -> None:
        """Let the thread that serves the stream end soon, with a ClusterError."""
        self._is_stopped = True
        with contextlib.suppress(OSError):  # it has ended
            self._signals_end.send(bytes([_WAKE]))

    def _close(self) -> None:
        """End the connection."""
        self._channel.detach()
        self._signals.close()
        self._signals_end.close()

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

    def leave_files(self) -> None:
        """Tell the pod that nobody takes the rest of the files, for which the pod would wait."""
        self._has_files, self._files = True, b""
        self._channel.send(channel.FILES)
        deadline = time.monotonic() + _LEAVE_TIMEOUT
        with contextlib.suppress(ClusterError):
            while self._channel.connection is not None and time.monotonic() < deadline:
                self._step()

    # ---- the connection ----

    def _connect(self) -> None:
        """Connect to the pod, whose process 1 may have started just now."""
        retries = polling.Retries(CONNECT_TIMEOUT)
        try:
            while not self._dial():
                self._require_running()
                if not retries.wait():
                    raise Unusable
        except ClusterError as error:  # the pod ends now
            raise Unusable from error

    def _dial(self) -> bool:
        """Connect to the pod, and continue where the last connection ended; return whether a process answers.

        Raises:
            Unusable: the user may not connect to the pod.
            ClusterError: the pod does not know the script any more, or is no warm pod; or after `stop`.
        """
        self._require_wanted()
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
            raise ClusterError(self._gone, help=self._help)
        received = hello.get("received")
        if not isinstance(received, int):
            connection.close()
            raise self._damaged()
        self._channel.attach(connection, received)
        self._is_known = True
        return True

    def _reconnect(self) -> None:
        """Connect again after a connection broke.

        Raises:
            ClusterError, ScriptLost: the pod is gone, or can't be reached in time.
        """
        retries = polling.Retries(self._resume_timeout)
        if time.monotonic() - self._dialled < REDIAL_INTERVAL:
            retries.wait(REDIAL_INTERVAL)
        refused_at = math.inf
        while True:
            try:
                if self._dial():
                    return
                self._require_running()
                refused_at = math.inf
            except (Unusable, ApiError) as error:
                refused_at = min(refused_at, time.monotonic())
                if time.monotonic() - refused_at >= REFUSAL_TIMEOUT:  # the script runs, and may not run twice
                    raise ClusterError(
                        f"lost sight of {self._subject}: you may not connect to its pod any more, {self._refused}",
                        help=self._help,
                    ) from error
            if not retries.wait():
                raise ClusterError(
                    f"lost sight of {self._subject}: no connection to its pod for {self._resume_timeout:g} s, "
                    f"{self._lost}",
                    help=self._help,
                )

    def _require_running(self) -> None:
        """Check that the pod goes on; errors as of `require_running`."""
        require_running(self._client, self._pod)

    # ---- copying ----

    def _reconnected_step(self) -> None:
        """Wait for something to do, and do it, after connecting again if the connection is broken."""
        self._require_wanted()
        if self._channel.connection is None:
            self._reconnect()
        self._step()

    def _require_wanted(self) -> None:
        if self._is_stopped:
            raise ClusterError("the command ends")

    def _step(self) -> None:
        """Wait for something to do, and do it."""
        connection = self._channel.connection
        assert connection is not None
        sources = {connection.fileno(), self._signals.fileno()}
        if self._input is not None and self._reads_input() and not self._channel.is_full:
            sources.add(self._input)
        sink = connection.fileno() if self._channel.has_output else None
        ready = polling.ready(sources, channel.PING_INTERVAL, sink=sink)
        self._channel.write()
        self._send_signals(ready)
        if self._input is not None and self._input in ready:
            self._send_input(self._input)
        if connection.fileno() in ready:
            try:
                frames = self._channel.read()
                for end in (data for kind, data in frames if kind == channel.END):
                    self._end, self._input = parse_end(end), None  # what is left to write needs no connection
            except channel.Damaged as error:
                raise self._damaged() from error
            for kind, data in frames:
                self._take(kind, data)
            self._channel.acknowledge()
        self._channel.keep_alive()

    def _damaged(self) -> ClusterError:
        """Return the error for what no pod of a script sends."""
        return ClusterError(
            f"lost sight of {self._subject}: its pod sent what no pod of tfk8s sends", help=self._without
        )

    def _reads_input(self) -> bool:
        """Return whether this process' input may be read now."""
        return True

    def _send_signals(self, ready: Collection[int]) -> None:
        if self._signals.fileno() in ready:
            for number in self._signals.recv(16):
                if number != _WAKE:
                    self._channel.send(channel.SIGNAL, str(number).encode())

    def _send_input(self, source: int) -> None:
        try:
            block = os.read(source, BLOCK)
        except OSError:
            block = b""
        self._channel.send(channel.INPUT, block)
        if not block:
            self._input = None

    def _take(self, kind: int, data: bytes) -> None:
        """Take a frame of the pod that is not the end."""
        if kind == channel.FILES and self._end is not None and not self._has_files:
            self._files, self._has_files = self._files + data, not data


def reason(error: Exception) -> str:
    """Return why a stream broke off."""
    return str(error) or str(error.__cause__ or "nothing in its pod answers")


def require_running(client: Client, pod: Object) -> None:
    """Check that a pod of a script goes on, unless the API server does not answer.

    Raises:
        PodDeleted: the pod is gone.
        ClusterError: the pod has ended; says why.
        ScriptLost: Kubernetes removes the pod.
    """
    metadata = pod["metadata"]
    with contextlib.suppress(BackendUnreachable):
        found = client.find(paths.pod(metadata["namespace"], metadata["name"]))
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            raise script_start.PodDeleted(f"{script_pod.ENDED}: {disruptions.DELETED}")
        script_pod.require_kept(found, script_pod.ENDED)
        if end := script_status.ended(found):
            script_pod.outcome(found, end)
            raise ClusterError(f"{script_pod.ENDED}: its pod {metadata['name']} has ended")


def parse_end(data: bytes) -> dict[str, Any]:
    """Return the frame `END`, which any program in the pod may have sent.

    Raises:
        Damaged: the frame is no end.
    """
    with contextlib.suppress(ValueError, RecursionError):
        end = json.loads(data)
        if isinstance(end, dict) and ("refused" in end or _is_end(end)):
            return end
    raise channel.Damaged


def _is_end(end: dict[str, Any]) -> bool:
    is_result = end.get("exit") in _EXITS if "exit" in end else isinstance(end.get("error"), str)
    are_known = isinstance(end.get("since"), int | float) and isinstance(end.get("note"), str)
    return is_result and are_known and all(isinstance(end.get(flag), bool) for flag in _FLAGS)
