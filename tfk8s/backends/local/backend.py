"""The backend whose tasks are processes of this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tfk8s import polling
from tfk8s.backends import devices, downloads, foreground_scripts, interpreter
from tfk8s.backends.foreground_scripts import ForegroundScripts
from tfk8s.backends.history import places, writing
from tfk8s.backends.local import capacity, cluster_status, logs, starting, state, supervisor_client
from tfk8s.backends.local.programs import cluster_end, cluster_suspension
from tfk8s.backends.local.programs.cluster_suspension import SuspendingProcesses
from tfk8s.backends.local.programs.left_files import LocalFiles
from tfk8s.backends.local.record import Record
from tfk8s.backends.local.supervision import history, requests, suspended_file
from tfk8s.backends.local.supervision.held_leases import HeldLeases
from tfk8s.backends.local.supervision.script_request import script_request
from tfk8s.backends.options import BackendOptions
from tfk8s.backends.plain_data import job_file_to_dict
from tfk8s.backends.protocol import Observer, PollingObserver
from tfk8s.core.events import Event, of_phase
from tfk8s.core.history.facts import REMOVED
from tfk8s.core.naming import CLUSTER_ID_VARIABLE
from tfk8s.core.plan import Action, Change, Plan, Scaling, compare
from tfk8s.core.resources import named
from tfk8s.core.script import LogLine, LogOptions, Outcome, Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus
from tfk8s.core.task_names import require_no_variables
from tfk8s.errors import ClusterError, InvalidInput, NoSuchCluster, TaskUnreachable, there_are
from tfk8s.log import log
from tfk8s.sessions.timing import TIMING

if TYPE_CHECKING:
    from tfk8s.backends.stacks import Stacks
    from tfk8s.backends.usage import Usage

_MAX_END_AGE = 20.0
_STREAMS = (0, 1, 2)


class LocalBackend:
    """Runs each task as a process, in the cluster's own network, or with ports that are bound to loopback.

    Args:
        allow_exposed_ports: start the tasks in this machine's own network, even if other users can connect. Anyone who
            can reach a task's port can run code as this user.
        python: the interpreter of clusters that start, and of scripts; None is the active environment's, else tfk8s'.

    Raises:
        InvalidInput: there is no such interpreter.
    """

    name = "local"
    flags = " --local"
    timing = TIMING
    shared = None

    def __init__(self, *, allow_exposed_ports: bool = False, python: str | None = None) -> None:
        self._exposed = allow_exposed_ports
        self._python = None if python is None else interpreter.named(python)
        self.leases = HeldLeases()
        self.scripts = ForegroundScripts(_find, self._run)
        self.detached = foreground_scripts.no_detached(_find)
        self.inside, self.suspending = InsideProcesses(), SuspendingProcesses(_find)
        self.history = history.LocalHistory()
        self.files = LocalFiles(_find)

    def apply(self, job_file: JobFile) -> bool:
        """Start the cluster or its failed servers; return whether anything changed.

        A new cluster with a lease is removed when this process ends. Without a lease, the cluster stays.
        """
        has_lease, job_file = job_file.lease is not None, dataclasses.replace(job_file, lease=None)
        capacity.check_job_file(job_file)
        starting.check_volumes(job_file)
        with state.locked():
            folder = state.folder(job_file.name)
            record = folder.read()
            resumed = record is not None and self._resume(folder, record, job_file)
            if record is not None and folder.is_running():
                return self._apply_to_running(folder, record, job_file, has_lease=has_lease) or resumed
            connection = starting.start(folder, job_file, exposed=self._exposed, python=self._python, leased=has_lease)
            self.leases.hold(job_file.name, connection)
        return True

    def _resume(self, folder: state.Folder, record: Record, job_file: JobFile) -> bool:
        """Resume a cluster if it is suspended, and if its job file is the same but for the numbers of tasks."""
        if suspended_file.read(folder) is None:
            return False
        starting.check_python(record, self._python)
        if not record.is_resized(job_file):
            starting.check_same(record, job_file)
        return cluster_suspension.resume(folder, record)

    def _change(self, folder: state.Folder, record: Record, job_file: JobFile) -> bool:
        starting.check_python(record, self._python)
        if record.is_resized(job_file):
            remedy = f"save them; then run: tfk8s scale --local {job_file.name} {{count}} --yes"
            require_no_variables({job.name: job.tasks for job in job_file.jobs}, record.job_file, remedy)
            starting.resize(folder, record, job_file)
            return True
        starting.check_same(record, job_file)
        return starting.restart_failed(folder)

    def _apply_to_running(self, folder: state.Folder, record: Record, job_file: JobFile, *, has_lease: bool) -> bool:
        """Change a running cluster, and hold its lease, too; or end the lease, so that the cluster stays."""
        with contextlib.ExitStack() as on_error:
            connection = supervisor_client.hold_lease(folder) if has_lease else None  # None: an `up` keeps the cluster
            if connection:
                on_error.enter_context(connection)
            changed = self._change(folder, record, job_file)
            on_error.pop_all()
        if not has_lease:
            supervisor_client.send_request(folder, requests.Keep())
        self.leases.hold(folder.path.name, connection)
        return changed

    def plan(self, job_file: JobFile) -> Plan:
        """Return the changes that `apply` would make."""
        capacity.check_job_file(job_file)
        starting.check_volumes(job_file)
        name, folder = job_file.name, state.folder(job_file.name)
        record = folder.read()
        is_suspended = suspended_file.read(folder) is not None
        if record is None or not (folder.is_running() or is_suspended):
            starting.check_machine(job_file, self._python)
            return Plan(
                name=name, changes=(Change(kind="cluster", name=name, action=Action.CREATE),), requests=named(job_file),
                way_out=starting.expected_way_out(job_file.network.allow_to, exposed=self._exposed),
            )  # fmt: skip
        starting.check_python(record, self._python)
        change = compare("cluster", name, job_file_to_dict(record.job_file), job_file_to_dict(job_file))
        if change is None:
            return Plan(name=name, restarts=() if is_suspended else tuple(cluster_status.failed_servers(folder)))
        refusal = f"`up` changes only the numbers of tasks of a cluster that runs: tfk8s down --local {name} first"
        return Plan(
            name=name, changes=(change,), refusal="" if record.is_resized(job_file) else refusal,
            requests_before=named(record.job_file), requests=named(job_file),
        )  # fmt: skip

    def scale(self, name: str, tasks: Mapping[str, int]) -> Scaling:
        """Change the number of tasks of jobs. Only clusters with programs restart."""
        with state.locked():
            folder, record = _find(name)
            after = record.job_file.scaled(tasks)
            if after == record.job_file:
                return Scaling.UNCHANGED
            if not folder.is_running():
                raise supervisor_client.gone_error(folder)
            if record.is_resized(after):
                starting.resize(folder, record, after)
                return Scaling.IN_PLACE
            starting.start(folder, after, exposed=record.exposed, python=record.python, before=record)
        return Scaling.RESTARTED

    def observe(self, name: str) -> ClusterStatus:
        """Return the current status."""
        return cluster_status.status(*_find(name))

    def observer(self, name: str) -> AbstractContextManager[Observer]:
        """Poll the supervisor, which knows a moment later why a task was lost."""
        return contextlib.nullcontext(
            PollingObserver(lambda: self.observe(name), lambda task, symptom: self._why_lost(name, task) or symptom)
        )

    def clusters(self) -> list[ClusterStatus]:
        """Return all clusters of this user on this machine, by name; a damaged one with the reason."""
        return [found for folder in state.folders() if (found := cluster_status.of_folder(folder)) is not None]

    def events(self, name: str, *, follow: bool) -> Iterator[Event]:
        """Yield the starts and ends of tasks, which the supervisor has recorded."""
        folder, record = _find(name)
        lines = logs.read([(record.job_file.master_task, folder.events)], follow=follow, tail=None)
        return (of_phase(json.loads(line.text)) for line in lines)

    def logs(self, name: str, tasks: Sequence[Task], options: LogOptions) -> Iterator[LogLine]:
        """Yield the lines of tasks' logs, of all runs."""
        folder, _ = _find(name)
        return logs.read_tasks([(task, folder.log(task)) for task in tasks], options)

    def _run(self, name: str, script: Script) -> Outcome:
        """Run a session script inside the cluster's network, with this process' standard streams."""
        folder, record = _find(name)
        if record.job_file.job(record.job_file.master).program is not None:
            raise devices.no_servers(name, self.flags)
        with foreground_scripts.FailureFile(script) as failure_file:
            more = failure_file.environment(len(_STREAMS))
            request = script_request(folder, record, script, more, self._python)
            streams = [*_STREAMS, *failure_file.descriptors]
            answer = supervisor_client.run(folder, request, streams, record.job_file.grace or 0.0)
            if "error" in answer:
                raise TaskUnreachable(
                    f'cluster "{name}" can\'t run {script.path}: {answer["error"]}',
                    help=answer.get("help", f"tfk8s logs --local {name} shows the tasks' output"),
                )
            code = int(answer.get("exit", -signal.SIGTERM))
            if "cluster" in answer:
                message = f'cluster "{name}" {answer["cluster"]}, while {script.path} ran'
                if code < 0:
                    raise ClusterError(message)
                log.warning(message)
            outcome = failure_file.outcome(code)
        return downloads.copy_here(script.downloads, outcome)

    def locator(self, name: str) -> BackendOptions:
        """Return the options by which another process finds the cluster."""
        del name
        return BackendOptions(local=True)

    def dial(self, name: str, task: Task) -> socket.socket:
        """Return a stream to a task's server, opened inside the cluster's network."""
        answer, descriptors = supervisor_client.send_request(_find(name)[0], requests.Dial(task=str(task)))
        if "error" in answer:
            raise TaskUnreachable(f"{task} does not answer: {answer['error']}")
        return socket.socket(fileno=descriptors[0])

    def _why_lost(self, name: str, task: Task) -> str:
        for _ in polling.poll(TIMING.local_reason_timeout):
            status = self.observe(name)
            if (found := next((other for other in status.tasks if other.task == task), None)) is None:
                return "removed by `tfk8s scale`"
            if reason := status.reason or found.reason_since(time.time() - _MAX_END_AGE):
                return reason
        return ""

    def restart(self, name: str, task: Task | None) -> bool:
        """Restart a task, or all tasks."""
        supervisor_client.send_request(_find(name)[0], requests.Restart(task=None if task is None else str(task)))
        return True

    def delete(self, name: str, *, delete_claims: bool = False) -> list[str]:
        """End all processes of the cluster, and remove its folder. The folders of volumes are not touched."""
        del delete_claims
        with state.locked():
            folder = state.folder(name)
            if not folder.exists():
                raise _no_such_cluster(name)
            if (own_id := os.environ.get(CLUSTER_ID_VARIABLE)) and own_id == folder.id():
                raise InvalidInput(
                    f'a script of cluster "{name}" can\'t remove it: the script would end with it, half-way',
                    help=f"tfk8s down --local {name}, where the script was submitted",
                )
            cluster_end.end(folder, REMOVED)
            history.remove(folder)
        self.leases.close(name)
        return []


