"""Elastic servers: each knows only itself, and each session brings the ClusterSpec (`ConfigProto.cluster_def`).

The names of a server's devices show that it is elastic. Standard library only: this file also runs in pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfk8s.core import naming
from tfk8s.task.config import OWN_INDEX, OWN_JOB
from tfk8s.task.probe import Device
from tfk8s.task.wire import field


def full_name(task: str) -> str:
    """Return the begin of the names of a task's devices, "/job:worker/replica:0/task:1/"."""
    job, _, index = task.partition("/")
    return f"/job:{job}/replica:0/task:{index}/"


_OWN_NAME = full_name(f"{OWN_JOB}/{OWN_INDEX}")


def is_elastic(devices: Sequence[Device]) -> bool:
    """Return whether a server is elastic, by the devices that it reports."""
    return any(device.name.startswith(_OWN_NAME) for device in devices)


def rename(devices: Sequence[Device], task: str) -> list[Device]:
    """Return the devices of a server with the names that sessions use; those of other servers stay as they are.

    Args:
        devices: as the server reports them.
        task: the short name of the server's task.
    """
    return [device._replace(name=device.name.replace(_OWN_NAME, full_name(task), 1)) for device in devices]


def session_config(addresses: Mapping[str, str], *, isolate: bool = False) -> bytes:
    """Return the part of a serialized `tensorflow.ConfigProto` that brings the ClusterSpec.

    Sessions share their variables, as on servers with a ClusterSpec. Without the option for that, TensorFlow isolates
    sessions with a ClusterSpec. The option would override `isolate_session_state`
    (`MasterSession::CreateWorkerSessions` in tensorflow/core/distributed_runtime/master_session.cc).

    Args:
        addresses: the address of each task, by its short name.
        isolate: whether the session keeps its variables to itself.
    """
    jobs: dict[str, bytes] = {}
    for task, address in addresses.items():
        job, _, index = task.partition("/")
        jobs[job] = jobs.get(job, b"") + field(2, field(1, int(index)) + field(2, address))
    cluster = b"".join(field(1, field(1, job) + tasks) for job, tasks in jobs.items())
    sharing = field(8, int(not isolate))  # share_session_state_in_clusterspec_propagation
    return field(14, cluster) + field(16, sharing)  # cluster_def, experimental


def session_fields(
    master: str, addresses: Mapping[str, str], *, isolate: bool = False, is_filtered: bool = False
) -> bytes:
    """Return the fields of a `CreateSessionRequest` that bring the ClusterSpec.

    Args:
        master: the short name of the session's master.
        addresses: the address of each task, by its short name; the master's too.
        isolate: as of `session_config`; the size does not depend on it.
        is_filtered: whether the session has device filters. Then the fields add the master's: a master that the filters
            leave out aborts its process, if the session brings the ClusterSpec (`CHECK(device_set->client_device())` in
            tensorflow/core/distributed_runtime/master.cc).
    """
    config = session_config(addresses, isolate=isolate) + (field(4, device(master)) if is_filtered else b"")
    return field(2, config) + field(3, f"grpc://{addresses[master]}")


def device(task: str) -> str:
    """Return the name for device filters of a task, by its short name."""
    job, _, index = task.partition("/")
    return naming.device(job, int(index))
