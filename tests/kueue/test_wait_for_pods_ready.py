"""A Kueue with `waitForPodsReady`, which takes away what does not start in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kube_api import KubeApi
from team import Team, install, programs


@pytest.fixture(scope="module")
def hurried(client: KubeApi, kueue: None) -> Iterator[None]:
    install(client.context, "waitForPodsReady: {timeout: 20s}")
    yield
    install(client.context)


@pytest.mark.usefixtures("hurried")
def test_what_does_not_start_in_time_makes_room_and_says_so(team: Callable[..., Team]) -> None:
    ours = team("300m")
    ours.backend.apply(programs("a", image="docker.io/tfk8s/none:1"))
    ours.until("a", lambda found: any("image" in task.reason for task in found.tasks))
    ours.backend.apply(programs("b"))
    ours.until_said("a", "it was evicted (PodsReadyTimeout): Exceeded the PodsReady timeout")
    ours.until_ready("b")
