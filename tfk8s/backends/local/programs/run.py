"""The run of a local cluster's programs: runs them again by the rules of the job file, and ends them together."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tfk8s.backends.local.programs.process import ProgramProcess
from tfk8s.core import job_kinds, programs
from tfk8s.core.events import RESTARTED
from tfk8s.core.lifetime import format_duration
from tfk8s.core.programs import CLUSTER, TASK, RestartGroup, RunPolicy
from tfk8s.core.spec import JobFile
from tfk8s.core.status import Phase
from tfk8s.sessions.forks.event_loop import Loop

_CAUSE_TIMEOUT = 1.0  # a program that lost another task ends before the supervisor learns the other one's end
_STOPPED_INTERVAL = 1.0


class _Group(RestartGroup):
    """The programs that run again together.

    Args:
        policy: the rules of the run.
        members: the programs.
    """

    def __init__(self, policy: RunPolicy, members: Sequence[ProgramProcess]) -> None:
        super().__init__(policy)
        self.members = members


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a run, as the programs show it that still run.

    Attributes:
        phase, reason: their phase and its reason.
        exit_code: their exit code; None if another program has that of the run.
    """

    phase: Phase
    reason: str
    exit_code: int | None = None


class ProgramRun:
    """The run of the programs.

    Args:
        job_file: has the rules.
        members: the programs; none if the cluster has only servers.
    """

    def __init__(self, loop: Loop, job_file: JobFile, members: Sequence[ProgramProcess]) -> None:
        self._loop, self._policy, self._members = loop, job_file.run, members
        self._success = [str(task) for task in job_kinds.success_tasks(job_file)]
        self._groups = _groups(self._policy, members)
        self._end: _End | None = None
        self._number = 0  # of the run: the timers of an earlier run have no effect
        self._stopped_since: dict[ProgramProcess, float] = {}
        for member in members:
            member.on_end = self._on_end

    @property
    def is_running(self) -> bool:
        """True while a program runs, or is about to run again."""
        return bool(self._members) and (self._end is None or any(member.is_running for member in self._members))

    def start(self) -> None:
        """Start all programs."""
        for group in self._groups:
            self._start_group(group, "")
        self._start_timers()

    def restart(self, chosen: Collection[ProgramProcess]) -> None:
        """Restart programs on request, with all others of their restart scope; all programs after the run's end."""
        if not chosen:  # a server restarts
            return
        has_ended, self._end = self._end is not None, None
        if has_ended:
            self._start_timers()
        for group in self._groups:
            if has_ended or any(member in chosen for member in group.members):
                group.restart_at_once(RESTARTED, counts_anew=True)
                self._end_members(group)

    def stop(self) -> None:
        """End all programs with their cluster."""
        self._finish(_End(Phase.FAILED, "stopped"))

    def kill(self) -> None:
        """Kill the programs that still run."""
        for member in self._members:
            member.kill()

    # ---- the end of a program ----

    def _on_end(self, member: ProgramProcess, code: int, text: str) -> None:
        group = next(group for group in self._groups if member in group.members)
        if self._end is not None:
            self._show_end(member, self._end)
        elif group.reason:
            member.enter(Phase.FAILED, group.reason)
            self._start_when_ended(group)
        elif code == 0:
            member.succeed()
            self._check_success()
        else:
            member.enter(Phase.FAILED, text)
            judge = functools.partial(self._judge, self._number, member, group, code, text)
            self._loop.after(_CAUSE_TIMEOUT, judge) if code == programs.PEER_LOST else judge()

    def _judge(self, number: int, member: ProgramProcess, group: _Group, code: int, text: str) -> None:
        """Restart a program that has failed, or end the run, unless another program's end has decided meanwhile."""
        if self._end is not None or group.reason or member.is_running or number != self._number:
            return
        cause = text if len(group.members) == 1 else f"{member.name} ended: {text}"
        stopped = [other.name for other in self._members if other.stopped_reason()]
        if code == programs.PEER_LOST and stopped:
            cause = f"{stopped[0]} was stopped by a signal"
        if group.may_restart(code):
            group.restart_after_failure(cause, time.monotonic())
            self._end_members(group)
        else:
            member.exit_code = code
            member.enter(Phase.FAILED, text)
            self._finish(_End(Phase.FAILED, f"ended: {member.name} failed"))

    def _check_success(self) -> None:
        ended = {member.name: member.exit_code for member in self._members if member.exit_code is not None}
        if programs.run_result(ended, self._success) == 0:
            self._finish(_End(Phase.SUCCEEDED, "ended: the run succeeded"))

    # ---- restarts ----

    def _end_members(self, group: _Group) -> None:
        for member in group.members:
            member.end()
        self._start_when_ended(group)

    def _start_when_ended(self, group: _Group) -> None:
        if not any(member.is_running for member in group.members):
            self._loop.after(group.pause, functools.partial(self._start_again, self._number, group))

    def _start_again(self, number: int, group: _Group) -> None:
        if group.reason and number == self._number:
            self._start_group(group, group.reason)

    def _start_group(self, group: _Group, reason: str) -> None:
        if self._end is not None or any(member.is_running for member in group.members):
            return
        group.start(time.monotonic())
        for member in group.members:
            member.restarts += bool(reason)
            member.start(reason)

    # ---- the end of the run ----

    def _finish(self, end: _End) -> None:
        self._end = end
        for member in self._members:
            if member.is_running:
                member.end()
            elif member.exit_code is None:
                self._show_end(member, end)

    def _show_end(self, member: ProgramProcess, end: _End) -> None:
        member.exit_code = end.exit_code
        member.enter(end.phase, end.reason)

    # ---- timers ----

    def _start_timers(self) -> None:
        self._number += 1
        number = self._number
        if self._policy.timeout is not None:
            self._loop.after(self._policy.timeout, lambda: self._time_out(number))
        if self._members:
            self._poll_stopped(number)

    def _time_out(self, number: int) -> None:
        if self._end is None and number == self._number and self._policy.timeout is not None:
            limit = format_duration(self._policy.timeout)
            self._finish(_End(Phase.FAILED, f"ended: the run has reached its timeout of {limit}", programs.TIMED_OUT))

    def _poll_stopped(self, number: int) -> None:
        """Kill a program that a signal has stopped for a while: nobody else ends it, and the others wait for it."""
        if self._end is not None or number != self._number:
            return
        now = time.monotonic()
        stopped = [member for member in self._members if member.stopped_reason()]
        self._stopped_since = {member: self._stopped_since.get(member, now) for member in stopped}
        for member, since in self._stopped_since.items():
            if now - since >= programs.MAX_STOPPED:
                member.kill()
        self._loop.after(_STOPPED_INTERVAL, lambda: self._poll_stopped(number))


def _groups(policy: RunPolicy, members: Sequence[ProgramProcess]) -> list[_Group]:
    """Return the programs in groups that run again together."""
    groups: dict[str, list[ProgramProcess]] = {}
    for member in members:
        groups.setdefault({CLUSTER: "", TASK: member.name}.get(policy.restart_scope, member.job), []).append(member)
    return [_Group(policy, group) for group in groups.values()]
