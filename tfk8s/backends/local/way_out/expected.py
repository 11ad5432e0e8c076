"""The way out that a new cluster would have."""

from __future__ import annotations

from collections.abc import Collection

from tfk8s.core.job_file.mappings import Destination


def expected(allow_to: Collection[Destination] | None, *, exposed: bool) -> str:
    """Return the way in words; "" if this machine would refuse the cluster.

    Args:
        allow_to: `network.allow_to` of the job file.
        exposed: whether the user wants no network of the cluster's own.
    """
    from tfk8s.backends.local import isolation  # needs Linux, as the next
    from tfk8s.backends.local.way_out.supervisor_part import planned

    try:
        return planned(allow_to, shared=exposed or isolation.probe().is_shared).text
    except isolation.Refused:
        return ""
