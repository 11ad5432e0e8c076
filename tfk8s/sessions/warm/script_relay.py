"""Copies between a script in a warm pod and `submit`: streams, signals, the end and files; makes the script's folder.

Another connection may replace one that breaks. The script ends if its client stays away, and nothing of the
script is left then. Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import Any

from tfk8s.core import naming
from tfk8s.sessions.forks import ipc, processes
from tfk8s.sessions.warm import channel, left_files
from tfk8s.sessions.warm.channel import Channel
from tfk8s.sessions.warm.script_folder import NoRoom, ScriptFolder
from tfk8s.sessions.warm.script_log import ScriptLog

_MAX_INPUT = 1 << 20  # bytes that the script has not read
_DRAIN_TIMEOUT = 1.0  # a process that the script left behind may hold its streams open
_BLOCK = 1 << 16
_MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")  # cgroups(7)
_POLL_INTERVAL = 1.0
_DRAIN_INTERVAL = 0.05


class Relay:
    """Copies between a script and its client.

    Args:
        control: the socket to process 1.
        folder: the script's own folder, which is made and removed.
    """

    def __init__(self, control: socket.socket, folder: Path) -> None:
        self._control, self._folder = control, ScriptFolder(folder)
        self._channel, self._log = Channel(), ScriptLog(self._folder.log)
        self._last_heard = self._last_connected = time.monotonic()
        self._request: dict[str, Any] = {}
        self._since, self._memory_kills = time.time(), processes.count_oom_kills(_MEMORY_EVENTS)
        self._script: socket.socket | None = None  # the connection to the script's owner, process 1
        self._outputs: dict[int, int] = {}  # the kinds of frames, by the descriptors that the script writes to
        self._input: int | None = None  # the descriptor that the script reads from
        self._pending = bytearray()  # of the script's input
        self._input_ends = False
        self._result: dict[str, Any] | None = None  # once the script has ended
        self._drain_until = 0.0
        self._sent_end = self._is_over = False
        self._ends_with: set[str] = set()  # "pod" if the pod is deleted, "script" after `tfk8s stop`

    def attach(self, connection: socket.socket, received: int) -> None:
        """Continue on this connection, whose peer has received so many frames."""
        with contextlib.suppress(OSError):
            channel.say_hello(connection, {"received": self._channel.received})
        self._channel.attach(connection, received)
        self._last_heard = time.monotonic()

    def run(self) -> None:
        """Copy until the script has ended and its client knows that, or stays away."""
        try:
            while not self._is_over:
                self._wait()
                self._check_times()
                self._check_end()
        finally:
            self._channel.detach()
            self._folder.remove()

    # ---- waiting ----

    def _wait(self) -> None:
        """Wait for something to do, and do it."""
        connection = self._channel.connection
        ready = self._poll(connection)
        if self._control.fileno() in ready:  # a refusal comes before the end of the script's connection
            self._on_control()
        if connection is not None and connection is self._channel.connection and connection.fileno() in ready:
            self._on_connection()
        if self._script is not None and self._script.fileno() in ready:
            self._on_script_message(self._script)
        for output in self._outputs.keys() & ready:
            self._on_output(output)
        if self._input in ready:
            self._write_input()

    def _poll(self, connection: socket.socket | None) -> set[int]:
        """Return the descriptors at which something is to do."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if connection is not None:
            poll.register(connection, select.POLLIN | (select.POLLOUT if self._channel.has_output else 0))
        if self._script is not None:
            poll.register(self._script, select.POLLIN)
        for output in self._outputs if not self._channel.is_full else ():
            poll.register(output, select.POLLIN)
        if self._input is not None and self._pending:
            poll.register(self._input, select.POLLOUT)
        is_draining = self._result is not None and self._outputs
        return {number for number, _ in poll.poll(1000 * (_DRAIN_INTERVAL if is_draining else _POLL_INTERVAL))}

    def _check_times(self) -> None:
        now = time.monotonic()
        if self._channel.connection is not None and now - self._last_heard > channel.SILENCE_TIMEOUT:
            self._channel.detach()
        if self._channel.connection is not None:
            self._last_connected = now
        elif now - self._last_connected > channel.RESUME_TIMEOUT or not self._request:
            self._give_up()

    def _give_up(self) -> None:
        """Have process 1 end the script of a client that stays away."""
        if self._script is None:
            self._is_over = True
            return
        with contextlib.suppress(OSError):  # process 1 has closed the connection
            self._script.shutdown(socket.SHUT_WR)

    # ---- the client ----

    def _on_connection(self) -> None:
        self._channel.write()
        try:
            frames = self._channel.read()
        except channel.Damaged:  # whoever sent that is no client: another connection may replace this one
            return
        for kind, data in frames:
            if kind == channel.RUN:
                self._begin(json.loads(data))
            elif kind == channel.ARCHIVE:
                self._store(data)
            elif kind == channel.INPUT:
                self._pending += data
                self._input_ends = self._input_ends or not data
                self._write_input()
            elif kind == channel.SIGNAL:
                self._signal(int(data))
        self._last_heard = time.monotonic()
        if len(self._pending) <= _MAX_INPUT:
            self._channel.acknowledge()
        self._start_if_complete()

    def _begin(self, request: dict[str, Any]) -> None:
        """Take a request; refuse an archive for which the pod has no room, before any of it is kept."""
        self._request = request
        if self._result is not None:  # a signal has ended the script before
            return
        try:
            self._folder.begin(request["archive"])
        except NoRoom:
            self._finish({"refused": "the pod has no room for the script's folder"})
        except OSError as failure:
            self._fail(failure)

    def _store(self, data: bytes) -> None:
        """Keep a part of the archive, unless the script has ended."""
        try:
            if self._result is None:
                self._folder.store(data)
        except OSError as failure:
            self._fail(failure)

    def _fail(self, failure: OSError) -> None:
        self._finish({"error": f"its pod can't store its files: {failure.strerror}"})

    def _signal(self, number: int) -> None:
        if self._script is not None:
            with contextlib.suppress(OSError):
                ipc.send(self._script, {"signal": number})
        elif self._result is None:  # the script has not begun
            self._result = {"exit": -number}

    def _start_if_complete(self) -> None:
        """Start the script once its archive has arrived."""
        try:
            archive = self._folder.take_archive()
        except OSError as failure:
            self._fail(failure)
            return
        if archive is not None and self._result is None:  # else it has just failed, or a signal has ended the script
            self._start(self._folder.environment(archive, self._request["environment"]))

    def _start(self, environment: dict[str, str]) -> None:
        """Ask process 1 to fork the script, in a folder of its own."""
        self._script, theirs = socket.socketpair()
        output, output_end = os.pipe()
        error, error_end = os.pipe()
        source, self._input = os.pipe() if self._request["stdin"] else (os.open(os.devnull, os.O_RDONLY), None)
        if self._input is not None:
            os.set_blocking(self._input, False)
        self._outputs = {output: channel.OUTPUT, error: channel.ERROR}
        message = {
            "name": self._folder.path.name, "progress": str(self._folder.progress), "umask": processes.umask(),
            "arguments": self._request["arguments"], "folder": str(self._folder.files), "environment": environment,
        }  # fmt: skip
        ends = [theirs.detach(), source, output_end, error_end]
        ipc.send(self._control, message, ends)
        for descriptor in ends:
            os.close(descriptor)
        self._write_input()

    # ---- the script ----

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

    def _on_output(self, output: int) -> None:
        block = os.read(output, _BLOCK)
        kind = self._outputs[output]
        if block:
            self._channel.send(kind, block)
            if kind != channel.FILES:
                self._log.add(block, is_error=kind == channel.ERROR)
            return
        os.close(output)
        del self._outputs[output]
        if kind == channel.FILES:
            self._channel.send(channel.FILES)

    def _on_script_message(self, script: socket.socket) -> None:
        try:
            received = ipc.receive(script)
        except OSError:
            received = None
        script.close()
        self._script = None
        self._finish(received[0] if received else {"error": "the process that runs scripts ended"})

    def _on_control(self) -> None:
        received = ipc.receive(self._control)
        if received is None:  # process 1 has ended
            self._is_over = True
            return
        message, descriptors = received
        if "attach" in message:
            self.attach(socket.socket(fileno=descriptors[0]), message["attach"])
        elif "begun" in message:
            self._channel.send(channel.BEGUN)
        elif "ending" in message:
            self._ends_with.add(message["ending"])
            if self._script is None:  # else process 1 interrupts the script
                self._signal(signal.SIGINT)
        elif "refused" in message and self._script is not None:
            self._script.close()
            self._script = None
            self._finish(message)

    # ---- the end ----

    def _finish(self, result: dict[str, Any]) -> None:
        self._result = result
        self._drain_until = time.monotonic() + _DRAIN_TIMEOUT
        processes.kill_marked(naming.SHARED_POD, self._folder.path.name)  # those that the script has left behind

    def _check_end(self) -> None:
        """Send the end of the script after its output, then its files; end this process once the client has all."""
        if self._result is None:
            return
        if not self._sent_end:
            if self._channel.is_full:
                self._drain_until = time.monotonic() + _DRAIN_TIMEOUT
            if self._outputs and time.monotonic() < self._drain_until:
                return
            self._sent_end = True
            was_killed = self._result.get("exit") == -signal.SIGKILL
            is_oom = was_killed and processes.count_oom_kills(_MEMORY_EVENTS) > self._memory_kills
            code, pod_ends = self._result.get("exit"), "pod" in self._ends_with
            paths = self._request.get("downloads") if code is not None and not pod_ends else ()
            more = {
                "note": self._folder.note(), "since": self._since, "pod_ends": pod_ends, "out_of_memory": is_oom,
                "files": bool(paths), "stopped": "script" in self._ends_with,
            }  # fmt: skip
            self._channel.send_json(channel.END, {**self._result, **more})
            self._log.end(1 if code is None else code if code >= 0 else 128 - code, self._folder.note())
            while self._outputs:
                os.close(self._outputs.popitem()[0])
            if paths:
                self._outputs = {left_files.pack(paths, self._folder.files): channel.FILES}
        self._is_over = self._is_over or (not self._outputs and self._channel.is_acknowledged)
