"""What `doctor` finds in a real cluster."""

from on_cluster import IMAGE

from tfk8s.backends.kubernetes import health, paths, policyprobe


def test_nothing_is_missing_and_policies_are_enforced(client, namespace):
    found = {check.name: check for check in health.checks(None, namespace, IMAGE)}
    assert {name: check.state for name, check in found.items()} == dict.fromkeys(found, "ok")
    assert found["NetworkPolicy"].detail.startswith("enforced")


def test_the_probe_leaves_nothing_behind(client, namespace):
    policyprobe.enforced(client, namespace, IMAGE)
    left = [
        one["metadata"]["name"]
        for kind in ("Pod", "NetworkPolicy")
        for one in client.get(paths.collection(kind, namespace))["items"]
        if "deletionTimestamp" not in one["metadata"]
    ]
    assert [name for name in left if name.startswith("tfk8s-doctor")] == []
