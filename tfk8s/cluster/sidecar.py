"""A loopback address that leads to a cluster's master, carried by a process of its own.

Not by threads of the process whose sessions use it: TensorFlow's `Session.list_devices` keeps all of them from running
until it has its answer, which would never come.
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
from collections.abc import Callable, Sequence
from typing import IO

from tfk8s import polling
from tfk8s.backends.options import BackendOptions
from tfk8s.backends.select import choose
from tfk8s.cluster.forward_guard import ForwardGuard, Heard
from tfk8s.errors import ClusterError, Tfk8sError
from tfk8s.log import log
from tfk8s.sessions.forward import Forward

_START_SECONDS = 60.0
_END_SECONDS = 5.0


class Sidecar:
    """Listens from its creation until `close`, or until this process ends.

    Args:
        command: runs `main` of this module, as `command` returns it.

    Attributes:
        target: where sessions connect to, "grpc://127.0.0.1:PORT".
        news: a descriptor to read from, with lines on tasks that are lost and back, as `Losses.news`.

    Raises:
        ClusterError: it can't listen, or the cluster is not there.
    """

    def __init__(self, command: Sequence[str]) -> None:
        # In a session of its own, where Ctrl-C of a terminal does not reach it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        answers = polling.readable(self._process.stdout.fileno(), _START_SECONDS)
        self.target = self._process.stdout.readline().strip() if answers else ""
        self.news, told = os.pipe()
        work = (self._process.stdout, told)
        self._heard = threading.Thread(target=_tell_all, args=work, name="tfk8s-relay", daemon=True)
        self._heard.start()
        if not self.target.startswith("grpc://"):
            self.close()
            why = self.target or ("no reason given" if answers else f"nothing was said in {_START_SECONDS:g} s")
            raise ClusterError(f"sessions of this process can't reach the cluster: {why}")

    def end_calls(self, why: str) -> None:
        """End all calls that wait for an answer of the master's; TensorFlow raises AbortedError with these words."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it is gone, and the calls with it
            self._process.stdin.write(json.dumps(why) + "\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Stop listening, and end what is connected."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it is stopped by a signal
            self._process.kill()
            self._process.wait()
        self._heard.join()
        os.close(self.news)


def _tell_all(lines: IO[str], told: int) -> None:
    """Pass on what the process says: changes of tasks, and messages for the user."""
    with lines, open(told, "wb", buffering=0) as news:
        for line in lines:
            said = json.loads(line)
            if isinstance(said, str):
                log.warning("%s", said)
            else:
                news.write(line.encode())


def command(where: BackendOptions, name: str) -> list[str]:
    """Return the command that carries connections to the master of a cluster."""
    from tfk8s.backends.local import interpreter

    return interpreter.command(sys.executable, "tfk8s.cluster.sidecar", json.dumps(dataclasses.asdict(where)), name)


def main(where: str, name: str) -> None:
    """Carry connections until the end of standard input, which is its owner's.

    It says where it listens, or why it can't; then, a line of JSON each, what breaks (words) and which tasks are lost
    and back. It hears for which reason to end the calls that are under way, likewise.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say = functools.partial(print, flush=True)

    def tell(thing: object) -> None:
        say(json.dumps(thing))

    try:
        backend = choose(BackendOptions(**json.loads(where)))
        master = backend.observe(name).master
        dial = functools.partial(backend.dial, name, master)
        with Forward(dial, tell=tell) as forward, ForwardGuard(backend, name, forward, _as_change(tell)):
            say(forward.target)
            for line in sys.stdin:
                forward.end_calls(json.loads(line))
    except Tfk8sError as error:
        say(" ".join(str(error).split()))  # one line, whatever an API server's answer was


def _as_change(tell: Callable[[object], None]) -> Heard:
    return lambda task, reason, anew: tell({"task": task, "reason": reason, "anew": anew})


if __name__ == "__main__":
    main(*sys.argv[1:])
