"""Restarts: whether kubelet restarts a container soon."""

from __future__ import annotations

import pytest

from tfk8s.backends.kubernetes import restart
from tfk8s.backends.kubernetes.pods import pod_status
from tfk8s.render.pods import Object

START = pod_status.seconds("2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("state", "restarts", "after", "quick"),
    [
        ("running", 0, 5, True),
        ("running", 1, 5, True),
        ("running", 2, 5, False),  # kubelet would wait 20 s
        ("running", 9, 601, True),
        ("waiting", 0, 5, False),
    ],
)
def test_kubelet_delays_repeated_restarts(state: str, restarts: int, after: float, quick: bool) -> None:
    started: Object = {"startedAt": "2026-01-01T00:00:00Z"}
    container: Object = {"name": "server", "state": {state: started}, "restartCount": restarts}
    pod: Object = {"metadata": {}, "status": {"containerStatuses": [container]}}
    assert restart.restarts_quickly(pod, START + after) is quick
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not restart.restarts_quickly(pod, START + after)
