"""GPUs, on a node that pretends to have two."""

import pytest
from kube_api import MERGE
from on_cluster import left, make_job, make_job_file, until_reason

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.cluster.gpus import require_gpus
from tfk8s.errors import ClusterError, InvalidInput

PRETENDED = "/status/capacity/nvidia.com~1gpu"


@pytest.fixture(scope="module")
def node(client):
    """The path of the first node."""
    return f"/api/v1/nodes/{client.get('/api/v1/nodes')['items'][0]['metadata']['name']}"


@pytest.fixture(scope="module")
def gpus(client, node):
    """Two GPUs on the first node, and the node's labels of GKE's."""

    def patch(change):
        client.send(
            "PATCH", f"{node}/status", body=[{**change, "path": PRETENDED}], content_type="application/json-patch+json"
        )

    patch({"op": "add", "value": "2"})
    polling.wait_until(
        lambda: client.get(node)["status"]["allocatable"].get("nvidia.com/gpu") == "2", "the node to show GPUs", 120
    )
    label = "cloud.google.com/gke-accelerator"
    client.send("PATCH", node, body={"metadata": {"labels": {label: "nvidia-l4"}}}, content_type=MERGE)
    yield
    client.send("PATCH", node, body={"metadata": {"labels": {label: None}}}, content_type=MERGE)
    patch({"op": "remove"})


def test_a_task_gets_gpus_and_another_job_hides_them(gpus, up, client, namespace, backend):
    name = up(make_job_file("with-gpus", make_job(gpus=2, accelerator="nvidia-l4"), make_job("ps")))
    with pytest.raises(ClusterError) as caught:
        require_gpus(backend, backend.observe(name))
    assert str(caught.value) == (
        f'cluster "{name}" is up, but TensorFlow does not see all GPUs: worker/0 sees 0 of 2: '
        "the image has TensorFlow for CPUs only"
    )
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


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (make_job(gpus=3), "it asks for 3 nvidia.com/gpu, and no node has more than 2: lower jobs.worker.gpus"),
        (
            make_job(gpus=1, accelerator="nvidia-h100-80gb"),
            (
                "no node has the label cloud.google.com/gke-accelerator=nvidia-h100-80gb, only "
                "cloud.google.com/gke-accelerator=nvidia-l4: change jobs.worker.accelerator"
            ),
        ),
    ],
)
def test_a_task_that_fits_no_node_is_refused(gpus, backend, client, namespace, job, words):
    for call in (backend.apply, backend.plan):
        with pytest.raises(InvalidInput) as caught:
            call(make_job_file("too-much", job))
        assert str(caught.value) == f"no node can ever hold a task of job worker: {words}"
    assert left(client, namespace, "too-much") == []


def test_the_reason_names_the_field_of_gpus_in_use(gpus, up, backend):
    up(make_job_file("has-gpus", make_job(gpus=2)))
    name = up(make_job_file("more-gpus", make_job(gpus=1, accelerator="nvidia-l4")), wait=0)
    assert "lower jobs.worker.gpus" in until_reason(backend, name, "no node has 1 nvidia.com/gpu free")


def test_a_cluster_with_an_autoscaler_refuses_no_task(gpus, up, backend, client, node):
    pool = "cloud.google.com/gke-nodepool"
    client.send("PATCH", node, body={"metadata": {"labels": {pool: "default"}}}, content_type=MERGE)
    try:
        name = up(make_job_file("grows", make_job(gpus=3)), wait=0)
    finally:
        client.send("PATCH", node, body={"metadata": {"labels": {pool: None}}}, content_type=MERGE)
    assert "lower jobs.worker.gpus" in until_reason(backend, name, "no node has 3 nvidia.com/gpu free")
