"""The timeouts and intervals that depend on each other, in one place.

These must hold, and tests/unit/sessions/test_timing.py asserts them:

| greater | smaller | because |
| --- | --- | --- |
| `recovering_timeout` | TensorFlow's 11 s | scripts that recover wait for TensorFlow's report of a lost master |
| `recovering_timeout` | `opening_timeout` | a script that recovers may open a session, too |
| `opening_timeout` | the heartbeats a far task misses, `call_timeout` | a session opens once the lost task is back |
| `call_timeout` | `abort_timeout` | the end of a script costs more than the end of a call |
| `abort_timeout` | `check_interval` | a guard checks calls before their time is up |
| `probe_timeout` | `heartbeat_interval` | one late answer is no loss |
| `reason_timeout` | `kubelet_delay` | a session names the reason that kubelet reports late |
| `reason_timeout` | two times `stopped_interval` | the supervisor reports a stopped task at its second poll |
| `reason_timeout` | `local_reason_timeout` | a monitor asks the supervisor before it reports a loss |
| `script_reason_timeout` | `kubelet_delay` | `submit` names the reason, too |
| `script_end_timeout` | `script_reason_timeout` | `run` sees the end of scripts that wait for the reason |
| a deleted pod's grace period, 5 s | `interrupt_timeout` + `close_timeout` | tfk8s ends the script first |
| `end_timeout` | `end_notice`, `interrupt_timeout` + `close_timeout` | a script ends by itself if its calls end |
| `lookup_timeout` | `partial_lookup_timeout` | each session needs the master's connections, few need the others |
| `partial_lookup_timeout` | gRPC's 30 s | gRPC looks a name up again after 30 s at the earliest |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfk8s.core.naming import GRACE


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts and intervals, in seconds.

    Attributes:
        heartbeat_interval: between two heartbeats of a server.
        missed_heartbeats: a server that misses more is lost; one that misses three times as many is dialled again.
        probe_timeout: for a connection to a server, and for its answer.
        check_interval: between two checks of a guard, while a task is lost.
        call_timeout: for a call after a loss; TensorFlow reports most losses itself within this time.
        abort_timeout: likewise, if the call alone ends; TensorFlow reports many losses within this time.
        opening_timeout: for a call that opens a session, which waits for all tasks.
        recovering_timeout: for calls of scripts that recover from losses themselves.
        silent_timeout: for a lost worker of a ClusterCoordinator, until its connections are ended.
        hopeless_timeout: for a ClusterCoordinator without workers, until the script is ended.
        interrupt_timeout: for a call after Ctrl-C.
        close_timeout: for a call whose session was closed after Ctrl-C.
        end_notice: until a script that goes on after Ctrl-C is said to wait.
        end_timeout: until this script is ended.
        term_timeout: for its handler of SIGTERM then.
        reason_timeout: until a session knows why a task was lost.
        kubelet_delay: until kubelet has reported the end of a container.
        script_reason_timeout: until `submit` knows why a task was lost.
        script_end_timeout: until scripts that lost the same task have ended, for `run`, which then removes the cluster.
        local_reason_timeout: until the supervisor knows why a task was lost.
        stopped_interval: between two polls of the supervisor for stopped tasks.
        lookup_timeout: until the master has the new address of a task.
        partial_lookup_timeout: until all other tasks have that address.
    """

    heartbeat_interval: float = 1.0
    missed_heartbeats: int = 2
    probe_timeout: float = 2.0
    check_interval: float = 0.25
    call_timeout: float = 3.0
    abort_timeout: float = 1.0
    opening_timeout: float = 9.0
    recovering_timeout: float = 30.0
    silent_timeout: float = 10.0
    hopeless_timeout: float = 300.0
    interrupt_timeout: float = 1.0
    close_timeout: float = 2.0
    end_notice: float = 2.0
    end_timeout: float = 15.0
    term_timeout: float = 2.0
    reason_timeout: float = 3.0
    kubelet_delay: float = 2.5
    script_reason_timeout: float = 3.0
    script_end_timeout: float = 5.0
    local_reason_timeout: float = 1.0
    stopped_interval: float = 1.0
    lookup_timeout: float = 90.0
    partial_lookup_timeout: float = 40.0


TIMING = Timing()
FAR = replace(TIMING, missed_heartbeats=3)  # for connections through others, such as an API server
_LEAST_END = 4.0  # so that a script ends by itself if its calls end


def with_grace(environment: Mapping[str, str]) -> Timing:
    """Return the timing of a script with these variables: the job file's `grace` is the time to end and to save."""
    if GRACE not in environment:
        return TIMING
    seconds = float(environment[GRACE])
    return replace(TIMING, end_timeout=end_timeout(seconds), term_timeout=seconds)


def end_timeout(grace: float | None) -> float:
    """Return the seconds until a script is ended that goes on after Ctrl-C; `grace` is the job file's, None without."""
    return TIMING.end_timeout if grace is None else max(grace, _LEAST_END)
