"""Suspends a cluster and resumes it."""

from __future__ import annotations

import getpass

from tfk8s import spans
from tfk8s.backends import suspended
from tfk8s.backends.protocol import Backend
from tfk8s.cluster.history_recorder import HistoryRecorder
from tfk8s.cluster.program_run import require_up
from tfk8s.cluster.readiness import TIMEOUT, OnChange, wait_until_ready
from tfk8s.core.status import ClusterStatus, ScriptPhase
from tfk8s.core.task_names import format_tasks
from tfk8s.errors import InvalidInput
from tfk8s.log import log

_NOBODY = "somebody"  # on a machine that has no name for its user


class SuspendableCluster:
    """The part of the handle on a cluster that suspends and resumes it."""

    backend: Backend
    name: str
    recorder: HistoryRecorder

    def suspend(self, *, lose_variables: bool = False) -> bool:
        """End all tasks and running scripts, until `resume`; return False if the cluster was suspended before.

        Addresses, claims, files and limits stay, and `max_duration` counts on.

        Args:
            lose_variables: suspend a cluster of servers, too, whose sessions then lose their variables. Programs go on
                from their checkpoints.

        Raises:
            InvalidInput: variables or scripts would be lost, or the cluster can't be suspended.
        """
        status = self.backend.observe(self.name)
        if status.suspended is None:
            _require_no_lease(status)
            if not lose_variables and (losses := what_is_lost(status)):
                raise InvalidInput(
                    f'a suspension of "{self.name}" {losses}',
                    help="save what you need; then add --yes (in Python: lose_variables=True)",
                )
        with self.recorder.command("suspend"), spans.part("suspend cluster"):
            return self.backend.suspending.suspend(self.name, _person())

    def resume(self, *, timeout: float | None = TIMEOUT, on_change: OnChange | None = None) -> bool:
        """Start a suspended cluster at its addresses, and wait until all is ready; return whether it was suspended.

        Args:
            timeout: in seconds; None does not wait.
            on_change: as for `wait`.
        """
        with self.recorder.command("resume"):
            with spans.part("resume cluster"):
                changed = self.backend.suspending.resume(self.name)
            if timeout is not None:
                require_up(self.backend, wait_until_ready(self.backend, self.name, timeout, on_change))
        return changed


def _require_no_lease(status: ClusterStatus) -> None:
    """Raise an InvalidInput if a `run` will remove the cluster."""
    if status.limits.lease is not None:
        raise InvalidInput(
            f'"{status.name}" belongs to a `tfk8s run`, which removes the cluster at its end',
            help="run it with --keep to suspend it",
        )


def what_is_lost(status: ClusterStatus) -> str:
    """Return what a suspension would lose, as the end of a sentence; "" if programs go on from their checkpoints."""
    running = [script.name for script in status.scripts if script.phase in (ScriptPhase.PENDING, ScriptPhase.RUNNING)]
    scripts = f"ends {'scripts' if len(running) > 1 else 'script'} {', '.join(running)}" if running else ""
    servers = [task.task for task in status.tasks if task.has_server]
    variables = "" if status.success or not servers else f"loses the variables of sessions on {format_tasks(servers)}"
    return " and ".join(filter(None, (variables, scripts)))


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        return _NOBODY


def note_suspension(backend: Backend, status: ClusterStatus, *, resumes: bool) -> tuple[float | None, bool]:
    """Say that `up` resumes a suspended cluster, or raise a ClusterError if the command does not.

    Returns:
        The lease of the cluster, and whether it is suspended.
    """
    if not resumes:
        require_awake(backend, status)
    elif status.suspended:
        log.info("%s: up resumes it", suspended.why_unusable(status.name, status.suspended))
    return status.limits.lease, status.suspended is not None


def require_awake(backend: Backend, status: ClusterStatus) -> ClusterStatus:
    """Return the status of a cluster; raise a ClusterError if it is suspended."""
    suspended.require_awake(status.name, status.suspended, backend.flags)
    return status
