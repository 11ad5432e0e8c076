"""The words of all backends about a suspended cluster."""

from __future__ import annotations

from datetime import UTC, datetime

from tfk8s.core.lifetime import Suspension
from tfk8s.errors import ClusterError


def why_unusable(name: str, suspension: Suspension) -> str:
    """Return why nothing can use a suspended cluster, as a sentence."""
    since = datetime.fromtimestamp(suspension.since, UTC)
    return f'cluster "{name}" is suspended since {since:%Y-%m-%dT%H:%M:%SZ} by {suspension.by}'


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
