"""Sums of what tasks request, compared with sums of what nodes have."""

from fakes.stateful_sets import stateful_sets
from hypothesis import given
from hypothesis import strategies as st

from tfk8s.backends.kubernetes.pods.total_requests import Demand, free, requested, requests, shortages
from tfk8s.core.resources import Resources


def demand(job, tasks, nodes, **requested):
    return Demand(job=job, tasks=tasks, requests=Resources.parse(requested), nodes=frozenset(nodes))


def words(demands, **room):
    return list(map(str, shortages(demands, {name: Resources.parse(amounts) for name, amounts in room.items()})))


def test_tasks_that_fit_one_by_one_and_not_together():
    demands = [demand("master", 1, "a", cpu="1"), demand("worker", 2, "a", cpu="1", memory="1Gi")]
    assert words(demands, a={"cpu": "3", "memory": "2Gi"}) == []
    assert words(demands, a={"cpu": "2", "memory": "1536Mi"}) == [
        (
            "the tasks of jobs master and worker request 3 cpu, 2Gi memory in sum, "
            "and the only node for them has 2 cpu, 1536Mi memory"
        )
    ]


def test_sixteen_gpus_of_eight():
    demands = [demand("ps", 2, "abc", cpu="1"), demand("worker", 4, "bc", cpu="1", **{"nvidia.com/gpu": "4"})]
    gpu_node = {"cpu": "8", "nvidia.com/gpu": "4"}
    assert words(demands, a={"cpu": "8"}, b=gpu_node, c=gpu_node) == [
        "the tasks of job worker request 16 nvidia.com/gpu in sum, and the 2 nodes for them have 8 nvidia.com/gpu"
    ]


def test_jobs_that_ask_for_none_of_what_is_short_are_not_named():
    demands = [demand("ps", 1, "a", cpu="1"), demand("worker", 2, "a", cpu="1", **{"nvidia.com/gpu": "1"})]
    (shortage,) = shortages(demands, {"a": Resources.parse({"cpu": "3", "nvidia.com/gpu": "1"})})
    assert (shortage.jobs, shortage.remedy) == (("worker",), "lower their tasks or gpus")


def test_jobs_that_share_nodes_are_summed_and_others_are_not():
    demands = [demand("a", 1, "x", cpu="1"), demand("b", 1, "y", cpu="1"), demand("c", 2, "xy", cpu="1")]
    assert words(demands, x={"cpu": "2"}, y={"cpu": "2"}) == []
    assert words(demands, x={"cpu": "3"}, y={"cpu": "500m"}) == [
        "the tasks of job b request 1 cpu in sum, and the only node for them has 500m cpu",
    ]
    assert words(demands, x={"cpu": "2"}, y={"cpu": "1"}) == [
        "the tasks of jobs a, b and c request 4 cpu in sum, and the 2 nodes for them have 3 cpu"
    ]


def test_tasks_without_nodes_are_short_of_all():
    assert words([demand("worker", 2, "", cpu="500m")]) == [
        "the tasks of job worker request 1 cpu in sum, and no node takes them"
    ]


@given(st.lists(st.tuples(st.integers(1, 3), st.sets(st.sampled_from("ab"), min_size=1)), min_size=1, max_size=4))
def test_tasks_that_a_scheduler_could_place_are_never_short(placed):
    """Each task is placed on one of its nodes, and each node has just what its tasks request."""
    demands = [demand(str(number), 1, nodes, cpu=str(cpus)) for number, (cpus, nodes) in enumerate(placed)]
    room = {name: Resources() for name in "ab"}
    for one in demands:
        room[min(one.nodes)] += one.requests
    assert shortages(demands, room) == []


def test_what_pods_leave_free():
    node = {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "2", "memory": "2Gi"}}}
    container = {"resources": {"requests": {"cpu": "250m", "memory": "256Mi"}}}
    ends, stays = {**container}, {**container, "restartPolicy": "Always"}
    pod = {"nodeName": "a", "containers": [container, {}], "initContainers": [ends, stays]}
    assert requests(pod) == Resources.parse({"cpu": "500m", "memory": "512Mi"})
    starts = {"resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}
    assert requests({**pod, "initContainers": [starts, stays]}) == Resources.parse({"cpu": "1", "memory": "512Mi"})
    whole = {**pod, "resources": {"requests": {"cpu": "2"}}}
    assert requests(whole) == Resources.parse({"cpu": "2", "memory": "512Mi"})
    pods = [{"spec": pod}, {"spec": {**pod, "nodeName": "b"}}, {"spec": {"containers": [container]}}]
    assert free([node], pods) == {"a": Resources.parse({"cpu": "1500m", "memory": "1536Mi"})}


def test_what_all_tasks_request():
    assert str(requested(stateful_sets())) == "2200m cpu, 9Gi memory, 1 nvidia.com/gpu"
