"""Tasks that ask for little, and tasks that ask for more than all nodes have."""

import pytest
from on_cluster import left, make_job, make_job_file

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.core.spec import Job
from tfk8s.errors import InvalidInput


def test_the_short_form_starts_on_a_node_of_two_cores(up, backend):
    name = up(make_job_file("short", *(Job(name=job) for job in ("master", "worker", "worker_"))))
    assert str(backend.observe(name).requests) == "300m cpu, 1536Mi memory"


def test_tasks_that_fit_one_by_one_and_not_together(backend, client, namespace):
    with pytest.raises(
        InvalidInput, match=r"^the tasks of job worker request 1500 cpu, .* in sum, and .*: lower their"
    ):
        backend.apply(make_job_file("large", make_job(tasks=10_000)))
    assert not left(client, namespace, "large")


def test_a_cluster_avoids_nodes(up, backend, client, namespace):
    node = client.get(paths.NODES)["items"][0]["metadata"]["name"]
    with pytest.raises(InvalidInput, match="it avoids every node: shorten avoid"):
        backend.apply(make_job_file("nowhere", make_job(), avoid=(node,)))
    assert not left(client, namespace, "nowhere")
    name = up(make_job_file("elsewhere", make_job(), avoid=("unknown-a", "unknown-b")))
    assert backend.observe(name).tasks[0].node == node
