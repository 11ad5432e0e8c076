"""The network namespace of a local cluster.

A TensorFlow server listens on every interface and runs any graph for anyone. So the tasks run in a network namespace
that has a loopback interface and no other. No process outside of the namespace can connect to `localhost:2222` in it.
Linux only (namespaces(7), user_namespaces(7)).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from tfk8s.errors import InvalidInput

try:
    import ctypes
except ImportError as missing:
    raise InvalidInput(
        f"clusters on this machine need Python's module ctypes, and {sys.executable} can't import it: {missing}",
        help="use a Python that was built with libffi, as those of Linux distributions are",
    ) from missing

CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
# The user namespace first, since it gives the right to the others. A cluster may have its own files (mounts.py).
_NAMESPACES = {"user": _CLONE_NEWUSER, "mnt": CLONE_NEWNS, "net": _CLONE_NEWNET}
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_RETRIES = Path("/proc/sys/net/ipv4/tcp_retries2")  # of this process' network namespace, see ip-sysctl in Linux' docs
_MAX_RETRIES = 6  # until TCP gives up what nobody acknowledges: 25 s; the default are 15, a quarter of an hour
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def enter(prepare: Callable[[], None] = lambda: None) -> None:
    """Move this process, which must have one thread, and its later children into a new network namespace.

    Root needs no user namespace, and keeps access to all files. Other users also get a user namespace in which they
    keep their id, and drop its capabilities.

    Args:
        prepare: is called inside, where this process may mount, before it drops capabilities.

    Raises:
        OSError: this machine does not allow namespaces.
    """
    if os.geteuid() == 0:
        try:
            call("unshare", _CLONE_NEWNET)
        except PermissionError:  # root of a container without CAP_SYS_ADMIN
            _enter_as_user(prepare)
        else:
            _prepare_network()
            prepare()
    else:
        _enter_as_user(prepare)


def join(pid: int) -> None:
    """Move this process, which must have one thread, into the namespaces of a process of the same user.

    Raises:
        OSError: this machine does not allow that.
    """
    folder = Path.cwd()
    with contextlib.ExitStack() as stack:
        others = {
            name: stack.enter_context(open(f"/proc/{pid}/ns/{name}"))
            for name in _NAMESPACES
            if not Path(f"/proc/{pid}/ns/{name}").samefile(f"/proc/self/ns/{name}")
        }
        for name, file in others.items():
            call("setns", file.fileno(), _NAMESPACES[name])
    if "mnt" in others:
        os.chdir(folder)  # the kernel has changed it to the root
    if "user" in others and os.geteuid() != 0:
        _drop_capabilities()


def call_where_mounts_are_allowed(prepare: Callable[[], None]) -> None:
    """Call a function that mounts, in this process, which must have one thread. Its network stays as it is.

    Raises:
        OSError: this machine does not allow namespaces.
    """
    if os.geteuid() == 0:
        prepare()
    else:
        _enter_as_user(prepare, has_network=False)


def _enter_as_user(prepare: Callable[[], None], *, has_network: bool = True) -> None:
    user, group = os.geteuid(), os.getegid()
    call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET * has_network)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    if has_network:
        _prepare_network()
    prepare()
    if user != 0:
        _drop_capabilities()


def _prepare_network() -> None:
    """Raise the loopback interface, and limit how long TCP waits: all peers in the namespace are on this machine."""
    with contextlib.suppress(OSError):  # a container's /proc/sys is often read-only
        _RETRIES.write_text(str(_MAX_RETRIES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())


def call(function: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0; raise an OSError if it returns something else."""
    if getattr(_libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
