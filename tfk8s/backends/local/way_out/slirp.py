"""slirp4netns, which gives a network namespace a way out: all protocols over IPv4, and names.

It runs outside of the namespace, has the device `tap0` inside, and opens ordinary connections of this user.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess

from tfk8s import polling

PROGRAM = "slirp4netns"
RESOLVER = "10.0.2.3"  # the address at which slirp4netns answers for this machine's own resolver
_DEVICE = "/dev/net/tun"
_START_TIMEOUT = 3.0


def is_installed() -> bool:
    """Return whether the program and its device are here. Only a start shows whether it works."""
    return shutil.which(PROGRAM) is not None and os.access(_DEVICE, os.R_OK | os.W_OK)


class Slirp:
    """A running slirp4netns. It ends with this process, by the pipe that both hold.

    Args:
        pid: a process in the network namespace.

    Raises:
        OSError: it does not start, or does not get ready.
    """

    def __init__(self, pid: int) -> None:
        ready, notify = os.pipe()
        held, self._hold = os.pipe()
        command = [
            PROGRAM, "--configure", "--mtu=65520", "--disable-host-loopback",
            f"--ready-fd={notify}", f"--exit-fd={held}", str(pid), "tap0",
        ]  # fmt: skip
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[notify, held])
        finally:
            os.close(notify)
            os.close(held)
        try:
            if not polling.readable(ready, _START_TIMEOUT) or os.read(ready, 1) != b"1":
                self.end()
                raise OSError(f"{PROGRAM} does not get ready")
        finally:
            os.close(ready)
        self.ended = os.pidfd_open(self._process.pid)

    def end(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        for descriptor in (self._hold, getattr(self, "ended", None)):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
