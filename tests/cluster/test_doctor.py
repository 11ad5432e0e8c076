"""`doctor` in a real cluster."""

from on_cluster import IMAGE

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.tools.doctor import kubernetes


def test_doctor_finds_no_problem_and_leaves_no_pod(client, namespace):
    found = {check.name: check for check in kubernetes.checks(None, namespace, IMAGE)}
    assert {name: check.state for name, check in found.items()} == dict.fromkeys(found, "ok")
    assert found["NetworkPolicy"].detail.startswith("enforced")
    left = [
        one["metadata"]["name"]
        for kind in ("Pod", "NetworkPolicy")
        for one in client.get(paths.collection(kind, namespace))["items"]
        if "deletionTimestamp" not in one["metadata"]
    ]
    assert [name for name in left if name.startswith("tfk8s-doctor")] == []
