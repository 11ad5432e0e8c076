"""`doctor` in a real cluster."""

from on_cluster import IMAGE

from tfk8s.backends.kubernetes import paths
from tfk8s.tools.doctor import kubernetes


def test_nothing_is_missing_policies_are_enforced_and_no_pod_is_left(client, namespace):
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
