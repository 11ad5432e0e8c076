"""Binds the ports that this process opens to the loopback device, before they take a connection.

A socket that is bound to the device `lo` takes no connection from elsewhere, whatever its address (SO_BINDTODEVICE in
socket(7); needs no capability since Linux 5.7). Python's sockets are bound by their class, TensorFlow's by
`libraries.py`. Standard library only: any Python process of a cluster runs this file, also where ctypes is missing.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import types
from pathlib import Path

_DEVICE = b"lo\0"
_NAME_BYTES = 16  # of a device's name, IFNAMSIZ
_INTERNET = (socket.AF_INET, socket.AF_INET6)


def bind(descriptor: int) -> None:
    """Bind an open socket to the loopback device, unless it is no socket of the internet.

    Raises:
        OSError: the kernel refuses.
    """
    with socket.socket(fileno=os.dup(descriptor)) as stream:
        if stream.family not in _INTERNET:
            return
        # Linux lets only CAP_NET_RAW bind a socket a second time.
        if stream.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _NAME_BYTES) != _DEVICE:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, _DEVICE)


def bind_all() -> None:
    """Bind all sockets of this process that listen.

    Raises:
        OSError: the kernel refuses.
    """
    for entry in Path("/proc/self/fd").iterdir():
        try:
            with socket.socket(fileno=os.dup(int(entry.name))) as stream:
                listens = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError:  # no socket, or closed meanwhile
            continue
        if listens:
            bind(int(entry.name))


def patch_sockets() -> None:
    """Bind Python's sockets before they listen."""
    listen = socket.socket.listen

    def listen_on_loopback(self: socket.socket, *backlog: int) -> None:
        bind(self.fileno())
        listen(self, *backlog)

    setattr(socket.socket, "listen", listen_on_loopback)  # noqa: B010 - mypy takes methods for constant


def hook_libraries() -> int:
    """Bind the sockets of TensorFlow's libraries that are loaded; return the number of replaced calls of `listen`."""
    replaced: int = load("_tfk8s_libraries", Path(__file__).with_name("libraries.py")).hook(bind)
    return replaced


def load(name: str, path: Path) -> types.ModuleType:
    """Import a file as a module of this name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
