"""The lines that the cluster's own Job prints. Standard library only: this file runs in pods."""

from __future__ import annotations

import time


def say(text: str) -> None:
    """Print a line with the time."""
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}", flush=True)
