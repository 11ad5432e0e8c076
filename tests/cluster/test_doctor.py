"""`doctor` in a real cluster."""

from on_cluster import IMAGE

from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.cluster import network_policy
from tfk8s.features.doctor import kubernetes

SILENT = "127.0.0.1:9"  # no test asks the metadata server of a real node


def test_doctor_finds_no_problem_and_leaves_no_pod(client, namespace, monkeypatch):
    monkeypatch.setattr(network_policy, "METADATA", SILENT)
    found = {check.name: check for check in kubernetes.checks(None, namespace, IMAGE)}
    states = {**dict.fromkeys(found, "ok"), "API server, from pods": "note"}
    assert {name: check.state for name, check in found.items()} == states
    assert found["NetworkPolicy"].detail.startswith("enforced")
    left = [
        one["metadata"]["name"]
        for kind in ("Pod", "NetworkPolicy")
        for one in client.get(paths.collection(kind, namespace))["items"]
        if "deletionTimestamp" not in one["metadata"]
    ]
    assert [name for name in left if name.startswith("tfk8s-doctor")] == []
