"""Serves TensorBoard for one folder of event files: in a pod beside the tasks, or on this machine.

The page has a secret path, `TFK8S_TOKEN`. So other users of a machine can't open the page, and other pages in the
user's browser can't read it. Standard library and TensorBoard only: this file also runs in pods.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tfk8s import polling
from tfk8s.sessions import runner
from tfk8s.sessions.pod import entrypoint

PORT = 6006  # TensorBoard's own default
ADDRESS = "127.0.0.1"
NOT_INSTALLED = 4  # an exit code
_UNUSED = 1
IDLE_TIMEOUT = 60.0  # the command asks every few seconds
_POLL_INTERVAL = 1.0
_SEARCH_TIMEOUT = 2.0


class LastRequest:
    """The time of the last request to a page.

    Args:
        clock: for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._time = clock()

    @property
    def age(self) -> float:
        """The seconds since the last request, or since the start."""
        return self._clock() - self._time

    def note(self, application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        """Return a WSGI application that does the same, and notes the time of each request."""

        def noting(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            self._time = self._clock()
            return application(environment, start_response)

        return noting


def has_event_files(folder: str, timeout: float = _SEARCH_TIMEOUT) -> bool:
    """Return whether a file below a folder has a name by which TensorBoard knows event files.

    Args:
        folder: the folder.
        timeout: the seconds after which a large folder counts as one with event files.
    """
    end = time.monotonic() + timeout
    return any("tfevents" in name or time.monotonic() > end for _, _, names in os.walk(folder) for name in names)


def serve(folder: str, port: int, token: str) -> int:
    """Serve the page until nobody asks for it any more; return the exit code.

    Args:
        folder: TensorBoard's `--logdir`.
        port: a loopback port.
        token: the page's path.
    """
    from tensorboard import program

    last = LastRequest()
    try:  # TensorBoard imports its parts when they are used
        page = program.TensorBoard(server_class=lambda app, flags: program.WerkzeugServer(last.note(app), flags))
    except ModuleNotFoundError as error:
        # TensorBoard 2.15 needs this module of setuptools, which setuptools 81 no longer has.
        package = "'setuptools<81'" if error.name == "pkg_resources" else error.name
        sys.stderr.write(f"error: TensorBoard needs the module {error.name}: pip install {package}\n")
        return 1
    # TensorBoard's faster reader is a process that serves the events to every user of the machine.
    page.configure(logdir=folder, host=ADDRESS, port=port, path_prefix=f"/{token}", load_fast="false")
    page.launch()
    for _ in polling.every(_POLL_INTERVAL):
        if last.age > IDLE_TIMEOUT:
            break
    sys.stderr.write(f"error: nobody asked for the page of TensorBoard within {IDLE_TIMEOUT:g} s\n")
    return _UNUSED


def main(arguments: Sequence[str]) -> int:
    """Install TensorBoard if that was asked for, and serve the page; return the exit code."""
    parser = argparse.ArgumentParser(prog="tfk8s.sessions.pod.tensorboard", description="Serve TensorBoard.")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("folder")
    options = parser.parse_args(arguments)
    if os.getpid() == 1:  # the kernel ignores signals for which process 1 of a container has no handler
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if requirements := os.environ.get("TFK8S_REQUIREMENTS"):
        entrypoint.install(requirements)
    if importlib.util.find_spec("tensorboard") is None:
        return NOT_INSTALLED
    runner.prepare_import()  # TensorBoard imports it where there is one
    if not has_event_files(options.folder):
        where = Path(options.folder)
        sys.stderr.write(f"tfk8s: there are no event files below {where} yet: TensorBoard looks again every 5 s\n")
    return serve(options.folder, options.port, os.environ.pop("TFK8S_TOKEN"))


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # threads of TensorBoard and TensorFlow may run
