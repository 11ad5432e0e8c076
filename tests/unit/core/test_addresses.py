from __future__ import annotations

import pytest

from tfk8s.core import addresses
from tfk8s.core.spec import Job, JobFile

CLUSTER = JobFile(
    name="mnist",
    jobs=(Job(name="chief"), Job(name="ps", tasks=2, port=3000), Job(name="worker_", tasks=2)),
    master="chief",
    port=2222,
)


def test_addresses_on_this_machine() -> None:
    address = addresses.local_address(CLUSTER)
    assert [address(task) for task in CLUSTER] == [
        "localhost:2222",
        "localhost:3000",
        "localhost:3001",
        "localhost:2223",
        "localhost:2224",
    ]


def test_jobs_with_the_same_port_share_a_range() -> None:
    assert addresses.loopback_ports({"a": 1, "b": 5, "c": 5, "d": 1}) == {"a": 1, "b": 5, "c": 6, "d": 2}


def test_addresses_in_kubernetes() -> None:
    address = addresses.pod_address(CLUSTER, "ml")
    assert [address(task) for task in CLUSTER] == [
        "mnist-chief-0.mnist.ml.svc:2222",
        "mnist-ps-0.mnist.ml.svc:3000",
        "mnist-ps-1.mnist.ml.svc:3000",
        "mnist-worker-b2b3-0.mnist.ml.svc:2222",
        "mnist-worker-b2b3-1.mnist.ml.svc:2222",
    ]


def test_given_addresses() -> None:
    job_file = JobFile(name="a", jobs=(Job(name="b", tasks=2, addresses=("c:1", "d:2")),), master="b")
    assert job_file.cluster_spec(addresses.given_address(job_file)) == {"b": ["c:1", "d:2"]}


@pytest.mark.parametrize(
    ("address", "parts"), [("localhost:2222", ("localhost", 2222)), ("[fd00::5]:65535", ("fd00::5", 65535))]
)
def test_host_and_port(address: str, parts: tuple[str, int]) -> None:
    assert addresses.host_and_port(address) == parts
