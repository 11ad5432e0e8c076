"""Clusters of processes on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from tfk8s import polling
from tfk8s.backends import foreground_scripts
from tfk8s.backends.foreground_scripts import ForegroundScripts
from tfk8s.backends.local import capacity, interpreter, ipc, logs, state, status, supervisor_client
from tfk8s.backends.local.record import CLUSTER_ID_VARIABLE, Record, job_file_to_dict, make_record
from tfk8s.backends.options import BackendOptions
from tfk8s.backends.protocol import Observer, PollingObserver
from tfk8s.core.environment import script_environment
from tfk8s.core.events import Event
from tfk8s.core.plan import Action, Change, Plan, compare, fields
from tfk8s.core.script import LogLine, Outcome, Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus, Phase
from tfk8s.errors import InvalidInput, NoSuchCluster, TaskUnreachable, there_are

_SUPERVISOR_TIMEOUT = 1.0
_MAX_END_AGE = 20.0


class LocalBackend(ForegroundScripts):
    """Runs each task as a process, in a network namespace of the cluster's own.

    Args:
        allow_exposed_ports: the tasks listen in this machine's own network, where everybody who can reach it can
            run any program as this user; for machines on which namespaces are not allowed.
    """

    name = "local"
    flags = " --local"

    def __init__(self, *, allow_exposed_ports: bool = False) -> None:
        self._exposed = allow_exposed_ports

    def apply(self, job_file: JobFile) -> bool:
        """Start the cluster, or what is missing of it; return whether anything changed."""
        _check(job_file)
        with state.locked():
            folder = state.folder(job_file.name)
            record = folder.read()
            if record is not None and folder.supervisor() is not None:
                _check_same(record, job_file)
                return _revive(folder)
            _start(folder, job_file, exposed=self._exposed)
        return True

    def plan(self, job_file: JobFile) -> Plan:
        """Return what `apply` would change; changes nothing."""
        _check(job_file)
        name, folder = job_file.name, state.folder(job_file.name)
        record = folder.read()
        if record is None or folder.supervisor() is None:
            _check_room(folder, job_file, exposed=self._exposed)
            return Plan(name=name, changes=(Change(kind="cluster", name=name, action=Action.CREATE),))
        change = compare("cluster", name, job_file_to_dict(record.job_file), job_file_to_dict(job_file))
        if change is None:
            return Plan(name=name, restarts=tuple(_failed(folder)))
        return Plan(
            name=name, changes=(change,), refusal=f"`up` changes no cluster that runs: tfk8s down --local {name} first"
        )

    def scale(self, name: str, tasks: Mapping[str, int]) -> bool:
        """Give jobs so many tasks each, and start all tasks anew; return whether anything changed."""
        with state.locked():
            folder, record = _existing(name)
            before = record.job_file
            jobs = (dataclasses.replace(job, tasks=tasks.get(job.name, job.tasks)) for job in before.jobs)
            after = dataclasses.replace(before, jobs=tuple(jobs))
            if after == before:
                return False
            _start(folder, after, exposed=record.exposed)
        return True

    def observe(self, name: str) -> ClusterStatus:
        """Return what is there now."""
        return status.status(*_existing(name))

    def observer(self, name: str) -> AbstractContextManager[Observer]:
        """Poll the supervisor, which knows a moment later why a task was lost."""
        return contextlib.nullcontext(
            PollingObserver(lambda: self.observe(name), lambda task, symptom: self._why_lost(name, task) or symptom)
        )

    def clusters(self) -> list[ClusterStatus]:
        """Return all clusters of this user on this machine, by name."""
        found = ((folder, folder.read()) for folder in state.folders())
        return [status.status(folder, record) for folder, record in found if record is not None]

    def events(self, name: str, *, follow: bool) -> Iterator[Event]:
        """Yield the starts and ends of tasks, as the supervisor noted them."""
        folder, record = _existing(name)
        lines = logs.read([(record.job_file.master_task, folder.events)], follow=follow, tail=None)
        return (state.event(line.text) for line in lines)

    def logs(self, name: str, tasks: Sequence[Task], *, follow: bool, tail: int | None) -> Iterator[LogLine]:
        """Yield what tasks wrote."""
        folder, _ = _existing(name)
        return logs.read([(task, folder.log(task)) for task in tasks], follow=follow, tail=tail)

    def run(self, name: str, script: Script) -> Outcome:
        """Run a session script inside the cluster's network, with this process' standard streams."""
        folder, record = _existing(name)
        foreground_scripts.check(script)
        with foreground_scripts.FailureFile() as verdict:
            answer = supervisor_client.run(folder, _request(record, script, verdict.environment))
            if "error" in answer:
                raise TaskUnreachable(
                    f'cluster "{name}" can\'t run {script.path}: {answer["error"]}',
                    help=f"tfk8s logs --local {name} shows what the tasks wrote",
                )
            return verdict.outcome(int(answer["exit"]))

    def locator(self, name: str) -> BackendOptions:
        """Return the options by which another process finds the cluster."""
        del name
        return BackendOptions(local=True)

    def dial(self, name: str, task: Task) -> socket.socket:
        """Return a stream to a task's server, opened inside the cluster's network."""
        answer, descriptors = supervisor_client.ask(_existing(name)[0], {"do": "dial", "task": str(task)})
        if "error" in answer:
            raise TaskUnreachable(f"{task} does not answer: {answer['error']}")
        return socket.socket(fileno=descriptors[0])

    def _why_lost(self, name: str, task: Task) -> str:
        for _ in polling.poll(_SUPERVISOR_TIMEOUT):
            status = self.observe(name)
            (one,) = (one for one in status.tasks if one.task == task)
            if why := status.reason or one.reason_since(time.time() - _MAX_END_AGE):
                return why
        return ""

    def restart(self, name: str, task: Task | None) -> None:
        """Start a task's server, or all of them, anew."""
        supervisor_client.ask(_existing(name)[0], {"do": "restart", "task": None if task is None else str(task)})

    def delete(self, name: str) -> None:
        """End all processes of the cluster and remove its folder."""
        with state.locked():
            folder = state.folder(name)
            if not folder.exists():
                raise _no_such_cluster(name)
            if (mark := os.environ.get(CLUSTER_ID_VARIABLE)) and mark == folder.id():
                raise InvalidInput(
                    f'a script of cluster "{name}" can\'t remove it: the script would end with it, half-way',
                    help=f"tfk8s down --local {name}, where the script was submitted",
                )
            supervisor_client.end(folder)
            folder.remove()


