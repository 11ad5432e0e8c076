"""TCP's keep-alive for requests: a quiet watch is broken some 8 s after the network has gone."""

from __future__ import annotations

import socket

import urllib3

_SECONDS = {"TCP_KEEPIDLE": 4, "TCP_KEEPALIVE": 4, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 4}  # macOS has the second
SOCKET_OPTIONS = (
    *urllib3.connection.HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _SECONDS.items() if hasattr(socket, name)),
)
