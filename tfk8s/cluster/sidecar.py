"""A process that forwards a loopback address to a cluster's master, for the sessions of another process.

Threads of that process can't do it. TensorFlow's `Session.list_devices` stops all threads until the answer is there,
which then would never come.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from tfk8s import polling
from tfk8s.backends.elastic_forward import forward_to_task
from tfk8s.backends.options import BackendOptions
from tfk8s.backends.select import choose
from tfk8s.cluster.forward_guard import ForwardGuard
from tfk8s.errors import ClusterError, Tfk8sError
from tfk8s.log import log
from tfk8s.sessions.task_events import TaskEvent

_START_TIMEOUT = 60.0
_END_TIMEOUT = 5.0


class Sidecar:
    """Forwards from its creation until `close`, or until this process ends.

    Args:
        command: runs `main` of this module, as `command` returns it.
        end_timeout: how many seconds to wait for the process to end, before it is killed.

    Attributes:
        target: the address for sessions, "grpc://127.0.0.1:PORT".
        events: a descriptor to read from, with a line for each `TaskEvent`.
        pid: the process.

    Raises:
        ClusterError: the process can't listen, or the cluster does not exist.
    """

    def __init__(self, command: Sequence[str], end_timeout: float = _END_TIMEOUT) -> None:
        self._end_timeout = end_timeout
        # The process leads another process session, which Ctrl-C of this terminal does not reach.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        answers = polling.readable(self._process.stdout.fileno(), _START_TIMEOUT)
        self.target = self._process.stdout.readline().strip() if answers else ""
        self.events, events_end = os.pipe()
        work = (self._process.stdout, events_end)
        self._reader = threading.Thread(target=_read_output, args=work, name="tfk8s-sidecar", daemon=True)
        self._reader.start()
        if not self.target.startswith("grpc://"):
            self.close()
            reason = self.target or ("no reason given" if answers else f"no answer in {_START_TIMEOUT:g} s")
            raise ClusterError(f"sessions of this process can't reach the cluster: {reason}")

    def abort_calls(self, reason: str) -> None:
        """Abort all calls that wait for an answer of the master; TensorFlow raises AbortedError with the reason."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the process is gone, and the calls with it
            self._process.stdin.write(json.dumps(reason) + "\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Stop listening, and end all connections."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(self._end_timeout)
        except subprocess.TimeoutExpired:  # the process is stopped by a signal
            self._process.kill()
            self._process.wait()
        self._reader.join()
        os.close(self.events)


def _read_output(lines: IO[str], events_end: int) -> None:
    """Pass on the lines of the process: events of tasks, and messages for the user."""
    with lines, open(events_end, "wb", buffering=0) as events:
        for line in lines:
            if isinstance(message := json.loads(line), str):
                log.warning("%s", message)
            else:
                events.write(line.encode())


def command(where: BackendOptions, name: str) -> list[str]:
    """Return the command that forwards connections to the master of a cluster."""
    from tfk8s.backends import interpreter

    return interpreter.command(sys.executable, "tfk8s.cluster.sidecar", json.dumps(dataclasses.asdict(where)), name)


def main(where: str, name: str) -> None:
    """Forward connections until the end of standard input, which the owner closes.

    The first line of standard output is the address, or the reason for a failure. Each later line is a message for the
    user, as a string of JSON, or a `TaskEvent`. Each line of standard input is a reason to abort the pending calls.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    write = functools.partial(print, flush=True)

    def report(event: TaskEvent) -> None:
        write(event.to_line().decode(), end="")

    try:
        backend = choose(BackendOptions(**json.loads(where)))
        with (
            forward_to_task(backend, backend.observe(name), lambda text: write(json.dumps(text))) as forward,
            ForwardGuard(backend, name, forward, report),
        ):
            write(forward.target)
            for line in sys.stdin:
                forward.abort_calls(json.loads(line))
    except Tfk8sError as error:
        write(" ".join(str(error).split()))  # one line, even if an API server's answer has several


if __name__ == "__main__":
    main(*sys.argv[1:])
