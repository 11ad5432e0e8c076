"""The Job of a session script, and its Secret."""

from __future__ import annotations

import base64

import pytest
from fakes.stateful_sets import stateful_sets

from tfk8s import render
from tfk8s.backends.kubernetes.pods import containers
from tfk8s.core.job_file.mappings import EnvSource, Topology
from tfk8s.core.programs import Program
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile
from tfk8s.core.storage.volumes import Volume
from tfk8s.render import package_files, script_job


def test_a_script_is_like_the_master_without_gpus() -> None:
    run = script_job.PodSettings(arguments=["--tf1", "a.py"], environment={"A": "$x"})
    made = script_job.job("demo-script-1", stateful_sets()[0], run)
    spec = made["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gold"
    assert (made["spec"]["backoffLimit"], made["spec"]["ttlSecondsAfterFinished"]) == (0, 60)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "demo-chief", "uid": "uid of demo-chief"}
    assert made["metadata"]["ownerReferences"] == [owner]
    assert made["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "session-script"
    assert container["command"] == ["python3", "-m", "tfk8s.sessions.pod.entrypoint", "--tf1", "a.py"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "8Gi"}
    assert "nodeSelector" not in spec or "cloud.google.com/gke-accelerator" not in spec["nodeSelector"]
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert environment["A"] == "$$x"
    assert not {"TFK8S_JOB", "TFK8S_INDEX", "TFK8S_PRELOAD"} & set(environment)
    assert spec["securityContext"] == stateful_sets()[0]["spec"]["template"]["spec"]["securityContext"]
    assert [volume["name"] for volume in spec["volumes"]] == ["tfk8s", "scratch", "work"]


def test_a_script_has_the_grace_of_its_cluster() -> None:
    master = stateful_sets()[0]
    for notes, period, value in [({}, 5, None), ({"tfk8s.dev/grace": "30"}, 33, "30")]:
        master["metadata"]["annotations"] |= notes
        spec = script_job.job("a", master, script_job.PodSettings(arguments=[], environment={}))["spec"]["template"][
            "spec"
        ]
        variables = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
        assert (spec["terminationGracePeriodSeconds"], variables.get("TFK8S_GRACE")) == (period, value)


def test_a_script_has_limits_where_the_master_has_them() -> None:
    made = script_job.job("a", stateful_sets()[1], script_job.PodSettings(arguments=[], environment={}))
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "50m", "memory": "512Mi"},
    }


def test_a_script_elsewhere_has_the_variables_of_the_job_file() -> None:
    chief = Job(name="chief", gpus=1, env={"RATE": "$1", "CUDA_VISIBLE_DEVICES": "0", "PYTHONPATH": "/in/the/image"})
    env = {"RATE": "2", "PLAIN": "3", "TOKEN": EnvSource(secret="s", key="k")}
    objects = render.objects(JobFile(name="a", image="tf:1", master="chief", jobs=(chief,), env=env, idle=60))
    (master,) = [item for item in objects if item["kind"] == "StatefulSet"]
    variables = containers.template_variables(master)
    assert script_job.own_variables(variables) == {"RATE": "$1", "PLAIN": "3", "CUDA_VISIBLE_DEVICES": "0"}


