"""A terminal, for what is shown there alone."""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """A terminal that remembers what it was sent; it has no size."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1
