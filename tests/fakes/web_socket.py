"""A WebSocket of the API server that yields given messages."""

from __future__ import annotations

import types
from typing import Any


class Stream:
    """A stream that yields these messages, and records what it is sent."""

    sock = None

    def __init__(self, *messages: tuple[int, bytes], protocol: str = "v5.channel.k8s.io") -> None:
        self.messages, self.protocol = list(messages), protocol
        self.sent: list[bytes] = []
        self.closed = False

    def settimeout(self, seconds: float) -> None:
        pass

    def getheaders(self) -> dict[str, str]:
        return {"sec-websocket-protocol": self.protocol}

    def recv_data_frame(self, control: bool) -> tuple[int, Any]:
        assert control
        if not self.messages:
            raise ConnectionResetError("reset")
        operation, data = self.messages.pop(0)
        return operation, types.SimpleNamespace(data=data)

    def send_binary(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.closed = True


def client_that_opens(stream: object) -> Any:
    transport = types.SimpleNamespace(with_credentials=lambda *_: stream)
    return types.SimpleNamespace(transport=transport, url="https://h", context="c")
