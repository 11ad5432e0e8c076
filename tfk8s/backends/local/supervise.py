"""The process of a supervisor: isolates itself, and then supervises a cluster (`supervisor`)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import socket
import sys
from pathlib import Path

from tfk8s.backends.local import isolation, mounts
from tfk8s.backends.local.loopback import ports
from tfk8s.backends.local.record import Record, relocate
from tfk8s.backends.local.state import Folder
from tfk8s.backends.local.supervisor import Supervisor
from tfk8s.backends.local.way_out.supervisor_part import WayOut
from tfk8s.call_stack import roomy
from tfk8s.core.addresses import host_and_port
from tfk8s.core.storage import claims
from tfk8s.sessions.forks import processes
from tfk8s.task import ipc

PATIENCE = 60.0  # seconds until a process without a cluster ends


@roomy
def main(descriptor: int) -> None:
    """Wait for a cluster, detach from the command, and supervise the cluster.

    Args:
        descriptor: a connection to the command. The command sends the cluster's folder, and a descriptor for the
            output. The command gets a JSON object when the supervisor listens: `error` and `help` if it can't. Then the
            connection holds the cluster's lease, if the cluster has a lease.
    """
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    connection.settimeout(PATIENCE)
    try:
        orders = ipc.receive(connection)
    except TimeoutError:
        orders = None
    if orders is None:  # the command has ended, or needs no supervisor
        connection.close()
        return
    connection.settimeout(None)
    message, (log,) = orders
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    if os.fork():
        os._exit(0)
    os.setsid()
    processes.drop_signals()  # of the command's group, to which this process belonged
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # two descriptors for a task, three for a script
    folder = Folder(Path(message["folder"]))
    try:
        record, way_out = _isolated(folder)
        supervisor = Supervisor(folder, record, way_out)
        folder.write_supervisor(os.getpid())
    except (OSError, isolation.Refused, mounts.MountError) as error:
        connection.send(json.dumps({"error": str(error), "help": getattr(error, "help", None)}).encode())
        connection.close()
        os._exit(1)
    with contextlib.suppress(BrokenPipeError):  # `up` was killed; another `up` may have found this supervisor already
        connection.send(b"{}")
    if record.is_leased:
        supervisor.lease.hold(connection)
    else:
        connection.close()
    supervisor.run()


def _isolated(folder: Folder) -> tuple[Record, WayOut]:
    """Isolate this process.

    Returns:
        The cluster's record with the ports that the isolation leaves to its tasks, and the way out of its network.

    Raises:
        Refused, OSError: this machine can't isolate the cluster.
        MountError: this machine can't show a volume's folder at its path.
    """
    record = folder.read()
    assert record is not None
    volumes = claims.volumes(record.job_file)
    # It begins in this machine's own network, so before this process leaves that.
    way_out = WayOut(record.job_file.network.allow_to, {**os.environ, **record.variables}, shared=record.exposed)

    def prepare() -> None:
        mounts.mount(volumes)
        way_out.prepare(folder.path)

    isolated = isolation.enter(insists=record.exposed, prepare=prepare)
    record = dataclasses.replace(record, isolation=isolated)
    if record.isolation.is_shared:
        mounts.enter(volumes)
        if record.job_file.network.allow_to == ():
            raise isolation.Refused(
                "`network: {allow_to: []}` closes the way out to all networks, which needs a network of the cluster's "
                f"own ({record.isolation.reason})",
                "leave allow_to out on this machine; `tfk8s doctor --local` says how to allow network namespaces",
            )
        os.environ.update(record.isolation.confined(os.environ))
    if record.isolation.is_shared or not ports.has_ipv6():
        record = relocate(record, ports.OWN)
    way_out.open([host_and_port(task.address)[1] for task in record.tasks], shared=isolated.is_shared)
    folder.replace(record)
    return record, way_out


if __name__ == "__main__":
    main(int(sys.argv[1]))
