"""Reasons of tasks that do not start in a real cluster, with the field to change."""

import pytest
from kube_api import post_event
from on_cluster import make_job, make_job_file, until_reason

from tfk8s import render
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.job_file.mappings import Security
from tfk8s.core.quantity import Quantity
from tfk8s.core.status import Phase
from tfk8s.core.storage.volumes import Volume
from tfk8s.errors import ClusterError

pytestmark = pytest.mark.usefixtures("unseen_nodes")

CASES = {
    "gpus": (make_job(gpus=4), "no node has 4 nvidia.com/gpu free", "lower jobs.worker.gpus, or add nodes"),
    "memory": (make_job(memory=Quantity.parse("9Ti")), "no node has 9Ti memory free", "lower jobs.worker.memory"),
    "labels": (make_job(accelerator="nvidia-none"), "no node has the labels", "change jobs.worker.accelerator"),
    "image": (make_job(image="not an image"), "is not the name of an image", "change jobs.worker.image"),
    "secret": (
        make_job(volumes=(Volume(path="/s", secret="absent"),)),
        'there is no Secret "absent"', "create it, or change volumes or jobs.worker.volumes",
    ),
    "map": (make_job(volumes=(Volume(path="/s", config_map="absent"),)), 'there is no ConfigMap "absent"', "create it"),
    "claim": (
        make_job(volumes=(Volume(path="/s", claim="absent"),)),
        'there is no PersistentVolumeClaim "absent"', "create it",
    ),
    "class": (
        make_job(priority_class="absent"), 'there is no PriorityClass "absent"', "change jobs.worker.priority_class",
    ),
    "crash": (make_job(preload=("no_such_module",)), "can't import no_such_module", "ended with exit code 2"),
    "oom": (make_job(memory=Quantity.parse("100Mi"), preload=("tensorflow",)), "OOMKilled", "raise jobs.worker.memory"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_reason_names_the_cause_and_the_field(up, backend, case):
    job, cause, field = CASES[case]
    reason = until_reason(backend, up(make_job_file(f"why-{case}", job), wait=0), cause)
    assert field in reason


def test_a_pod_waits_for_the_node_that_an_autoscaler_starts(up, backend, client, namespace):
    name = up(make_job_file("why-node", make_job(accelerator="nvidia-l4")), wait=0)
    until_reason(backend, name, "no node has the labels")
    pod = client.get(paths.pod(namespace, f"{name}-worker-0"))
    group = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/gke-c-l4-8f1c2d3e-grp"
    post_event(client, pod, "TriggeredScaleUp", f"pod triggered scale-up: [{{{group} 0->1 (max: 3)}}]")
    until_reason(backend, name, "a node of pool c-l4 is being started")
    assert backend.observe(name).tasks[0].node_is_starting


def test_a_missing_service_account(up, backend):
    job_file = make_job_file("why-account", make_job(), security=Security(service_account="absent"))
    assert "change security.service_account" in until_reason(backend, up(job_file, wait=0), "ServiceAccount")


def test_a_quota(client, make_namespace):
    namespace = make_namespace()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"pods": "1"}},
    }
    client.send("POST", f"/api/v1/namespaces/{namespace}/resourcequotas", body=quota)
    backend = KubernetesBackend(namespace=namespace)
    backend.apply(make_job_file("why-quota", make_job(tasks=3, cpu=Quantity.parse("10m"))))
    assert "lower what jobs.worker asks" in until_reason(
        backend, "why-quota", 'the namespace\'s quota "small" is used up'
    )
    backend.delete("why-quota")


def test_pod_security_that_refuses_everything(client, make_namespace, backend, monkeypatch):
    namespace = make_namespace()
    backend = KubernetesBackend(namespace=namespace)
    objects = render.objects

    def privileged(*arguments):
        made_objects = objects(*arguments)
        for made in made_objects:
            if made["kind"] == "StatefulSet":
                made["spec"]["template"]["spec"]["hostNetwork"] = True
        return made_objects

    monkeypatch.setattr(render, "objects", privileged)
    backend.apply(make_job_file("why-refused"))
    until_reason(backend, "why-refused", 'pod security "restricted:latest" refuses its pod: host namespaces')
    assert backend.observe("why-refused").phase is Phase.FAILED
    backend.delete("why-refused")


def test_up_ends_at_once_where_waiting_is_hopeless(up, backend):
    name = up(make_job_file("why-hopeless", make_job(image="not an image")), wait=0)
    with pytest.raises(ClusterError, match="is not the name of an image"):
        wait_until_ready(backend, name, 180)


def test_a_missing_stateful_set_is_named(up, backend, client, namespace):
    name = up(make_job_file("why-gone", make_job(), make_job("ps")), wait=0)
    client.send("DELETE", f"{paths.collection('StatefulSet', namespace)}/{name}-ps")
    until_reason(backend, name, "its StatefulSet or Job is missing: `tfk8s up` creates it again")
