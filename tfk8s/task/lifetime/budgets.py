"""The disruption budgets that a cluster's own Job keeps. Standard library only: this file runs in pods."""

from __future__ import annotations

from collections.abc import Sequence

from tfk8s.core.lifetime import RemovableObject, may_drain
from tfk8s.task.lifetime.object_server import ObjectServer

_ALL, _NONE = "100%", 0


class Budgets:
    """Opens the disruption budgets of a cluster while the cluster idles, and closes them while the cluster is used.

    Args:
        items: the budgets of jobs that keep state.
    """

    def __init__(self, server: ObjectServer, items: Sequence[RemovableObject]) -> None:
        self._server, self._items = server, items
        self.are_open: bool | None = None  # unknown: another pod of the Job may have set them

    @property
    def are_kept(self) -> bool:
        """True if the Job keeps budgets."""
        return bool(self._items)

    def adjust(self, quiet: float) -> bool:
        """Open or close the budgets; return whether that changed them.

        Args:
            quiet: the seconds without a session and a session script.

        Raises:
            ApiFailure: the API server refuses, or does not answer.
        """
        is_open = may_drain(quiet)
        if is_open is self.are_open or not self._items:
            return False
        self.are_open = None
        for item in self._items:
            self._server.patch(item, {"spec": {"maxUnavailable": _ALL if is_open else _NONE}})
        self.are_open = is_open
        return True
