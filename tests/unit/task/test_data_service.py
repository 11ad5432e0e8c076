"""tf.data's service in pods; the service itself runs in tests/local."""

from __future__ import annotations

from typing import Any

from job_files import job_file

from tfk8s import render
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job
from tfk8s.task import config

JOBS = (Job(name="ps"), Job(name="input", kind="data", tasks=2), Job(name="worker", program=Program(("a",))))
SERVICE = ["demo-input-0.demo.ns.svc:2222", "demo-input-1.demo.ns.svc:2222"]
CLUSTER = {"ps": ["demo-ps-0.demo.ns.svc:2222"], "worker": ["demo-worker-0.demo.ns.svc:2222"]}


def containers() -> dict[str, Any]:
    """Return the container of each job's pods."""
    objects = render.objects(job_file("demo", *JOBS, image="tf:1"), "ns")
    pods = [item["spec"]["template"]["spec"] for item in objects if item["kind"] in ("StatefulSet", "Job")]
    return {environment(pod["containers"][0])["TFK8S_JOB"]: pod["containers"][0] for pod in pods}


def environment(container: Any) -> dict[str, str]:
    """Return the variables of a container, as kubelet expands them."""
    fixed = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    return {"TFK8S_NAMESPACE": "ns"} | {name: text.replace("$(TFK8S_NAMESPACE)", "ns") for name, text in fixed.items()}


def test_each_pod_finds_the_dispatcher() -> None:
    for job, container in containers().items():
        assert environment(container)["TFK8S_DATA_SERVICE"] == f"grpc://{SERVICE[0]}", job


def test_only_the_service_has_itself_in_its_cluster() -> None:
    seen = {job: config.lists(config.derive_cluster(environment(one))) for job, one in containers().items()}
    assert seen == {"ps": CLUSTER, "worker": CLUSTER, "input": {**CLUSTER, "input": SERVICE}}


def test_the_state_of_the_dispatcher_outlives_its_container() -> None:
    container = containers()["input"]
    assert container["command"] == ["python3", "-m", "tfk8s.task.data.service", "/tmp/data"]
    assert {"name": "scratch", "mountPath": "/tmp"} in container["volumeMounts"]
