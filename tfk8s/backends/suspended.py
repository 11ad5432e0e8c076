"""The words of all backends about a suspended cluster, and its end while no process watches its limits."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from tfk8s.core.lifetime import Limits, Suspension, format_duration
from tfk8s.errors import ClusterError


def why_unusable(name: str, suspension: Suspension) -> str:
    """Return why nothing can use a suspended cluster, as a sentence."""
    since = datetime.fromtimestamp(suspension.since, UTC)
    cause = f", idle for {format_duration(suspension.idle)}" if suspension.idle else f" by {suspension.by}"
    return f'cluster "{name}" is suspended since {since:%Y-%m-%dT%H:%M:%SZ}{cause}'


def reason(name: str, suspension: Suspension, flags: str) -> str:
    """Return the same with the cure, in one line, for a status."""
    return f"{why_unusable(name, suspension)}: tfk8s resume{flags} {name}"


def require_awake(name: str, suspension: Suspension | None, flags: str) -> None:
    """Raise a ClusterError for a command that needs a cluster that is not suspended.

    Args:
        suspension: None if the cluster is not suspended.
        flags: as of `Backend`.
    """
    if suspension:
        raise ClusterError(why_unusable(name, suspension), help=f"tfk8s resume{flags} {name}")


def why_over(limits: Limits, created: float, wish: Suspension, now: float) -> str:
    """Return the reason to remove a suspended cluster, or "" if no limit is reached.

    Without a time until the suspension, `idle` does not count in a suspension.

    Args:
        limits: the cluster's.
        created: the time of the cluster's first `up`, in seconds since the epoch.
        wish: that the cluster is suspended.
        now: the time in seconds since the epoch.
    """
    return limits.why_over(now - created, 0.0 if limits.suspend is None else wish.quiet(now))


def end_of(limits: Limits, created: float, wish: Suspension) -> float:
    """Return the time at which a suspended cluster reaches a limit; infinity without a limit."""
    idle = None if limits.suspend is None else limits.idle
    ends = ((created, limits.max_duration), (wish.since - wish.idle, idle))
    return min((begin + limit for begin, limit in ends if limit is not None), default=math.inf)
