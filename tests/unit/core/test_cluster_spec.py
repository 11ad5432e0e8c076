from __future__ import annotations

import json
import shlex

from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core import addresses, cluster_spec, naming
from tfk8s.core.environment import environment_lines, script_environment
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.task.config import parse_cluster, parse_tf_config

CLUSTER = JobFile(
    name="mnist",
    jobs=(Job(name="chief"), Job(name="ps", tasks=2, port=3000), Job(name="worker_", tasks=2)),
    master="chief",
    port=2222,
)
JOB_NAMES = st.from_regex(naming.JOB_NAME, fullmatch=True)
ADDRESSES = st.lists(
    st.sampled_from(["localhost:2222", "10.0.0.5:1", "[fd00::5]:65535", "a-b.c:80"]), min_size=1, max_size=3
)
SPECS = st.dictionaries(JOB_NAMES, ADDRESSES, min_size=1, max_size=4)


def test_addresses_on_this_machine() -> None:
    address = addresses.local_address(CLUSTER)
    assert [address(task) for task in CLUSTER] == [
        "localhost:2222",
        "localhost:3000",
        "localhost:3001",
        "localhost:2223",
        "localhost:2224",
    ]


def test_the_ports_of_a_single_machine_are_known_from_the_addresses_of_pods() -> None:
    pods, here = addresses.pod_address(CLUSTER, "ml"), addresses.local_address(CLUSTER)
    ports = addresses.loopback_ports({task: pods(task) for task in CLUSTER})
    assert {task: f"localhost:{port}" for task, port in ports.items()} == {task: here(task) for task in CLUSTER}


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


def test_the_forms() -> None:
    cluster = {"chief": ["a:1"], "ps": ["b:2", "c:3"]}
    task = Task("ps", 1)
    assert cluster_spec.cluster_spec(cluster) == '{"chief":["a:1"],"ps":["b:2","c:3"]}'
    assert cluster_spec.tf_config(cluster, task) == (
        '{"cluster":{"chief":["a:1"],"ps":["b:2","c:3"]},"task":{"type":"ps","index":1}}'
    )
    assert cluster_spec.flags(cluster, task) == (
        "--cluster_spec=chief|a:1,ps|b:2;c:3 --job_name=ps --task_id=1\n"
        "--chief_hosts=a:1 --ps_hosts=b:2,c:3 --job_name=ps --task_index=1"
    )
    assert environment_lines(script_environment(cluster, "grpc://a:1")) == (
        'TFK8S_CLUSTER=\'{"chief":["a:1"],"ps":["b:2","c:3"]}\'\nTFK8S_TARGET=grpc://a:1'
    )


@given(SPECS, st.integers(0, 2))
def test_every_form_reads_back_as_the_same_cluster(cluster: dict[str, list[str]], index: int) -> None:
    indexed = {job: dict(enumerate(addresses)) for job, addresses in cluster.items()}
    task = Task(next(iter(cluster)), index)
    flag = cluster_spec.flags(cluster, task).split()[0]
    assert parse_cluster(flag.removeprefix("--cluster_spec=")) == indexed
    assert parse_cluster(cluster_spec.cluster_spec(cluster)) == indexed
    assert parse_tf_config(cluster_spec.tf_config(cluster, task)) == (indexed, task.job, task.index)


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True), st.text()))
def test_a_shell_reads_the_environment_back(environment: dict[str, str]) -> None:
    words = shlex.split(environment_lines(environment))
    assert dict(word.split("=", 1) for word in words) == environment


@given(SPECS)
def test_json_is_json(cluster: dict[str, list[str]]) -> None:
    assert json.loads(cluster_spec.cluster_spec(cluster)) == cluster
