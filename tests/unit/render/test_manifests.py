"""Tests of the Kubernetes objects of a cluster."""

import json
import time

import pytest
import yaml
import yaml_text
from hypothesis import given
from hypothesis import strategies as st
from job_files import job_file

from tfk8s import render as tfk8s_render
from tfk8s.core import addresses, naming
from tfk8s.core.job_file.mappings import Destination, Network, Security, Source
from tfk8s.core.programs import Program
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.core.storage.volumes import Volume
from tfk8s.errors import InvalidInput
from tfk8s.render import manifests, pods
from tfk8s.render.yaml import dump
from tfk8s.task import config

ZIP = b"a zip"


def demo(*jobs, **settings):
    jobs = jobs or (Job(name="master"), Job(name="ps"), Job(name="worker", tasks=2))
    return job_file("demo", *jobs, **{"image": "tf:1", **settings})


def render(*jobs, namespace=None, **settings):
    return manifests.render(demo(*jobs, **settings), ZIP, namespace)


def the(kind, objects, name=None):
    (item,) = [item for item in objects if item["kind"] == kind and name in (None, item["metadata"]["name"])]
    return item


def pod_of(objects, name):
    return the("StatefulSet", objects, name)["spec"]["template"]["spec"]


def container_of(objects, name):
    return pod_of(objects, name)["containers"][0]


def environment_of(objects, name):
    return {variable["name"]: variable.get("value") for variable in container_of(objects, name)["env"]}


def test_four_objects_and_two_for_each_job():
    assert [(item["kind"], item["metadata"]["name"]) for item in render()] == [
        ("NetworkPolicy", "demo"),
        ("ConfigMap", "demo"),
        ("Service", "demo"),
        ("Service", "demo-master"),
        ("StatefulSet", "demo-master"),
        ("StatefulSet", "demo-ps"),
        ("StatefulSet", "demo-worker"),
        ("PodDisruptionBudget", "demo-master"),
        ("PodDisruptionBudget", "demo-ps"),
        ("PodDisruptionBudget", "demo-worker"),
    ]


def test_labels_of_objects():
    for item in render():
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == labels["app.kubernetes.io/managed-by"] == "tfk8s"
        assert labels["app.kubernetes.io/instance"] == "demo"


@pytest.mark.parametrize(
    ("named", "requests", "limits"),
    [
        ({}, {"cpu": "100m", "memory": "512Mi"}, {}),
        ({"cpu": "250m"}, {"cpu": "250m", "memory": "512Mi"}, {"cpu": "1"}),
        ({"cpu": "1500m"}, {"cpu": "1500m", "memory": "512Mi"}, {"cpu": "1500m"}),
        ({"memory": "4Gi"}, {"cpu": "100m", "memory": "4Gi"}, {"memory": "4Gi"}),
    ],
)
def test_only_what_the_job_file_names_is_a_limit(named, requests, limits):
    amounts = pods.resources(Job(name="worker", **{key: Quantity.parse(text) for key, text in named.items()}))
    assert amounts == {
        "requests": {**requests, "ephemeral-storage": "128Mi"}, "limits": {**limits, "ephemeral-storage": "4Gi"},
    }  # fmt: skip


