"""The leases of clusters on this machine, as a `run` holds them: connections to their supervisors."""

from __future__ import annotations

import socket

from tfk8s.backends.local import state, supervisor_client


class HeldLeases:
    """The connections by which this process holds leases, by the cluster's name. The kernel closes them at its end."""

    def __init__(self) -> None:
        self._connections: dict[str, socket.socket] = {}

    def hold(self, name: str, connection: socket.socket | None) -> None:
        """Keep a connection that holds the lease of a cluster; None holds nothing."""
        self.close(name)
        if connection:
            self._connections[name] = connection

    def close(self, name: str) -> None:
        """Close the connection that holds the lease of a cluster, if there is a connection."""
        if connection := self._connections.pop(name, None):
            connection.close()

    def holds(self, name: str) -> bool:
        """Return whether this process holds the lease of a cluster."""
        return name in self._connections

    def release(self, name: str) -> bool:
        """Close the connection if others hold the lease, too; return whether they do."""
        try:
            is_shared = self.holds(name) and supervisor_client.observe(state.folder(name)).holders > 1
        except supervisor_client.SupervisorGone:  # and nobody's lease is left
            return False
        if is_shared:
            self.close(name)
        return is_shared
