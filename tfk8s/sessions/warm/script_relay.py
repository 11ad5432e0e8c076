"""Copies between a script in a warm pod and `submit`: streams, signals, the end and files; makes the script's folder.

Another connection may replace one that breaks. The script ends if its client stays away, and nothing of the
script is left then. Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from tfk8s.core import naming
from tfk8s.sessions.forks import processes
from tfk8s.sessions.warm.script_folder import NoRoom, ScriptFolder
from tfk8s.sessions.warm.script_log import ScriptLog
from tfk8s.task import ipc
from tfk8s.task.stream import channel
from tfk8s.task.stream.client_link import POLL_INTERVAL, ClientLink

_DRAIN_TIMEOUT = 1.0  # a process that the script left behind may hold its streams open
_BLOCK = 1 << 16
_MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")  # cgroups(7)
_DRAIN_INTERVAL = 0.05


class Relay(ClientLink):
    """Copies between a script in a warm pod and its client.

    Args:
        control: the socket to process 1.
        folder: the script's own folder, which is made and removed.
    """

    def __init__(self, control: socket.socket, folder: Path) -> None:
        super().__init__(control)
        self._folder = ScriptFolder(folder)
        self._log = ScriptLog(self._folder.log)
        self._request: dict[str, Any] = {}
        self._since, self._memory_kills = time.time(), processes.count_oom_kills(_MEMORY_EVENTS)
        self._script: socket.socket | None = None  # the connection to the script's owner, process 1
        self._result: dict[str, Any] | None = None  # once the script has ended
        self._drain_until = 0.0
        self._sent_end = False
        self._ends_with: set[str] = set()  # "pod" if the pod is deleted, "script" after `tfk8s stop`

    def run(self) -> None:
        """Copy until the script has ended and its client knows that, or stays away."""
        try:
            while not self._is_over:
                is_draining = self._result is not None and self._outputs
                others = [] if self._script is None else [self._script.fileno()]
                ready = self._wait(_DRAIN_INTERVAL if is_draining else POLL_INTERVAL, others)
                if self._script is not None and ready:
                    self._on_script_message(self._script)
                self._start_if_complete()
                self._check_times()
                self._check_end()
        finally:
            self._channel.detach()
            self._folder.remove()

    def _check_times(self) -> None:
        if self._absence() > channel.RESUME_TIMEOUT or not (self._channel.connection or self._request):
            self._give_up()

    def _give_up(self) -> None:
        """Have process 1 end the script of a client that stays away."""
        if self._script is None:
            self._is_over = True
            return
        with contextlib.suppress(OSError):  # process 1 has closed the connection
            self._script.shutdown(socket.SHUT_WR)

    # ---- the client ----

    def _take(self, kind: int, data: bytes) -> None:
        if kind == channel.RUN:
            self._begin(json.loads(data))
        elif kind == channel.ARCHIVE:
            self._store(data)
        elif kind == channel.SIGNAL:
            self._signal(int(data))

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

    def _on_output(self, output: int) -> None:
        block, kind = os.read(output, _BLOCK), self._outputs[output]
        if block or kind == channel.FILES:
            self._channel.send(kind, block)
        if block and kind != channel.FILES:
            self._log.add(block, is_error=kind == channel.ERROR)
        if not block:
            os.close(output)
            del self._outputs[output]

    def _on_script_message(self, script: socket.socket) -> None:
        try:
            received = ipc.receive(script)
        except OSError:
            received = None
        script.close()
        self._script = None
        self._finish(received[0] if received else {"error": "the process that runs scripts ended"})

    def _on_message(self, message: ipc.Message) -> None:
        if "begun" in message:
            self._channel.send(channel.BEGUN)
        elif "ending" in message:
            self._ends_with.add(message["ending"])
            if self._script is None:  # else process 1 interrupts the script
                self._signal(signal.SIGINT)
        elif "refused" in message and self._script is not None:  # comes before the end of the script's connection
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
                self._send_files(paths, self._folder.files)
        self._is_over = self._is_over or (not self._outputs and self._channel.is_acknowledged)
