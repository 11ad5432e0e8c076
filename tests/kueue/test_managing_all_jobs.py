"""A Kueue that manages all Jobs, also those in no queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kube_api import KubeApi
from team import Team, cluster, install, programs

SETTINGS = """\
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector:
  matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kueue-system]}]
"""


@pytest.fixture(scope="module")
def manager_of_all(client: KubeApi, kueue: None) -> Iterator[None]:
    install(client.context, SETTINGS)
    yield
    install(client.context)


@pytest.mark.usefixtures("manager_of_all")
def test_servers_are_one_group_and_the_jobs_that_are_held_back_say_so(team: Callable[..., Team]) -> None:
    ours = team("600m")
    ours.backend.apply(cluster("a", max_duration=3600))
    found = ours.until_ready("a")
    held = "Kueue has suspended its Job, which is in no queue: have an administrator let Kueue leave such Jobs alone"
    assert held in found.limits_problem
    ours.backend.apply(programs("b"))
    ours.until_said("b", held)
