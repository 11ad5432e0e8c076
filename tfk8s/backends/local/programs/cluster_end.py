"""The end of a local cluster: of its programs and scripts, which may save, its supervisor, and all processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import replace

from tfk8s import polling
from tfk8s.backends.local import state, supervisor_client
from tfk8s.backends.local.supervision import requests
from tfk8s.core.naming import CLUSTER_ID_VARIABLE
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase
from tfk8s.core.task_names import format_tasks
from tfk8s.errors import ClusterError
from tfk8s.sessions.forks import processes
from tfk8s.sessions.forks.escalation import forwarded_signals
from tfk8s.task import ipc

_END_TIMEOUT = 10.0


def end(folder: state.Folder, reason: str) -> None:
    """End the supervisor and all processes of its cluster, and wait for their end.

    Args:
        reason: why the cluster ends, for the users of its scripts; continues `cluster "NAME" …`.

    Raises:
        ClusterError: a process does not end.
    """
    pid = folder.supervisor() or folder.listener()
    cluster_id = folder.id() or (pid and processes.variable(pid, CLUSTER_ID_VARIABLE))
    if pid is not None:
        try:
            _stop(folder, requests.Stop(reason=reason))
        except ClusterError:
            _kill(pid)
            _wait_for_end(pid, time.monotonic() + _END_TIMEOUT)
    deadline = time.monotonic() + _END_TIMEOUT
    for pid in state.cluster_processes(cluster_id) if cluster_id else []:
        _kill(pid)
        _wait_for_end(pid, deadline)


def _stop(folder: state.Folder, request: requests.Stop) -> None:
    """Have the supervisor end all processes. A signal ends those at once that save within the job file's `grace`."""
    try:
        record = folder.read()
    except ClusterError:  # it is damaged, and ends all the same
        record = None
    grace = record and record.job_file.grace
    if not grace:
        supervisor_client.send_request(folder, request, _END_TIMEOUT, "the processes of {} to end")
        return
    first = iter([True])

    def end_now(_: int) -> bool:
        if not next(first, False):
            return False
        message = requests.to_message(replace(request, hurry=True))
        with contextlib.suppress(OSError), ipc.connect(folder.control, _END_TIMEOUT) as connection:
            ipc.send(connection, message)
        return True

    awaited = f"{_saving(folder) or 'the processes'} of {{}} to end, at most {grace} s; Ctrl-C ends them at once"
    with forwarded_signals(end_now):
        supervisor_client.send_request(folder, request, grace + _END_TIMEOUT, awaited)


def _saving(folder: state.Folder) -> str:
    """Return the names of the programs and scripts that run; "" if the supervisor is another version's."""
    try:
        found = supervisor_client.observe(folder)
    except ClusterError:
        return ""
    tasks = [Task(task["job"], task["index"]) for task in found.tasks if task["phase"] == Phase.RUNNING]
    scripts = [f"script {script['name'] or script['pid']}" for script in found.scripts if script["pid"]]
    return ", ".join(([format_tasks(tasks)] if tasks else []) + scripts)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _wait_for_end(pid: int, deadline: float) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not polling.readable(descriptor, max(0.0, deadline - time.monotonic())):
            raise ClusterError(f"process {pid} does not end")
    finally:
        os.close(descriptor)