def test_stateful_set_with_every_setting():
    worker = Job(
        name="worker_", tasks=4, cpu=Quantity.parse("8"), memory=Quantity.parse("30Gi"), gpus=2, spot="gke",
        accelerator="nvidia-l4", env={"A": "$(B) $", "HOME": "/home"}, labels={"team": "x"}, annotations={"note": "y"},
        volumes=(Volume(path="/data", claim="data", read_only=True),), preload=("tensorflow_text", "ops"), port=2300,
        priority_class="high", node_selector={"zone": "a"}, tolerations=({"key": "k", "operator": "Exists"},),
        image="tf:2",
    )  # fmt: skip
    stateful_set = the("StatefulSet", render(Job(name="ps"), worker, queue="gold", ttl=60), "demo-worker-b2b3")
    labels = {
        "app.kubernetes.io/name": "tfk8s",
        "app.kubernetes.io/instance": "demo",
        "app.kubernetes.io/component": naming.dns_label("worker_"),
    }
    amounts = {"cpu": "8", "memory": "30Gi", "nvidia.com/gpu": "2"}
    assert stateful_set == {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "demo-worker-b2b3",
            "labels": {**labels, "app.kubernetes.io/managed-by": "tfk8s"},
            "annotations": {"tfk8s.dev/script-ttl": "60", "tfk8s.dev/jobs": "ps:2222,worker_:2300",
                "tfk8s.dev/warm": "on-demand"},
        },
        "spec": {
            "replicas": 4,
            "serviceName": "demo",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {
                    "labels": {
                        **labels, "team": "x", "kueue.x-k8s.io/queue-name": "gold", "kueue.x-k8s.io/managed": "true",
                        "kueue.x-k8s.io/pod-group-name": "demo",
                    },
                    "annotations": {
                        "note": "y", "kueue.x-k8s.io/pod-group-total-count": "5",
                        "kueue.x-k8s.io/role-hash": "worker-b2b3", "kueue.x-k8s.io/pod-suspending-parent": "tfk8s",
                        "kueue.x-k8s.io/pod-group-serving": "true",
                    },
                },
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 5,
                    "priorityClassName": "high",
                    "securityContext": {
                        "runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                        "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [{
                        "name": "server",
                        "image": "tf:2",
                        "command": ["python3", "-m", "tfk8s.task.server"],
                        "env": [
                            {"name": "A", "value": "$$(B) $$"},
                            {"name": "HOME", "value": "/home"},
                            {"name": "PYTHONPATH", "value": "/opt/tfk8s/tfk8s.zip"},
                            {"name": "TF_FORCE_GPU_ALLOW_GROWTH", "value": "true"},
                            {"name": "TFK8S_NAME", "value": "demo"},
                            {"name": "TFK8S_NAMESPACE", "valueFrom": {"fieldRef": {
                                "apiVersion": "v1", "fieldPath": "metadata.namespace"}}},
                            {"name": "TFK8S_PORT", "value": "2300"},
                            {"name": "TFK8S_JOB", "value": "worker_"},
                            {"name": "TFK8S_INDEX", "valueFrom": {"fieldRef": {
                                "apiVersion": "v1", "fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}},
                            {"name": "TFK8S_GPUS", "value": "2"},
                            {"name": "TFK8S_PRELOAD", "value": "tensorflow_text,ops"},
                        ],
                        "ports": [{"name": "grpc", "containerPort": 2300}],
                        "resources": {
                            "requests": amounts,
                            "limits": amounts,
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": True,
                        },
                        "startupProbe": {"tcpSocket": {"port": "grpc"}, "periodSeconds": 1, "failureThreshold": 300},
                        "readinessProbe": {"tcpSocket": {"port": "grpc"}, "periodSeconds": 5, "timeoutSeconds": 5},
                        "volumeMounts": [
                            {
                                "name": "tfk8s", "mountPath": "/opt/tfk8s/tfk8s.zip", "subPath": "tfk8s.zip",
                                "readOnly": True,
                            },
                            {"name": "scratch", "mountPath": "/tmp"},
                            {"name": "volume-0", "mountPath": "/data", "readOnly": True},
                        ],
                    }],
                    "volumes": [
                        {"name": "tfk8s", "configMap": {
                            "name": "demo", "items": [{"key": "tfk8s.zip", "path": "tfk8s.zip"}]}},
                        {"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}},
                        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}},
                    ],
                    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                        "weight": 1,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname",
                        },
                    }]}},
                    "nodeSelector": {
                        "zone": "a", "cloud.google.com/gke-accelerator": "nvidia-l4",
                        "cloud.google.com/gke-spot": "true",
                    },
                    "tolerations": [
                        {"key": "k", "operator": "Exists"},
                        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                        {
                            "key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true",
                            "effect": "NoSchedule",
                        },
                    ],
                },
            },
        },
    }  # fmt: skip


