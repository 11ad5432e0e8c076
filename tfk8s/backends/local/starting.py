"""Starts a local cluster with the folders of its volumes, and changes the numbers of its tasks."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path

from tfk8s.backends import interpreter
from tfk8s.backends.local import capacity, cluster_status, isolation, state, supervisor_client
from tfk8s.backends.local.programs import cluster_end
from tfk8s.backends.local.record import Record, make_record
from tfk8s.backends.local.record import resize as resized
from tfk8s.backends.local.supervision import history, requests, supervisor_process
from tfk8s.backends.local.supervision.supervisor_process import SupervisorProcess
from tfk8s.backends.plain_data import job_file_to_dict
from tfk8s.core.job_file.mappings import Destination
from tfk8s.core.plan import fields
from tfk8s.core.spec import JobFile
from tfk8s.core.storage import claims
from tfk8s.errors import InvalidInput
from tfk8s.log import log
from tfk8s.sessions.forks import processes


def check_volumes(job_file: JobFile) -> None:
    """Raise an InvalidInput if a cluster on this machine can't have the folders of a job file.

    All tasks and scripts of a local cluster see the same files, so a path has one folder.
    """
    folders: dict[str, str] = {}
    for volume in claims.volumes(job_file):
        if not volume.folder:
            continue
        if folders.setdefault(volume.path, volume.folder) != volume.folder:
            raise InvalidInput(
                f'two jobs have other folders at "{volume.path}": {folders[volume.path]} and {volume.folder}',
                help="on this machine, all tasks see the same files: use two paths",
            )
        if Path(volume.folder).exists() and not Path(volume.folder).is_dir():
            raise InvalidInput(f"{volume.folder}, the folder of the volume at {volume.path}, is a file")
        if volume.read_only and not Path(volume.folder).exists():
            raise InvalidInput(
                f"there is no folder {volume.folder}, which the volume at {volume.path} only reads",
                help="a folder is relative to the folder of the job file",
            )


def make_folders(job_file: JobFile) -> None:
    """Make the folders that are missing, and tell which volumes have none on this machine.

    Raises:
        InvalidInput: a folder can't be made.
    """
    volumes = claims.volumes(job_file)
    for volume in volumes:
        try:
            if volume.folder:
                Path(volume.folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(
                f"the folder {volume.folder} of the volume at {volume.path} can't be made: {error.strerror}"
            ) from error
    without = dict.fromkeys(f"{volume.path} ({volume.source})" for volume in volumes if not volume.folder)
    if without:
        log.warning("volumes without a folder are not there on this machine: %s", ", ".join(without))


def check_machine(job_file: JobFile, python: str | None) -> None:
    """Raise an InvalidInput if this machine has no TensorFlow, too little memory or too few ports for a cluster."""
    interpreter.require_tensorflow(python or interpreter.script_python(os.environ), interpreter.OTHERS)
    capacity.check_memory(job_file)
    capacity.check_ports(job_file)
    capacity.check_descriptors(job_file)


def expected_way_out(allow_to: Collection[Destination] | None, *, exposed: bool) -> str:
    """Return the way out that a new cluster would have, in words; "" if this machine would refuse the cluster.

    Args:
        allow_to: `network.allow_to` of the job file.
        exposed: whether the user wants no network of the cluster's own.
    """
    from tfk8s.backends.local.way_out.supervisor_part import planned  # a start does without

    try:
        return planned(allow_to, shared=exposed or isolation.probe().is_shared).text
    except isolation.Refused:
        return ""


def start(
    folder: state.Folder, job_file: JobFile, *, exposed: bool, python: str | None, before: Record | None = None,
    leased: bool = False,
) -> socket.socket | None:  # fmt: skip
    """Start a cluster, after removing the cluster of that name. Ctrl-C waits until this is done.

    Args:
        exposed: whether the user accepts that others can connect to the tasks.
        python: the interpreter; None is the one of the active environment.
        before: the same cluster, which starts again; None is a new one, whose `python` the user has named.
        leased: whether the cluster is removed when the connection that is returned closes.

    Raises:
        InvalidInput: this machine can't run the cluster.
        ClusterError: the cluster can't start.
    """
    folder.require_space()
    check_machine(job_file, python)
    make_folders(job_file)
    is_named = before.is_python_named if before else python is not None
    with supervisor_process.waiting() as process:
        record = make_record(
            job_file, process.id, exposed=exposed, python=python, is_python_named=is_named,
            created=before.created if before else None, is_leased=leased,
        )  # fmt: skip
        with processes.signals_held():
            return _replace(folder, record, process)


def _replace(folder: state.Folder, record: Record, process: SupervisorProcess) -> socket.socket | None:
    if folder.exists():
        cluster_end.end(folder, "was started again")
    history.remove(folder)
    entry = history.begin(record)
    try:
        folder.create(record, entry.live if entry else None)
        return supervisor_client.start(folder, record, process)
    except BaseException:
        cluster_end.end(folder, "could not start")
        history.remove(folder, "could not start")
        raise


def resize(folder: state.Folder, record: Record, job_file: JobFile) -> None:
    """Change the numbers of tasks while the others continue. Ctrl-C waits until this is done."""
    folder.require_space()
    capacity.check_growth(record.job_file, job_file)
    after = resized(record, job_file)
    capacity.check_new_ports(after.addresses)
    with processes.signals_held():
        supervisor_client.send_request(folder, requests.Scale(record=after))


def check_python(record: Record, python: str | None) -> None:
    """Raise an InvalidInput if a cluster that runs has another interpreter than the one that the user names."""
    if python not in (None, record.python):
        raise InvalidInput(
            f'cluster "{record.name}" runs already, with {record.python}',
            help=f"tfk8s down --local {record.name} removes it; then --python can name another interpreter",
        )


def check_same(record: Record, job_file: JobFile) -> None:
    """Raise an InvalidInput if a cluster that runs has another job file."""
    changes = [str(field) for field in fields(job_file_to_dict(record.job_file), job_file_to_dict(job_file))]
    if changes:
        raise InvalidInput(
            f'cluster "{job_file.name}" runs already, from another job file:\n  ' + "\n  ".join(changes),
            help=f"tfk8s down --local {job_file.name} removes it; or set another `name` in this job file",
        )


def restart_failed(folder: state.Folder) -> bool:
    """Restart the failed servers; return whether there were any."""
    failed = cluster_status.failed_servers(folder)
    for task in failed:
        supervisor_client.send_request(folder, requests.Restart(task=str(task)))
    return bool(failed)
