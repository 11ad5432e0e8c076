"""The frame `END` of a script in a warm pod."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from tfk8s.errors import ClusterError

_FLAGS = ("pod_ends", "out_of_memory", "files", "stopped")
_EXITS = range(-64, 256)  # the codes of processes, and signals


def parse(data: bytes) -> dict[str, Any]:
    """Return the frame `END`, which any program in the pod may have sent.

    Raises:
        ClusterError: the frame is no warm pod's.
    """
    with contextlib.suppress(ValueError, RecursionError):
        end = json.loads(data)
        if isinstance(end, dict) and ("refused" in end or _is_end(end)):
            return end
    raise damaged()


def _is_end(end: dict[str, Any]) -> bool:
    is_result = end.get("exit") in _EXITS if "exit" in end else isinstance(end.get("error"), str)
    are_known = isinstance(end.get("since"), int | float) and isinstance(end.get("note"), str)
    return is_result and are_known and all(isinstance(end.get(flag), bool) for flag in _FLAGS)


def damaged() -> ClusterError:
    """Return the error for what no warm pod sends."""
    return ClusterError(
        "lost sight of the script: its pod sent what no warm pod of tfk8s sends",
        help="`tfk8s submit --fresh` runs the script in a pod of its own",
    )
