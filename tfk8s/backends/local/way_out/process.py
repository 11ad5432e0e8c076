"""The process that keeps a cluster's way out. It lives in this machine's own network, and ends with the supervisor.

The supervisor forks it before it enters the cluster's network, and then sends it a socket of that network:

    supervisor → {pid, way}, a listening socket for the proxy, which replaces programs that do not work; and a datagram
                 socket, which shows that they do
    process    → {way}, whenever the way changes
               → {refused}, why the proxy has refused a request
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from tfk8s import polling
from tfk8s.backends.local.way_out import helper_programs, own_addresses
from tfk8s.backends.local.way_out.closed_routes import ClosedRoutes
from tfk8s.backends.local.way_out.upstream import Upstreams
from tfk8s.core.network.reach import Allowed, refusal
from tfk8s.core.network.way_out import Way
from tfk8s.task import ipc

_ROUTE_CHANGES = 0x40 | 0x10  # RTMGRP_IPV4_ROUTE, RTMGRP_IPV4_IFADDR
_MAX_STARTS = 5
_MAX_NOTES = 1000  # for one cluster
_NOTE_INTERVAL = 5.0  # between two notes on one server, since clients try again
_RESTART_PAUSE = 1.0


def serve(connection: socket.socket, ranges: Sequence[Allowed] | None, environment: Mapping[str, str]) -> None:
    """Keep the way out until the supervisor ends.

    Args:
        connection: to the supervisor.
        ranges: the addresses that the job file allows; None is all.
        environment: the variables that name the user's own proxy.
    """
    handed = ipc.receive(connection)
    if handed is None:
        return
    message, descriptors = handed
    listener, probe = (socket.socket(fileno=descriptor) for descriptor in descriptors)
    way = Way(message["way"])
    upstreams = Upstreams(environment)
    if way.is_program:
        start = functools.partial(helper_programs.start, pid=message["pid"], probe=probe)
        if not _is_here(upstreams) and any(
            _keep_program(connection, listener, program, functools.partial(start, program))
            for program in helper_programs.installed()
        ):
            return
        way = Way.PROXY
    ipc.send(connection, {"way": way})
    if connection.fileno() not in polling.ready([listener.fileno(), connection.fileno()], None):
        _serve_proxy(connection, listener, ranges, upstreams)


def _serve_proxy(
    connection: socket.socket, listener: socket.socket, ranges: Sequence[Allowed] | None, upstreams: Upstreams
) -> None:
    import asyncio  # takes 50 ms, which a cluster without a client of the proxy does without

    from tfk8s.backends.local.way_out.proxy import Proxy

    noted: dict[str, float] = {}

    def note(server: str, reason: str) -> None:
        now = time.monotonic()
        if len(noted) < _MAX_NOTES and now - noted.get(server, -math.inf) > _NOTE_INTERVAL:
            noted[server] = now
            ipc.send(connection, {"refused": reason})

    asyncio.run(Proxy(ranges, upstreams, note).serve(listener))


def _is_here(upstreams: Upstreams) -> bool:
    """Return whether the user's own proxy is on this machine: only the supervisor's proxy reaches it."""
    own = own_addresses.read()
    for host in upstreams.hosts:
        if host in ("localhost", socket.gethostname()):
            return True
        with contextlib.suppress(ValueError):  # another name, which is not resolved: that may take long
            if refusal(ipaddress.ip_address(host), 0, own, None):
                return True
    return False


def _keep_program(
    connection: socket.socket, listener: socket.socket, way: Way, run: Callable[[], helper_programs.Running]
) -> bool:
    """Run a program until the supervisor ends; return False if the program does not work at all."""
    changes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    changes.bind((0, _ROUTE_CHANGES))
    routes = ClosedRoutes(listener)
    for start in range(_MAX_STARTS):
        try:
            routes.close(own_addresses.read())
            running = run()
        except OSError as error:
            print(f"no way out {way.text}: {error}", file=sys.stderr, flush=True)  # noqa: T201 - supervisor.log
            if not start:
                return False
            break
        ipc.send(connection, {"way": way})
        if not _watch(connection, changes, routes, running):
            return True
        polling.readable(connection.fileno(), _RESTART_PAUSE)  # a pause, which the supervisor's end cuts short
    ipc.send(connection, {"way": Way.BROKEN})
    polling.ready([connection.fileno()], None)
    return True


def _watch(
    connection: socket.socket, changes: socket.socket, routes: ClosedRoutes, running: helper_programs.Running
) -> bool:
    """Keep the routes; return True when the program has ended, and False when the supervisor has."""
    while True:
        ready = polling.ready([connection.fileno(), changes.fileno(), running.ended], None)
        if connection.fileno() in ready:
            running.end()
            return False
        if changes.fileno() in ready:
            with contextlib.suppress(OSError):  # ENOBUFS: the kernel has dropped messages
                os.read(changes.fileno(), 1 << 16)
            routes.close(own_addresses.read())
        if running.ended in ready:
            running.end()
            return True
