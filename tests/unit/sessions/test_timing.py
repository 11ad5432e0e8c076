"""The table of tfk8s/sessions/timing.py."""

from __future__ import annotations

from tfk8s.sessions.timing import FAR, TIMING

TENSORFLOW_REPORTS_A_LOST_MASTER = 11
GRPC_REPEATS_A_LOOKUP = 30
GRACE_PERIOD_OF_PODS = 5
POLLS_FOR_A_STOPPED_TASK = 2


def test_each_timeout_is_greater_than_those_within_it() -> None:
    t = TIMING
    assert t.recovering_timeout > max(TENSORFLOW_REPORTS_A_LOST_MASTER, t.opening_timeout)
    assert t.opening_timeout > max(FAR.missed_heartbeats * FAR.heartbeat_interval, t.call_timeout)
    assert t.call_timeout > t.abort_timeout > t.check_interval
    assert t.probe_timeout > t.heartbeat_interval
    assert t.reason_timeout > max(t.kubelet_delay, POLLS_FOR_A_STOPPED_TASK * t.stopped_interval)
    assert t.reason_timeout > t.local_reason_timeout
    assert t.script_end_timeout > t.script_reason_timeout > t.kubelet_delay
    assert t.interrupt_timeout + t.close_timeout < GRACE_PERIOD_OF_PODS
    assert t.end_timeout > max(t.end_notice, t.interrupt_timeout + t.close_timeout)
    assert t.lookup_timeout > t.partial_lookup_timeout > GRPC_REPEATS_A_LOOKUP
