"""Words for the user from what runs in the user's own process: on standard error, where nobody has other wishes."""

from __future__ import annotations

import logging

_LOG = logging.getLogger("tfk8s")


def tell(text: str) -> None:
    """Tell the user what goes on."""
    say(f"tfk8s: {text}")


def say(line: str) -> None:
    """Write a line that says itself whose it is."""
    _LOG.warning("%s", line)
