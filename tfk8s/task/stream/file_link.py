"""The process beside process 1 of a program's pod that sends the files which the program leaves.

Standard library only: this file runs in pods.
"""

from __future__ import annotations

import signal
import socket
import sys

from tfk8s.task import ipc
from tfk8s.task.stream import channel, pod_link
from tfk8s.task.stream.pod_link import PodLink

_DELETED = 128 + signal.SIGTERM


def main(arguments: list[str]) -> int:
    """Serve the stream until the client has the files, or for `channel.CLIENT_TIMEOUT` after the program's end.

    Args:
        arguments: the descriptor to process 1, and the files.
    """
    descriptor, *paths = arguments
    for number in (signal.SIGINT, signal.SIGHUP):  # meant for the program
        signal.signal(number, signal.SIG_IGN)
    link = PodLink(pod_link.listen(), None, None)
    link.start()
    with socket.socket(fileno=int(descriptor)) as process_1:  # whose end is that of the wait
        received = ipc.receive(process_1)
        if received is None:  # the pod was deleted
            link.end(pod_link.end({"exit": _DELETED}, note="", pod_ends=True), ())
        elif not link.end(pod_link.end({"exit": received[0]["exit"]}, note="", files=True), paths):
            limit = f"within {channel.CLIENT_TIMEOUT:g} s"
            sys.stderr.write(f"tfk8s: nobody copied the program's files {limit}: they are lost with the pod\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
