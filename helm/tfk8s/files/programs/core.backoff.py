"""The pauses before restarts. Standard library only: this file also runs in pods."""

from __future__ import annotations

_FIRST, _MAX = 1.0, 30.0  # seconds
_RESET = 60.0  # seconds that a process has to run, so that its next restart needs no pause


class Backoff:
    """The pauses before restarts: none, then 1, 2, 4 … 30 seconds."""

    def __init__(self) -> None:
        self._next = 0.0

    def pause(self, ran: float) -> float:
        """Return the pause before the next restart, in seconds.

        Args:
            ran: the seconds that the process ran. After more than a minute, the pauses begin from none again.
        """
        if ran > _RESET:
            self._next = 0.0
        pause, self._next = self._next, min(max(_FIRST, 2 * self._next), _MAX)
        return pause
