"""A kind cluster from beginning to end, with a kubeconfig of its own; no image is loaded."""

from tfk8s.features.doctor import kubernetes
from tfk8s.features.images import kind

NAME = "tfk8s-kind-test"


def test_kind_up_and_down(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    if NAME in kind.clusters():
        kind.down(NAME)
    caplog.set_level("INFO")
    kind.up(NAME, gpus=8)
    try:
        found = {check.name: check for check in kubernetes.checks(kind.context(NAME), None, None)}
        assert found["GPUs"].detail == f"free: {NAME}-control-plane 8 of 8 nvidia.com/gpu"
        assert found["permissions: up"].state == "ok"
    finally:
        kind.down(NAME)
    assert caplog.messages == ["each node pretends to have 8 nvidia.com/gpu"]
    assert NAME not in kind.clusters()
