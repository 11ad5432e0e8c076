"""Passes this process' standard input on to a script in a pod."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import stat
import threading
from collections.abc import Callable, Iterator

import websocket

from tfk8s.backends.kubernetes import streams
from tfk8s.backends.kubernetes.client import Client
from tfk8s.errors import Tfk8sError

_STDIN = 0
_BLOCK = 1 << 16


def waiting() -> Iterator[bytes] | None:
    """Return the blocks of standard input to its end; None where there is nothing to pass on.

    That is so for a terminal, /dev/null, and what is closed or already at its end. They are read from the
    descriptor: a thread in a buffered read would keep Python from ending.
    """
    try:
        kind = os.fstat(_STDIN).st_mode
        if stat.S_ISCHR(kind):
            return None
        first = os.read(_STDIN, _BLOCK) if select.select([_STDIN], [], [], 0)[0] else None
    except OSError:
        return None
    if first == b"":
        return None
    return itertools.chain([first] if first else [], iter(lambda: os.read(_STDIN, _BLOCK), b""))


class PassedOn(threading.Thread):
    """Sends blocks to a pod's standard input, and then its end, which also comes when this process ends.

    Args:
        client: the API server.
        namespace, pod: which.
        blocks: what to send.
        failed: told when the pod can't be attached to; the script would wait for its input for ever.
    """

    def __init__(
        self, client: Client, namespace: str, pod: str, blocks: Iterator[bytes], failed: Callable[[Tfk8sError], None]
    ) -> None:
        super().__init__(name="tfk8s-stdin", daemon=True)
        self._client, self._namespace, self._pod, self._blocks, self._failed = client, namespace, pod, blocks, failed

    def run(self) -> None:
        """Send all."""
        try:
            stream = streams.attach(self._client, self._namespace, self._pod)
        except Tfk8sError as error:
            self._failed(error)
            return
        # What breaks is the end of the script's input: it has ended itself, or its connection, or what is read here.
        with contextlib.closing(stream), contextlib.suppress(OSError, websocket.WebSocketException):
            for block in self._blocks:
                streams.send(stream, block)