def test_gpus_are_hidden_from_tasks_without_gpus():
    environment = environment_of(render(), "demo-ps")
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_variables_of_jobs_override_variables_of_the_cluster():
    job = Job(name="worker", env={"A": "job", "PYTHONPATH": "/mine"})
    environment = environment_of(render(job, env={"A": "cluster", "B": "cluster"}), "demo-worker")
    assert (environment["A"], environment["B"], environment["PYTHONPATH"]) == (
        "job",
        "cluster",
        "/opt/tfk8s/tfk8s.zip:/mine",
    )


def test_volumes_of_every_kind():
    volumes = (
        Volume(path="/e", size=Quantity.parse("9Gi")),
        Volume(path="/s", secret="s"),
        Volume(path="/c", config_map="c"),
    )  # fmt: skip
    assert pod_of(render(Job(name="worker"), volumes=volumes), "demo-worker")["volumes"][2:] == [
        {"name": "volume-0", "emptyDir": {"sizeLimit": "9Gi"}},
        {"name": "volume-1", "secret": {"secretName": "s"}},
        {"name": "volume-2", "configMap": {"name": "c"}},
    ]


def test_claims_are_made_once_and_kept():
    cluster = Volume(path="/ckpt", claim="ckpt", create=Quantity.parse("100Gi"), folder="/here", local_mount=False)
    own = (
        Volume(path="/a", claim="ckpt"),
        Volume(path="/b", claim="logs", create=Quantity.parse("1e9"), storage_class="fast", access="ReadWriteMany"),
        Volume(path="/c", claim="other"),
    )
    made = render(Job(name="worker", volumes=own), Job(name="ps"), volumes=(cluster,), namespace="ml")
    labels = {"app.kubernetes.io/name": "tfk8s", "app.kubernetes.io/instance": "demo"}
    assert made[:2] == [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": "ml",
                "labels": {**labels, "app.kubernetes.io/managed-by": "tfk8s"},
                "annotations": {"helm.sh/resource-policy": "keep"},
            },
            "spec": spec,
        }
        for name, spec in (
            ("ckpt", {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Gi"}}}),
            (
                "logs",
                {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "1e9"}},
                    "storageClassName": "fast",
                },
            ),
        )
    ]
    assert pod_of(made, "demo-ps")["volumes"][2:] == [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "ckpt"}}
    ]


def test_buckets():
    models = Volume(path="/m", bucket="gs://models/mnist/v=1/", read_only=True)
    data = Volume(path="/d", bucket="gs://data", folder="/data")
    made = render(
        Job(name="worker", volumes=(models, data)), Job(name="ps"), security=Security(user=7, group=8),
        annotations={"a": "b"},
    )  # fmt: skip
    driver, options = "gcsfuse.csi.storage.gke.io", "implicit-dirs,uid=7,gid=8"
    assert pod_of(made, "demo-worker")["volumes"][2:] == [
        {
            "name": "volume-0",
            "csi": {
                "driver": driver,
                "readOnly": True,
                "volumeAttributes": {"bucketName": "models", "mountOptions": f"{options},only-dir=mnist/v=1"},
            },
        },
        {
            "name": "volume-1",
            "csi": {"driver": driver, "volumeAttributes": {"bucketName": "data", "mountOptions": options}},
        },
    ]
    mounts = pod_of(made, "demo-worker")["containers"][0]["volumeMounts"][2:]
    assert [mount.get("readOnly") for mount in mounts] == [True, None]
    pods = [the("StatefulSet", made, f"demo-{job}")["spec"]["template"]["metadata"] for job in ("worker", "ps")]
    assert [pod["annotations"] for pod in pods] == [{"a": "b", "gke-gcsfuse/volumes": "true"}, {"a": "b"}]


def test_a_volume_with_a_folder_alone_is_for_this_machine():
    job_file = JobFile(
        name="a", image="tf:1", jobs=(Job(name="a"),), master="a", volumes=(Volume(path="/d", folder="/here"),)
    )
    with pytest.raises(InvalidInput, match='the volume at "/d" has only a folder, which only clusters on this machine'):
        tfk8s_render.objects(job_file)


