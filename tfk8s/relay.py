"""A loopback address that leads to a cluster's master, carried by a process of its own.

Not by threads of the process whose sessions use it: TensorFlow's `Session.list_devices` keeps all of them from running
until it has its answer, which would never come.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from tfk8s import waiting
from tfk8s.backends.choice import choose
from tfk8s.errors import ClusterError, Tfk8sError
from tfk8s.forward import Forward, Tell
from tfk8s.where import Where

_START_SECONDS = 60.0
_END_SECONDS = 5.0


class Relay:
    """Listens from its creation until `close`, or until this process ends.

    Args:
        command: runs `main` of this module, as `command` returns it.
        tell: hears, on another thread, of connections that break, as `Forward` takes it.

    Attributes:
        target: where sessions connect to, "grpc://127.0.0.1:PORT".

    Raises:
        ClusterError: it can't listen, or the cluster is not there.
    """

    def __init__(self, command: Sequence[str], tell: Tell) -> None:
        # In a session of its own, where Ctrl-C of a terminal does not reach it.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        answers = waiting.readable(self._process.stdout.fileno(), _START_SECONDS)
        self.target = self._process.stdout.readline().strip() if answers else ""
        work = (self._process.stdout, tell)
        self._heard = threading.Thread(target=_tell_all, args=work, name="tfk8s-relay", daemon=True)
        self._heard.start()
        if not self.target.startswith("grpc://"):
            self.close()
            why = self.target or ("no reason given" if answers else f"nothing was said in {_START_SECONDS:g} s")
            raise ClusterError(f"sessions of this process can't reach the cluster: {why}")

    def close(self) -> None:
        """Stop listening, and end what is connected."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it is stopped by a signal
            self._process.kill()
            self._process.wait()
        self._heard.join()


def _tell_all(lines: IO[str], tell: Tell) -> None:
    with lines:
        for line in lines:
            tell(line.rstrip("\n"))


def command(where: Where, name: str) -> list[str]:
    """Return the command that carries connections to the master of a cluster."""
    from tfk8s.backends.local import launch

    return launch.command(sys.executable, "tfk8s.relay", json.dumps(dataclasses.asdict(where)), name)


def main(where: str, name: str) -> None:
    """Say where it listens, then what breaks, a line each; until the end of standard input, which is its owner's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say = functools.partial(print, flush=True)
    try:
        backend = choose(Where(**json.loads(where)))
        master = backend.observe(name).master
        with Forward(functools.partial(backend.dial, name, master), tell=say) as forward:
            say(forward.target)
            sys.stdin.read()
    except Tfk8sError as error:
        say(error)


if __name__ == "__main__":
    main(*sys.argv[1:])
