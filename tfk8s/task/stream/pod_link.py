"""The stream between a script in a pod of its own and `submit`: the folder, input, an interrupt, the end, and files.

Process 1 serves the stream on a thread, at the pod's loopback address alone. The script needs no client: it goes on
without one, and its output is the container's log. Programs have the end and the files of the stream: see
`file_link`. Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfk8s.task import ipc
from tfk8s.task.stream import channel
from tfk8s.task.stream.client_link import ClientLink

END_TIMEOUT = 5.0  # for the client to hear of the script's end
_STEP = 0.1


def listen() -> socket.socket:
    """Return the socket for the client, at the loopback address alone. No client comes if the port is another's."""
    try:
        return socket.create_server(("127.0.0.1", channel.PORT))
    except OSError:  # the pod has its node's network
        return socket.create_server(("127.0.0.1", 0))


class PodLink(ClientLink):
    """Serves the client of a script on a thread, from `start` on.

    Args:
        listener: the socket for connections.
        source: the descriptor to which the script's input is written; None without input.
        archive: the file for the script's folder, if the folder comes over the stream.
    """

    def __init__(self, listener: socket.socket, source: int | None, archive: Path | None) -> None:
        control, self._process_1 = socket.socketpair()
        super().__init__(control)
        self._listener, self._input, self._archive = listener, source, archive
        if source is not None:
            os.set_blocking(source, False)
        self._sending, self._client = threading.Lock(), ""
        self._is_known = False  # a client has connected
        self._is_cut = False  # the script has a part of its input alone, which the client must learn
        self._paths: Sequence[str] = ()
        self._has_ended = False
        self._ended_at = 0.0
        self._thread = threading.Thread(target=self._run, name="tfk8s-client", daemon=True)

    def start(self) -> None:
        """Begin to accept connections."""
        threading.Thread(target=self._accept, name="tfk8s-accept", daemon=True).start()
        self._thread.start()

    def end(self, result: dict[str, Any], paths: Sequence[str]) -> bool:
        """Tell the client how the script has ended, and send files; return whether the client has received all.

        Args:
            result: the frame `END`.
            paths: the files and folders, for which the client has `channel.CLIENT_TIMEOUT`; else it has `END_TIMEOUT`.
        """
        self._tell({"end": result, "paths": list(paths)})
        self._thread.join()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        for one in (self._listener, self._control, self._process_1):
            one.close()
        return self._channel.is_acknowledged and self._is_known

    # ---- connections ----

    def _tell(self, message: ipc.Message, descriptors: Sequence[int] = ()) -> None:
        with self._sending:
            ipc.send(self._process_1, message, descriptors)

    def _accept(self) -> None:
        while self._listener.fileno() >= 0:
            try:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._greet, args=(connection,), daemon=True).start()
            except (OSError, RuntimeError):  # no descriptor or thread is free
                threading.Event().wait(_STEP)

    def _greet(self, connection: socket.socket) -> None:
        """Hand a connection of the client to the other thread. Any program in the pod may connect."""
        with connection, contextlib.suppress(OSError):
            hello = channel.hear_hello(connection)
            name, received = hello.get("script"), hello.get("received")
            if not isinstance(name, str) or not isinstance(received, int):
                return
            with self._sending:
                self._client = self._client or name
            if name == self._client and not self._is_cut:
                self._tell({"attach": received}, [connection.fileno()])
            else:
                channel.say_hello(connection, {"gone": True})

    # ---- the thread ----

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._wait(_STEP if self._has_ended else 1.0)
                self._check_times()
        finally:
            self._channel.detach()

    def attach(self, connection: socket.socket, received: int) -> None:
        """Continue on this connection, whose peer has received so many frames."""
        self._is_known = True
        super().attach(connection, received)

    def _check_times(self) -> None:
        absence = self._absence()
        if absence > channel.CLIENT_TIMEOUT and self._input is not None and not self._input_ends:  # the client is gone
            self._is_cut = self._input_ends = True
            self._write_input()
        if self._has_ended:
            is_done = self._is_known and not self._outputs and self._channel.is_acknowledged
            self._is_over = is_done or self._is_late(absence, time.monotonic() - self._ended_at)

    def _is_late(self, absence: float, waited: float) -> bool:
        """Return whether the script's end waits for the client no longer. The log has the end, too, but not the files.

        Args:
            absence: the seconds without a client.
            waited: the seconds since the end.
        """
        if self._paths:
            return min(absence, waited) > channel.CLIENT_TIMEOUT
        comes = not self._is_known and channel.CLIENT_VARIABLE in os.environ
        return waited > END_TIMEOUT or not (comes or self._channel.connection)

    def _take(self, kind: int, data: bytes) -> None:
        if kind == channel.ARCHIVE and self._archive is not None:
            self._store(self._archive, data)
        elif kind == channel.SIGNAL and not self._has_ended:
            os.kill(os.getpid(), signal.SIGINT)  # process 1 passes it on

    def _store(self, archive: Path, data: bytes) -> None:
        """Keep a part of the script's folder; an empty part is the end. The file appears when it is complete."""
        part = archive.with_name(f"{archive.name}.part")
        try:
            with part.open("ab") as file:
                file.write(data)
            if not data:
                part.rename(archive)
                self._archive = None
        except OSError as failure:
            self._archive = None
            self._channel.send_json(
                channel.END, end({"error": f"its pod can't store its files: {failure.strerror}"}, note="")
            )

    def _on_message(self, message: ipc.Message) -> None:
        self._has_ended, self._ended_at, self._paths = True, time.monotonic(), message["paths"]
        self._channel.send_json(channel.END, message["end"])
        if self._paths:
            self._send_files(self._paths, Path())


def end(result: dict[str, Any], *, note: str, pod_ends: bool = False, files: bool = False) -> dict[str, Any]:
    """Return the frame `END`, as of a warm pod."""
    flags = {"pod_ends": pod_ends, "out_of_memory": False, "files": files, "stopped": False}
    return {**result, "note": note, "since": 0.0, **flags}