class InsideProcesses:
    """Reaches into the processes of tasks."""

    def execute(self, name: str, task: Task, command: Sequence[str]) -> int:
        """Run a command in the network of the tasks, with the variables of one of them."""
        from tfk8s.backends.local import task_commands

        return task_commands.run(*_find(name), task, command)

    def stacks(self, name: str, chosen: Sequence[str]) -> list[Stacks]:
        """Look at processes, inside the cluster's network."""
        from tfk8s.backends.local import task_commands

        return task_commands.read_stacks(*_find(name), chosen)

    def usage(self, name: str, chosen: Sequence[str]) -> list[Usage]:
        """Measure processes."""
        from tfk8s.backends.local import task_commands

        return task_commands.read_usage(*_find(name), chosen)

    def end_programs(self, name: str, jobs: Sequence[str], *, succeeded: bool) -> None:
        """Do nothing: the supervisor ends the programs."""


def _find(name: str) -> tuple[state.Folder, Record]:
    folder = state.folder(name)
    record = folder.read()
    if record is None:
        raise _no_such_cluster(name)
    return folder, record


def _no_such_cluster(name: str) -> NoSuchCluster:
    names = there_are([folder.path.name for folder in state.folders()], "cluster")
    return NoSuchCluster(
        f'there is no cluster "{name}" on this machine; {names}',
        help=f"tfk8s up --local FILE starts one{places.advice(name, writing.HERE)}",
    )
