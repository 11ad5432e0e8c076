from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tfk8s.core import cluster_spec, naming
from tfk8s.core.spec import Task
from tfk8s.task.config import parse_cluster, parse_tf_config

JOB_NAMES = st.from_regex(naming.JOB_NAME, fullmatch=True)
ADDRESSES = st.lists(
    st.sampled_from(["localhost:2222", "10.0.0.5:1", "[fd00::5]:65535", "a-b.c:80"]), min_size=1, max_size=3
)
SPECS = st.dictionaries(JOB_NAMES, ADDRESSES, min_size=1, max_size=4)


def test_each_form() -> None:
    cluster = {"chief": ["a:1"], "ps": ["b:2", "c:3"]}
    task = Task("ps", 1)
    assert cluster_spec.cluster_spec(cluster) == '{"chief":["a:1"],"ps":["b:2","c:3"]}'
    assert cluster_spec.tf_config(cluster, task.job, task.index) == (
        '{"cluster":{"chief":["a:1"],"ps":["b:2","c:3"]},"task":{"type":"ps","index":1}}'
    )
    assert cluster_spec.flags(cluster, task) == (
        "--cluster_spec=chief|a:1,ps|b:2;c:3 --job_name=ps --task_id=1\n"
        "--chief_hosts=a:1 --ps_hosts=b:2,c:3 --job_name=ps --task_index=1"
    )


@given(SPECS, st.integers(0, 2))
def test_each_form_can_be_parsed(cluster: dict[str, list[str]], index: int) -> None:
    indexed = {job: dict(enumerate(addresses)) for job, addresses in cluster.items()}
    task = Task(next(iter(cluster)), index)
    flag = cluster_spec.flags(cluster, task).split()[0]
    assert parse_cluster(flag.removeprefix("--cluster_spec=")) == indexed
    assert parse_cluster(cluster_spec.cluster_spec(cluster)) == indexed
    assert json.loads(cluster_spec.cluster_spec(cluster)) == cluster
    assert parse_tf_config(cluster_spec.tf_config(cluster, task.job, task.index)) == (indexed, task.job, task.index)
