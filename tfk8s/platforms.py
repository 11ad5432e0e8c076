"""The systems that the command line runs on: what only some of them have, and the errors for what needs one of them."""

from __future__ import annotations

import signal
import sys

from tfk8s.errors import InvalidInput

# The signals that end a command. Windows has no SIGHUP.
ENDING_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
if sys.platform != "win32":
    ENDING_SIGNALS += (signal.SIGHUP,)
# The numbers of signals that a script in a pod may get. They are those of Linux, and Windows does not name them.
SIGHUP, SIGKILL, SIGPIPE = 1, 9, 13

# Windows waits for sockets only: not for a pipe, a terminal or a file.
POLLS_FILES = sys.platform != "win32"

_NAMES = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
_WSL = "in WSL, or " if sys.platform == "win32" else ""


def name() -> str:
    """Return the name of this system, for users."""
    return _NAMES.get(sys.platform, sys.platform)


def in_container() -> str:
    """Return how to run tfk8s on Linux on this machine, as words after "run tfk8s"."""
    return f"{_WSL}in a container: docker run -it -v .:/work -w /work python:3.13 bash, then pip install 'tfk8s[local]'"


def require_linux(what: str, help: str = "") -> None:  # noqa: A002 - as errors have it
    """Check that this system is Linux.

    Args:
        what: what needs Linux, as the subject of a sentence: a plural.
        help: what else to do; default: run tfk8s in a container.

    Raises:
        InvalidInput: this system is not Linux.
    """
    if sys.platform != "linux":
        raise InvalidInput(f"{what} need Linux, not {name()}", help=help or f"run tfk8s {in_container()}")


def require_pipes(what: str, help: str = "") -> None:  # noqa: A002
    """Check that this system can wait for pipes, as Linux and macOS can; arguments and error as `require_linux`."""
    if not POLLS_FILES:
        require_linux(what, help)


def raise_signal_later(number: int, seconds: float) -> None:
    """Send a signal to this process after `seconds`."""
    if sys.platform == "win32":
        import threading

        threading.Timer(seconds, signal.raise_signal, [number]).start()
    else:
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
        signal.setitimer(signal.ITIMER_REAL, seconds)