def test_user_group_and_service_account():
    pod = pod_of(render(Job(name="worker"), security=Security(user=1, group=2, service_account="me")), "demo-worker")
    assert pod["serviceAccountName"] == "me"
    assert pod["automountServiceAccountToken"] is False
    assert [pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")] == [1, 2, 2]


def test_services_of_all_pods_and_of_the_master():
    objects = render(Job(name="chief", tasks=2), Job(name="worker", port=2300))
    headless, master = the("Service", objects, "demo")["spec"], the("Service", objects, "demo-master")["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    assert [port["port"] for port in headless["ports"]] == [2222, 2300]
    assert master["selector"]["statefulset.kubernetes.io/pod-name"] == "demo-chief-0"
    assert "type" not in headless
    assert "type" not in master


def test_policy_rules_what_goes_out_only_if_the_job_file_does():
    cluster = [{"podSelector": {"matchLabels": manifests.selector("demo")}}]
    grpc = [{"protocol": "TCP", "port": 2222}, {"protocol": "TCP", "port": 2322, "endPort": 2353}]
    dns = {
        "to": [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
            {"ipBlock": {"cidr": "169.254.20.10/32"}},
            {"ipBlock": {"cidr": "169.254.169.254/32"}},
        ],
        "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
    }
    ingress = {"podSelector": cluster[0]["podSelector"], "ingress": [{"from": cluster, "ports": grpc}]}
    closed = render(network=Network(allow_to=()))
    assert the("NetworkPolicy", render())["spec"] == {"policyTypes": ["Ingress"], **ingress}
    assert the("NetworkPolicy", closed)["spec"] == {
        "policyTypes": ["Ingress", "Egress"], **ingress, "egress": [{"to": cluster, "ports": grpc}, dns],
    }  # fmt: skip
    assert [item for item in closed if item["kind"] != "NetworkPolicy"] == [
        item for item in render() if item["kind"] != "NetworkPolicy"
    ]


def test_policy_has_the_exceptions_of_the_job_file():
    network = Network(
        allow_from=(Source(pods={"app": "notebook"}), Source(namespace="tools", pods={"a": "b"})),
        allow_to=(
            Destination(cidr="10.0.0.0/8", except_=("10.1.0.0/16",), ports=(443,)),
            Destination(namespace="data"),
        ),
    )
    spec = the("NetworkPolicy", render(network=network))["spec"]
    space = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "tools"}}}
    assert [rule["from"] for rule in spec["ingress"][1:]] == [
        [{"podSelector": {"matchLabels": {"app": "notebook"}}}],
        [{**space, "podSelector": {"matchLabels": {"a": "b"}}}],
    ]
    assert all(rule["ports"] == [{"protocol": "TCP", "port": 2222}] for rule in spec["ingress"][1:])
    assert spec["egress"][2:] == [
        {
            "to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
            "ports": [{"protocol": "TCP", "port": 443}],
        },
        {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "data"}}}]},
    ]


def test_budgets_forbid_evictions_of_the_master_and_ps():
    budgets = [item for item in render() if item["kind"] == "PodDisruptionBudget"]
    assert [budget["spec"]["maxUnavailable"] for budget in budgets] == [0, 0, 1]


def test_namespace_is_in_all_objects_or_in_none():
    def namespaces(in_job_file, argument):
        objects = manifests.render(demo(namespace=in_job_file), ZIP, argument)
        return {item["metadata"].get("namespace") for item in objects}

    assert namespaces(None, None) == {None}
    assert namespaces(None, "a") == namespaces("b", "a") == {"a"}
    assert namespaces("b", None) == {"b"}


def test_pods_have_no_labels_that_may_change():
    labels = the("StatefulSet", render(), "demo-ps")["spec"]["template"]["metadata"]["labels"]
    assert labels == manifests.job_selector("demo", "ps")


JOBS = st.dictionaries(
    st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True),
    st.builds(dict, tasks=st.integers(1, 5), port=st.none() | st.integers(1, 65535)),
    min_size=1,
    max_size=4,
)