@pytest.mark.parametrize("master", [0, 1], ids=["of GPUs", "without"])
def test_a_script_requests_gpus_of_the_clusters_kind(master: int) -> None:
    gpus = script_job.gpus_like(2, reversed(stateful_sets()))
    run = script_job.PodSettings(arguments=["a.py"], environment={}, gpus=gpus)
    spec = script_job.job("a", stateful_sets()[master], run)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "2"
    assert spec["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert "CUDA_VISIBLE_DEVICES" not in environment


def test_a_script_requests_nvidia_gpus_by_default() -> None:
    assert script_job.gpus_like(1, stateful_sets()[1:]) == script_job.Gpus(1, "nvidia.com/gpu")
    assert script_job.gpus_like(0, stateful_sets()) is None


def test_the_masters_stateful_set_is_not_changed() -> None:
    master = stateful_sets()[0]
    script_job.job(
        "a", master, script_job.PodSettings(arguments=[], environment={}, gpus=script_job.gpus_like(1, [master]))
    )
    assert master == stateful_sets()[0]


def test_a_secret_has_the_package_and_the_script() -> None:
    made = script_job.secret("a", "uid", "demo", {script_job.ARCHIVE: b"archive"})
    data = {name: base64.b64decode(value) for name, value in made["data"].items()}
    assert data == {"tfk8s.zip": package_files.zip_of_scripts(), "script.tar.gz": b"archive"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid"
    assert set(script_job.secret("a", "uid", "demo", {})["data"]) == {"tfk8s.zip"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/opt/tfk8s/tfk8s.zip", "/opt/tfk8s/tfk8s.zip"), ("/opt/tfk8s/tfk8s.zip:/a:", "/opt/tfk8s/tfk8s.zip:/a:"),
        ("/opt/tfk8s", "/opt/tfk8s/tfk8s.zip"), ("/opt/tfk8s:/a", "/opt/tfk8s/tfk8s.zip:/a"),
    ],
)  # fmt: skip
def test_a_script_imports_its_own_package_beside_tasks_of_an_older_tfk8s(before: str, after: str) -> None:
    master = stateful_sets()[0]
    (server,) = master["spec"]["template"]["spec"]["containers"]
    (path,) = (one for one in server["env"] if one["name"] == "PYTHONPATH")
    path["value"] = before
    if not before.startswith("/opt/tfk8s/"):
        server["volumeMounts"][0] = {"name": "tfk8s", "mountPath": "/opt/tfk8s/tfk8s", "readOnly": True}
    spec = script_job.job("a", master, script_job.PodSettings(arguments=[], environment={}))["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert {one["name"]: one.get("value") for one in container["env"]}["PYTHONPATH"] == after
    assert container["volumeMounts"][0] == {"name": "tfk8s", "mountPath": "/opt/tfk8s", "readOnly": True}
    assert spec["volumes"][0] == {"name": "tfk8s", "secret": {"secretName": "a"}}


def test_a_script_has_the_labels_and_node_settings_of_the_master() -> None:
    chief = Job(
        name="chief", labels={"team": "b"}, node_selector={"disk": "ssd"}, priority_class="high",
        topology=Topology(spread="zone"), env={"KEY": EnvSource(secret="s", key="k")},
        pod={
            "hostAliases": [{"ip": "10.0.0.1"}], "affinity": {"nodeAffinity": {"a": 1}},
            "containers": [{"name": "proxy"}, {"name": "server", "envFrom": [{"secretRef": {"name": "s"}}]}],
        },
    )  # fmt: skip
    job_file = JobFile(
        name="demo", image="tf:1", master="chief", jobs=(chief,), image_pull_secrets=("login",),
        labels={"team": "a", "unit": "z"}, annotations={"mesh": "off"},
    )  # fmt: skip
    (master,) = (item for item in render.objects(job_file) if item["kind"] == "StatefulSet")
    master["metadata"]["uid"] = "1"
    master["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = "demo"
    template = script_job.job("a", master, script_job.PodSettings(arguments=[], environment={}))["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert template["metadata"] == {
        "labels": {
            "team": "b", "unit": "z", "app.kubernetes.io/name": "tfk8s", "app.kubernetes.io/instance": "demo",
            "app.kubernetes.io/component": "session-script",
        },
        "annotations": {"mesh": "off"},
    }  # fmt: skip
    assert {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}} in container["env"]
    assert container["envFrom"] == [{"secretRef": {"name": "s"}}]
    kept = ("nodeSelector", "priorityClassName", "imagePullSecrets", "hostAliases", "affinity")
    assert [template["spec"][key] for key in kept] == [
        {"disk": "ssd"}, "high", [{"name": "login"}], [{"ip": "10.0.0.1"}], {"nodeAffinity": {"a": 1}},
    ]  # fmt: skip
    assert "topologySpreadConstraints" not in template["spec"]


def test_a_script_mounts_the_masters_bucket() -> None:
    chief = Job(name="chief", volumes=(Volume(path="/m", bucket="gs://models"),))
    objects = render.objects(JobFile(name="a", image="tf:1", master="chief", jobs=(chief,), namespace="ns"))
    (master,) = [item for item in objects if item["kind"] == "StatefulSet"]
    master["metadata"]["uid"] = "1"
    template = script_job.job("a-script-1", master, script_job.PodSettings(arguments=[], environment={}))["spec"][
        "template"
    ]
    assert template["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true"}
    assert template["spec"]["volumes"][2]["csi"]["volumeAttributes"]["bucketName"] == "models"


def test_tensorboard_reads_the_volumes_of_a_program() -> None:
    volumes = Volume(path="/logs", claim="logs"), Volume(path="/cache", size=Quantity.parse("1Gi"))
    worker = Job(name="worker", program=Program(("train.py",)), volumes=volumes)
    objects = render.objects(JobFile(name="a", image="tf:1", master="worker", jobs=(worker,), namespace="ns"))
    (program,) = [item for item in objects if item["kind"] == "Job"]
    program["metadata"]["uid"] = "1"
    run = script_job.PodSettings(arguments=["/logs"], environment={}, command=["python3", "-m", "a"], read_only=True)
    made = script_job.job("a-script-1", program, run)
    spec = made["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "a-worker", "uid": "1"}
    assert made["metadata"]["ownerReferences"] == [owner]
    assert container["command"] == ["python3", "-m", "a", "/logs"]
    assert [volume["name"] for volume in spec["volumes"]] == ["tfk8s", "scratch", "volume-0", "volume-1", "work"]
    assert container["volumeMounts"] == [
        {"name": "tfk8s", "mountPath": "/opt/tfk8s", "readOnly": True},
        {"name": "scratch", "mountPath": "/tmp"},
        {"name": "volume-0", "mountPath": "/logs", "readOnly": True},
        {"name": "volume-1", "mountPath": "/cache"},
        {"name": "work", "mountPath": "/work"},
    ]