def _existing(name: str) -> tuple[state.Folder, Record]:
    folder = state.folder(name)
    record = folder.read()
    if record is None:
        raise _no_such_cluster(name)
    return folder, record


def _no_such_cluster(name: str) -> NoSuchCluster:
    there = there_are([one.path.name for one in state.folders()])
    return NoSuchCluster(
        f'there is no cluster "{name}" on this machine; {there}', help="tfk8s up --local FILE starts one"
    )


def _check(job_file: JobFile) -> None:
    """Raise an InvalidInput for what can be refused before anything is touched."""
    if sys.platform != "linux":
        raise InvalidInput(
            "clusters on this machine need Linux: tasks run in a network namespace",
            help="run tfk8s in a Linux virtual machine or container, or use a Kubernetes cluster",
        )
    interpreter.require_tensorflow(interpreter.script_python(os.environ))
    if job_file.has_addresses:
        raise InvalidInput(f'the servers of "{job_file.name}" run already: its job file gives their addresses')


def _check_room(folder: state.Folder, job_file: JobFile, *, exposed: bool) -> None:
    """Raise an InvalidInput where this machine can't hold the cluster; ports may be in use by that of now."""
    capacity.check_memory(job_file)
    capacity.check_ports(job_file, exposed=exposed and folder.supervisor() is None)


def _start(folder: state.Folder, job_file: JobFile, *, exposed: bool) -> None:
    """Start a cluster, in the place of what is there of it."""
    folder.require_room()
    _check_room(folder, job_file, exposed=exposed)
    if folder.read() is not None:
        supervisor_client.end(folder)
    folder.remove()
    record = make_record(job_file, exposed=exposed)
    try:
        folder.create(record)
        supervisor_client.start(folder, record)
    except BaseException:
        supervisor_client.end(folder)
        folder.remove()
        raise


def _check_same(record: Record, job_file: JobFile) -> None:
    changes = [str(field) for field in fields(job_file_to_dict(record.job_file), job_file_to_dict(job_file))]
    if changes:
        raise InvalidInput(
            f'cluster "{job_file.name}" runs already, from another job file:\n  ' + "\n  ".join(changes),
            help=f"tfk8s down --local {job_file.name} removes it first; or give this one another `name`",
        )


def _failed(folder: state.Folder) -> list[Task]:
    """Return the tasks that wait to be started again."""
    return [
        Task(task["job"], task["index"])
        for task in supervisor_client.observed(folder)["tasks"]
        if task["phase"] == Phase.FAILED
    ]


def _revive(folder: state.Folder) -> bool:
    """Start the tasks that wait to be started again; return whether there were any."""
    failed = _failed(folder)
    for task in failed:
        supervisor_client.ask(folder, {"do": "restart", "task": str(task)})
    return bool(failed)


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise InvalidInput("the current folder does not exist any more", help="cd to one that does") from error


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _request(record: Record, script: Script, more: Mapping[str, str]) -> ipc.Message:
    more = {CLUSTER_ID_VARIABLE: record.id, **more}
    return {
        "do": "run",
        "fresh": script.fresh,
        "python": interpreter.script_python(os.environ),
        "folder": _current_folder(),
        "umask": _umask(),
        "environment": script_environment(script, record.cluster, record.target, os.environ, more),
        "arguments": script.runner_arguments(),
    }
