"""The process of a warm pod for one connection of `submit`. Standard library only: this file runs in pods."""

from __future__ import annotations

import contextlib
import signal
import socket
from pathlib import Path

from tfk8s.sessions.forks import processes
from tfk8s.sessions.warm import script_log
from tfk8s.sessions.warm.script_folder import ScriptFolder
from tfk8s.sessions.warm.script_relay import Relay
from tfk8s.task import ipc
from tfk8s.task.stream import channel

_CONNECTION, _CONTROL = 3, 4  # descriptors


def fork(connection: socket.socket, control: socket.socket) -> int:
    """Serve a connection in a fork of process 1, until its script has ended; return the fork's id."""

    def run() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        serve(socket.socket(fileno=_CONNECTION), socket.socket(fileno=_CONTROL), Path.cwd())

    return processes.run_in_fork(run, [0, 1, 2, connection.fileno(), control.fileno()])


def serve(connection: socket.socket, control: socket.socket, base: Path) -> None:
    """Serve a connection, or hand it on to the relay of its script. A connection may ask for a log, or a script's end.

    Args:
        connection: the connection.
        control: the socket to process 1.
        base: the folder for the folders of scripts.
    """
    try:
        hello = channel.hear_hello(connection)
    except OSError:  # not a client, or it is gone
        return
    if "log" in hello:
        script_log.serve(connection, ScriptFolder(base / hello["script"]).log, hello["log"])
        return
    greeting = {"hello": hello["script"], "received": hello["received"], "is_new": hello["is_new"]}
    ipc.send(control, {**greeting, "stop": hello.get("stop", False)}, [connection.fileno()])
    received = ipc.receive(control)
    answer = received[0]["answer"] if received else "gone"
    with contextlib.suppress(OSError):
        if answer in ("gone", "ends"):
            channel.say_hello(connection, {answer: True})
        elif answer == "new":
            relay = Relay(control, base / hello["script"])
            relay.attach(connection, 0)
            relay.run()
