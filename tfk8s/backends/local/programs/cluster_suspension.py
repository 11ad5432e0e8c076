"""The suspension of a local cluster: its processes end, and its folder stays.

The wish is a file, which is written before the processes end, and removed after they have started again. So the next
`suspend`, `resume` or `down` finishes what a command that was killed has left half-done.
"""

from __future__ import annotations

from collections.abc import Callable

from tfk8s.backends.local import cluster_status, starting, state, supervisor_client
from tfk8s.backends.local.programs import cluster_end
from tfk8s.backends.local.record import Record
from tfk8s.backends.local.supervision import suspended_file
from tfk8s.backends.local.supervision.history import HistoryKeeper
from tfk8s.backends.local.supervision.supervisor_process import SupervisorProcess
from tfk8s.core.status import ClusterStatus
from tfk8s.errors import InvalidInput
from tfk8s.sessions.forks import processes

_ENDED = "was suspended by `tfk8s suspend`"


class SuspendingProcesses:
    """Suspends clusters of this machine.

    Args:
        find: returns the folder and the record of a cluster by its name.
    """

    def __init__(self, find: Callable[[str], tuple[state.Folder, Record]]) -> None:
        self._find = find

    def suspend(self, name: str, by: str) -> bool:
        """End all processes of a cluster, and keep its folder."""
        with state.locked():
            folder, record = self._find(name)
            was_suspended = suspended_file.read(folder) is not None
            if not was_suspended:
                if not folder.is_running():
                    raise supervisor_client.gone_error(folder)
                _require_run(cluster_status.status(folder, record))
                suspended_file.write(folder, by)
            cluster_end.end(folder, _ENDED)
        return not was_suspended

    def resume(self, name: str) -> bool:
        """Start the processes of a suspended cluster again, with the same ports."""
        with state.locked():
            return resume(*self._find(name))


def resume(folder: state.Folder, record: Record) -> bool:
    """Start a cluster again if it is suspended; return whether it was.

    Raises:
        InvalidInput: this machine can't run the cluster now.
        ClusterError: the cluster can't start, and stays suspended; or it has reached a limit.
    """
    if suspended_file.end(folder):
        raise supervisor_client.gone_error(folder)
    if suspended_file.read(folder) is None:
        return False
    if not folder.is_running():  # else an earlier `resume` was killed after the start
        starting.check_machine(record.job_file, record.python)
        starting.make_folders(record.job_file)
        with processes.signals_held():
            _start(folder, record)
    HistoryKeeper(folder).scaled(record)
    suspended_file.remove(folder)
    return True


def _require_run(found: ClusterStatus) -> None:
    """Raise an InvalidInput if the run of the programs has ended: `resume` would begin another one."""
    if found.exit_code is not None:
        raise InvalidInput(
            f'the run of cluster "{found.name}" has ended, with exit code {found.exit_code}: '
            "nothing is left to suspend",
            help=f"tfk8s down --local {found.name} removes the cluster",
        )


def _start(folder: state.Folder, record: Record) -> None:
    cluster_end.end(folder, _ENDED)
    folder.control.unlink(missing_ok=True)
    folder.forget_end()  # of a supervisor that has suspended the cluster
    try:
        supervisor_client.start(folder, record, SupervisorProcess(record.id))
    except BaseException:
        cluster_end.end(folder, "could not start")
        raise
