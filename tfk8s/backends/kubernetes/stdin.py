"""Sends this process' standard input to a script in a pod."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import stat
from collections.abc import Callable, Iterator

import websocket

from tfk8s.backends.kubernetes import streams
from tfk8s.backends.kubernetes.client import Client
from tfk8s.errors import Tfk8sError

_BLOCK = 1 << 16


def read_blocks(descriptor: int = 0) -> Iterator[bytes] | None:
    """Return the blocks of standard input until its end; None if there is no input.

    A terminal, /dev/null, a closed descriptor, and an ended file or pipe are no input. The blocks are read from the
    descriptor, because a thread in a buffered read would keep Python from ending.
    """
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISCHR(kind):
            return None
        first = os.read(descriptor, _BLOCK) if select.select([descriptor], [], [], 0)[0] else None
    except OSError:
        return None
    if first == b"":
        return None
    return itertools.chain([first] if first else [], iter(lambda: os.read(descriptor, _BLOCK), b""))


def send(
    client: Client, namespace: str, pod: str, blocks: Iterator[bytes], on_failure: Callable[[Tfk8sError], None]
) -> None:
    """Send blocks to a pod's standard input, and then close it. It is also closed when this process ends.

    Args:
        client: the API server.
        namespace: the pod's.
        pod: the pod's name.
        blocks: the input.
        on_failure: called if the pod can't be attached to, because the script would wait for its input for ever.
    """
    try:
        stream = streams.attach(client, namespace, pod)
    except Tfk8sError as error:
        on_failure(error)
        return
    # A failure ends the script's input: the script ended, the connection broke, or standard input can't be read.
    with contextlib.closing(stream), contextlib.suppress(OSError, websocket.WebSocketException):
        for block in blocks:
            streams.send(stream, block)