@given(JOBS, st.integers(1, 65535))
def test_programs_derive_the_cluster_spec_of_the_job_file(jobs, port):
    cluster = demo(*(Job(name=name, program=Program(("a",)), **values) for name, values in jobs.items()), port=port)
    for job in cluster.jobs:
        made = the("Job", manifests.render(cluster, ZIP), naming.stateful_set("demo", job.name))
        container = made["spec"]["template"]["spec"]["containers"][0]
        environment = {variable["name"]: variable.get("value") for variable in container["env"]}
        derived = config.derive_cluster({**environment, "TFK8S_NAMESPACE": "ns", "TFK8S_INDEX": "0"})
        expected = cluster.cluster_spec(addresses.pod_address(cluster, "ns"), job.name)
        assert {name: list(tasks.values()) for name, tasks in derived.items()} == expected
        assert environment["TFK8S_JOB"] == job.name
        assert container["ports"] == [{"name": "grpc", "containerPort": pods.port(cluster, job)}]


@given(JOBS, st.integers(1, 65535))
def test_servers_know_their_own_addresses_only(jobs, port):
    cluster = demo(*(Job(name=name, **values) for name, values in jobs.items()), port=port)
    address = addresses.pod_address(cluster, "ns")
    for job in cluster.jobs:
        environment = environment_of(manifests.render(cluster, ZIP), naming.stateful_set("demo", job.name))
        last = job.tasks - 1
        derived = config.derive_elastic({**environment, "TFK8S_NAMESPACE": "ns", "TFK8S_INDEX": str(last)})
        assert derived.cluster == {job.name: {index: address(Task(job.name, index)) for index in (0, last)}}
        assert (derived.job, derived.index, derived.elastic) == (job.name, last, True)


def test_pods_do_not_depend_on_the_numbers_of_tasks():
    one, other = (render(Job(name="ps", tasks=tasks), Job(name="worker", tasks=2 * tasks)) for tasks in (1, 3))
    for name in ("demo-ps", "demo-worker"):
        before, after = the("StatefulSet", one, name), the("StatefulSet", other, name)
        assert before != after
        assert {**before, "spec": {**before["spec"], "replicas": after["spec"]["replicas"]}} == after


def test_scaled_stateful_sets_equal_the_scaled_job_file():
    def sets(chief, worker):
        jobs = (Job(name="chief", tasks=chief), Job(name="my_ps", port=9, tasks=3), Job(name="worker", tasks=worker))
        return [item for item in render(*jobs, namespace="ns") if item["kind"] == "StatefulSet"]

    for before, after in (((1, 2), (1, 8)), ((1, 2), (1, 1)), ((2, 1), (1, 2))):
        tasks = {"chief": after[0], "worker": after[1]}
        for stateful_set, expected in zip(sets(*before), sets(*after), strict=True):
            original = json.dumps(stateful_set)
            scaled = manifests.scaled({**stateful_set, "status": {}}, tasks)
            assert json.dumps(stateful_set) == original
            del expected["metadata"]["namespace"]
            assert scaled == expected


def test_text_is_reproducible_and_has_no_anchors():
    objects = render()
    text = dump(objects)
    assert text == dump(render())
    assert yaml_text.read_all(text) == objects
    assert not any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text))
    assert all(len(line) <= 140 for line in text.splitlines())


def test_objects_share_no_parts():
    seen: dict[int, object] = {}
    objects = render()

    def walk(part):
        if isinstance(part, dict | list):
            assert id(part) not in seen
            seen[id(part)] = part
            for child in part.values() if isinstance(part, dict) else part:
                walk(child)

    walk(objects)


def test_size_does_not_depend_on_the_number_of_tasks():
    small, large = (dump(render(Job(name="worker", tasks=tasks))) for tasks in (2, 10_000))
    assert len(large) - len(small) < 32
    assert len(large.encode()) < 8 << 10
    document = dump([the("StatefulSet", render(), "demo-worker")])
    assert document.count("\n") < 110


def test_ten_thousand_tasks_render_within_milliseconds():
    started = time.process_time()
    dump(render(Job(name="worker", tasks=10_000)))
    assert time.process_time() - started < 0.1


def test_address_of_a_pod():
    address = addresses.pod_address(demo(), "ns")(Task("worker", 1))
    assert address == "demo-worker-1.demo.ns.svc:2222"
