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


pytestmark = pytest.mark.usefixtures("manager_of_all")
TWICE = "and runs no program of a cluster in a queue then: take `queue` out of the job file"


def test_servers_are_one_group_and_the_jobs_that_are_held_back_say_so(team: Callable[..., Team]) -> None:
    ours = team("600m")
    ours.backend.apply(cluster("a", max_duration=3600))
    found = ours.until_ready("a")
    held = "Kueue has suspended its Job, which is in no queue: have an administrator make a LocalQueue named default"
    assert held in found.limits_problem
    ours.backend.apply(programs("b"))
    ours.until_said("b", TWICE)


def test_a_default_queue_lets_limits_be_kept_with_a_full_quota(team: Callable[..., Team]) -> None:
    ours = team("300m")
    ours.set_default_queue()
    ours.backend.apply(cluster("a", max_duration=40))
    ours.until_limits_make_room(cluster("b"), "insufficient unused quota")


def test_programs_run_without_their_queue_in_the_default_queue(team: Callable[..., Team]) -> None:
    ours = team("600m")
    ours.set_default_queue(**{"ephemeral-storage": "100Gi"})
    ours.backend.apply(programs("a"))
    ours.until_said("a", TWICE)
    ours.backend.delete("a")
    ours.backend.apply(programs("a", queue=None))
    ours.until_ready("a")
