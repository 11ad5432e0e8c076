"""GPUs, on a node that pretends to have two: what tasks ask for, and what the others see."""

import pytest
from on_cluster import make_job, make_job_file, until_reason

from tfk8s import waiting
from tfk8s.backends.kubernetes import paths

PRETENDED = "/status/capacity/nvidia.com~1gpu"


@pytest.fixture(scope="module")
def gpus(client):
    """Two GPUs on the first node, and the node's labels and taints of GKE's."""
    node = f"/api/v1/nodes/{client.get('/api/v1/nodes')['items'][0]['metadata']['name']}"

    def patch(change):
        client.send(
            "PATCH", f"{node}/status", body=[{**change, "path": PRETENDED}], content_type="application/json-patch+json"
        )

    patch({"op": "add", "value": "2"})
    waiting.wait_until(
        lambda: client.get(node)["status"]["allocatable"].get("nvidia.com/gpu") == "2", "the node to show GPUs", 30
    )
    label = "cloud.google.com/gke-accelerator"
    client.send(
        "PATCH", node, body={"metadata": {"labels": {label: "nvidia-l4"}}}, content_type="application/merge-patch+json"
    )
    yield
    client.send(
        "PATCH", node, body={"metadata": {"labels": {label: None}}}, content_type="application/merge-patch+json"
    )
    patch({"op": "remove"})


def test_a_task_gets_gpus_and_another_job_hides_them(gpus, up, client, namespace):
    name = up(make_job_file("with-gpus", make_job(gpus=2, accelerator="nvidia-l4"), make_job("ps")))
    seen = {}
    for job in ("worker", "ps"):
        (container,) = client.get(paths.pod(namespace, f"{name}-{job}-0"))["spec"]["containers"]
        environment = {variable["name"]: variable.get("value") for variable in container["env"]}
        seen[job] = (
            container["resources"]["limits"].get("nvidia.com/gpu"),
            environment.get("CUDA_VISIBLE_DEVICES"),
            environment.get("TF_FORCE_GPU_ALLOW_GROWTH"),
        )
    assert seen == {"worker": ("2", None, "true"), "ps": (None, "-1", None)}


def test_more_gpus_than_a_node_has_are_said_with_the_field(gpus, up, backend):
    name = up(make_job_file("more-gpus", make_job(gpus=3, accelerator="nvidia-l4")), wait=0)
    reason = until_reason(backend, name, "no node has 3 nvidia.com/gpu free")
    assert "lower jobs.worker.gpus" in reason


def test_a_kind_of_gpu_that_no_node_has_is_said_with_the_field(gpus, up, backend):
    name = up(make_job_file("other-gpus", make_job(gpus=1, accelerator="nvidia-h100-80gb")), wait=0)
    assert "change jobs.worker.accelerator" in until_reason(backend, name, "no node has the labels")
