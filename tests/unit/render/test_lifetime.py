"""The objects that remove a cluster at its limits."""

from __future__ import annotations

import pytest
from job_files import EVERYTHING, job_file

from tfk8s import render
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.core.job_file.mappings import IdleLimits, SharedHistory
from tfk8s.core.lifetime import RemovableObject, removable_objects
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job
from tfk8s.core.storage.volumes import Volume
from tfk8s.jobfile.loader import loads
from tfk8s.render import lifetime, manifests, pods
from tfk8s.render.pods import Object
from tfk8s.task.lifetime.record import record_writer


def of(**settings: object) -> list[Object]:
    return render.objects(job_file("demo", chief=1, My_ps=2, image="tf:1", **settings))


def the(kind: str, objects: list[Object]) -> Object:
    return next(item for item in objects if item["kind"] == kind)


def job(objects: list[Object]) -> Object:
    assert objects[-1]["kind"] == "Job"  # the last
    return objects[-1]


def test_rights_come_first_and_no_limit_needs_none() -> None:
    kinds = [item["kind"] for item in of(idle=60)]
    assert kinds[:4] == ["ServiceAccount", "Role", "RoleBinding", "NetworkPolicy"]
    assert not {"ServiceAccount", "Role", "RoleBinding", "Job"} & {item["kind"] for item in of()}


def test_the_jobs_pod_mounts_no_bucket() -> None:
    objects = of(idle=60, volumes=(Volume(path="/m", bucket="gs://models"),))
    assert "annotations" in the("StatefulSet", objects)["spec"]["template"]["metadata"]
    assert "annotations" not in job(objects)["spec"]["template"]["metadata"]


def test_one_job_keeps_the_limits_and_the_lease() -> None:
    plain, limited = of(), of(idle=60)
    leased, both = of(lease=900), of(idle=60, lease=900)
    assert [item for item in leased if item["metadata"]["name"] not in ("demo-lifetime", leased[-1]["metadata"]["name"])
            ] == plain  # fmt: skip
    assert [item for item in both if item["kind"] != "Job"] == [item for item in limited if item["kind"] != "Job"]
    assert job(both)["metadata"]["annotations"] == {"tfk8s.dev/idle": "60", "tfk8s.dev/lease": "900"}
    variables = job(leased)["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "TFK8S_LEASE", "value": "900"} in variables


@pytest.mark.parametrize("settings", [{"idle": 60}, {"max_duration": 60}, {"drain": "idle"}])
def test_all_objects_are_removed_or_owned_by_one_that_is(settings: dict[str, object]) -> None:
    objects = of(**settings)
    rendered = {
        RemovableObject(
            item["apiVersion"], paths.collection(item["kind"], None).split("/")[-1], item["metadata"]["name"]
        )
        for item in objects
        if item["kind"] not in ("Role", "RoleBinding", "Job")
    }
    assert rendered == set(removable_objects("demo", ["chief", "My_ps"]))


def test_the_role_allows_this_clusters_objects_by_name_and_nothing_else() -> None:
    role = the("Role", of(idle=60))
    allowed = {
        (rule["apiGroups"][0], rule["resources"][0], name)
        for rule in role["rules"]
        for name in rule["resourceNames"]
        if rule["verbs"] == ["get", "delete"]
    }
    assert allowed == {(item.group, item.resource, item.name) for item in removable_objects("demo", ["chief", "My_ps"])}
    assert sum(len(rule["resourceNames"]) for rule in role["rules"]) == len(allowed)


def test_a_drain_while_idle_lets_the_job_patch_the_budgets_that_block() -> None:
    objects = render.objects(job_file("demo", chief=1, ps=2, worker=2, image="tf:1", drain="idle"))
    patched = [rule["resourceNames"] for rule in the("Role", objects)["rules"] if "patch" in rule["verbs"]]
    assert patched == [["demo-chief", "demo-ps"]]
    budgets = [item["spec"].get("maxUnavailable") for item in objects if item["kind"] == "PodDisruptionBudget"]
    assert budgets == [None, None, 1]  # the Job alone sets the first two, so that `up` and Helm leave them
    variables = job(objects)["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "TFK8S_DRAIN", "value": "chief,ps"} in variables


def test_a_suspension_while_idle_patches_numbers_and_jobs_but_no_statefulset() -> None:
    worker = Job(name="worker", program=Program(("a",)))
    idle = IdleLimits(suspend=60, remove=120)
    objects = render.objects(job_file("demo", Job(name="ps"), worker, image="tf:1", idle=idle))
    made = job(objects)
    more = [rule for rule in the("Role", objects)["rules"] if "patch" in rule["verbs"]]
    assert [(rule["resources"], rule["resourceNames"], rule["verbs"]) for rule in more] == [
        (["jobs"], [made["metadata"]["name"]], ["get", "patch"]),
        (["jobs"], ["demo-worker"], ["patch"]),
        (["statefulsets/scale"], ["demo-ps"], ["patch"]),
    ]
    assert not any("workloads" in rule["resources"] for rule in the("Role", objects)["rules"])
    assert made["metadata"]["annotations"] == {"tfk8s.dev/idle": "120", "tfk8s.dev/idle-suspend": "60"}
    variables = {item["name"]: item for item in made["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert variables["TFK8S_SUSPEND"]["value"] == "60"
    own = variables["TFK8S_LIFETIME_JOB"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert own == "metadata.labels['batch.kubernetes.io/job-name']"


def test_a_suspension_in_a_queue_may_delete_the_workload_of_its_name() -> None:
    objects = render.objects(job_file("demo", ps=1, image="tf:1", idle=IdleLimits(suspend=60), queue="gold"))
    (rule,) = (rule for rule in the("Role", objects)["rules"] if "workloads" in rule["resources"])
    assert (rule["resourceNames"], rule["verbs"]) == (["demo"], ["get", "delete"])
    assert {"name": "TFK8S_QUEUE", "value": "gold"} in job(objects)["spec"]["template"]["spec"]["containers"][0]["env"]


def test_idle_with_a_removal_alone_changes_nothing() -> None:
    text = "apiVersion: tfk8s.dev/v1\nname: demo\nimage: tf:1\njobs: {a: 1}\nidle: "
    assert loads(f"{text}{{remove: 1h}}", "job.yaml") == loads(f"{text}1h", "job.yaml")


def test_drains_are_allowed_without_a_budget() -> None:
    kinds = {item["kind"] for item in of(drain="allow")}
    assert not {"PodDisruptionBudget", "Job"} & kinds


def test_the_pod_is_like_the_masters_without_gpus_and_volumes() -> None:
    objects = render.objects(loads(EVERYTHING.replace("master: chief", "master: worker"), "job.yaml"))
    spec = job(objects)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["nodeSelector"] == {"zone": "a", "cloud.google.com/gke-spot": "true"}
    assert [volume["name"] for volume in spec["volumes"]] == ["tfk8s", "credentials"]
    assert spec["serviceAccountName"] == "everything-lifetime"
    assert spec["automountServiceAccountToken"] is False
    assert "initContainers" not in spec
    assert set(spec.get("affinity", ())) == {"nodeAffinity"}
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "128Mi"}
    assert [variable["name"] for variable in container["env"]] == [
        "PYTHONPATH", "TFK8S_NAME", "TFK8S_NAMESPACE", "TFK8S_ACTIVITY_PORT", "TFK8S_DRAIN", "TFK8S_IDLE",
        "TFK8S_MAX_DURATION", "TFK8S_RECORD_JOB", "TFK8S_SERVERS",
    ]  # fmt: skip


@pytest.mark.parametrize("history", [SharedHistory(claim="past"), SharedHistory(bucket="s3://team")])
def test_the_pod_of_the_record_has_time_for_its_last_look(history: SharedHistory) -> None:
    spec = job(of(history=history))["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] > record_writer.LAST_LOOK


@pytest.mark.parametrize(("logs", "value"), [(True, "logs"), (False, "events")])
def test_a_shared_history_alone_makes_the_job(logs: bool, value: str) -> None:
    objects = of(history=SharedHistory(claim="past", logs=logs))
    spec = job(objects)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert {"name": "TFK8S_HISTORY", "value": value} in container["env"]
    assert {"name": "history", "persistentVolumeClaim": {"claimName": "past"}} in spec["volumes"]
    assert "history" in [mount["name"] for mount in container["volumeMounts"]]
    (role,) = (item for item in objects if item["kind"] == "Role")
    assert {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]} in role["rules"]
    assert all("resourceNames" in rule for rule in role["rules"] if rule["resources"][0] not in ("events", "pods/log"))


def egress_to(objects: list[Object]) -> list[tuple[list[str], list[int]]]:
    """Return the addresses and ports that the Job's pod may connect to, besides those of DNS and API servers."""
    (policy,) = (
        item["spec"] for item in objects
        if item["kind"] == "NetworkPolicy" and item["metadata"]["name"].endswith("-lifetime")
    )  # fmt: skip
    return [
        ([peer["ipBlock"]["cidr"] for peer in rule.get("to", ())], [port["port"] for port in rule["ports"]])
        for rule in policy["egress"][2:]
    ]


@pytest.mark.parametrize(
    ("history", "rules"),
    [
        (SharedHistory(claim="past"), []),
        (SharedHistory(bucket="s3://team", secret="keys"), []),
        (SharedHistory(bucket="s3://team"), [(["169.254.170.23/32"], [80])]),
        (SharedHistory(bucket="gs://team"), [(["169.254.169.252/32"], [988]), (["169.254.169.254/32"], [80])]),
        (SharedHistory(bucket="s3://team", secret="keys", endpoint="https://minio.example/"), []),
        (SharedHistory(bucket="s3://team", secret="keys", endpoint="http://minio.example"), [([], [80])]),
        (SharedHistory(bucket="s3://team", secret="keys", endpoint="http://[fd00::1]:9000"), [([], [9000])]),
    ],
)
def test_the_pod_reaches_its_bucket_and_its_identity(history: SharedHistory, rules: list[object]) -> None:
    assert egress_to(of(history=history)) == rules


def test_a_missing_secret_keeps_no_pod_from_its_start() -> None:
    spec = job(of(history=SharedHistory(bucket="s3://team", secret="keys")))["spec"]["template"]["spec"]
    sources = [item["valueFrom"]["secretKeyRef"] for item in spec["containers"][0]["env"] if item["name"][:4] == "AWS_"]
    assert [(source["name"], source["optional"]) for source in sources] == [("keys", True)] * 4
    assert {"name": "history", "emptyDir": {}} in spec["volumes"]


def test_the_pod_of_the_limits_knows_neither_the_bucket_nor_its_keys() -> None:
    history = SharedHistory(bucket="s3://team", secret="keys", endpoint="http://minio.example", logs=True)
    objects = of(history=history, max_duration=60, idle=60)
    record, limits = (item["spec"]["template"]["spec"] for item in objects if item["kind"] == "Job")
    for word in ("AWS_", "keys", "s3://team", "minio", "emptyDir"):
        assert word in str(record)
        assert word not in str(limits)
    others = [item for item in objects if item["kind"] != "Job"]
    assert "secretKeyRef" not in str(others)


def test_no_claim_keeps_the_pod_of_the_limits_from_its_start() -> None:
    objects = of(history=SharedHistory(claim="past"), max_duration=60)
    record, limits = (item["spec"]["template"]["spec"] for item in objects if item["kind"] == "Job")
    assert "past" in str(record)
    assert "past" not in str(limits)
    (role,) = (item for item in objects if item["kind"] == "Role")
    name = objects[-2]["metadata"]["name"]
    assert {"name": "TFK8S_RECORD_JOB", "value": name} in limits["containers"][0]["env"]
    assert {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": [name], "verbs": ["get", "delete"]} in role[
        "rules"
    ]
    assert [rule["resourceNames"] for rule in role["rules"] if rule["verbs"] == ["patch"]] == [["demo-lifetime"]]


def test_no_priority_class_keeps_the_pod_from_its_start() -> None:
    policy = {"preemptionPolicy": "Never", "priority": 5}
    chief = Job(name="chief", priority_class="missing", pod=policy)
    (master, made) = (
        item["spec"]["template"]["spec"]
        for item in render.objects(job_file("demo", chief, image="tf:1", idle=60))
        if item["kind"] in ("StatefulSet", "Job")
    )
    assert {"priorityClassName": "missing", **policy}.items() <= master.items()
    assert not {"priorityClassName", *policy} & set(made)


def test_another_pod_gets_another_job_because_a_jobs_pod_can_not_change() -> None:
    names = [job(of(**settings))["metadata"]["name"] for settings in ({"idle": 60}, {"idle": 61}, {"max_duration": 60})]
    assert len(set(names)) == 3
    assert all(lifetime.is_job_name("demo", name) for name in names)
    assert job(of(idle=60))["metadata"]["name"] == names[0]
    longest = render.objects(job_file("a" * 50, w=1, image="tf:1", idle=1))
    assert len(job(longest)["metadata"]["name"]) <= 63


@pytest.mark.parametrize(
    ("ports", "activity"), [((2222, 2223), 2224), ((65535, 2222), 65534), ((65535, 65534), 65533), ((80, 80), 81)]
)
def test_tasks_tell_their_clients_at_a_port_of_no_server(ports: tuple[int, int], activity: int) -> None:
    jobs = [Job(name=name, port=port) for name, port in zip("ab", ports, strict=True)]
    objects = render.objects(job_file("a", *jobs, image="tf:1", idle=5))
    rules = [rule for item in objects if item["metadata"]["name"] == "a" and item["kind"] == "NetworkPolicy"
             for rule in item["spec"]["ingress"]]  # fmt: skip
    own = {"podSelector": {"matchLabels": job(objects)["spec"]["template"]["metadata"]["labels"]}}
    assert rules[-1] == {"from": [own], "ports": [{"protocol": "TCP", "port": activity}]}
    servers = [item["spec"]["template"]["spec"]["containers"][0] for item in objects if item["kind"] == "StatefulSet"]
    assert {variable["value"] for server in servers for variable in server["env"]
            if variable["name"] == "TFK8S_ACTIVITY_PORT"} == {str(activity)}  # fmt: skip


@pytest.mark.parametrize("settings", [{"idle": 60}, {"max_duration": 60}, {"drain": "idle"}])
def test_the_jobs_pod_connects_to_dns_the_api_server_and_the_tasks(settings: dict[str, object]) -> None:
    """The cluster's own policy rules what goes out only if the job file has `allow_to`."""
    objects = of(**settings)
    own = the("NetworkPolicy", objects)["spec"]
    tasks = {
        "to": [
            {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "tfk8s", "app.kubernetes.io/instance": "demo"}}}
        ],
        "ports": [{"protocol": "TCP", "port": 2223}],
    }
    assert own == {
        "podSelector": {"matchLabels": job(objects)["spec"]["template"]["metadata"]["labels"]},
        "policyTypes": ["Egress"],
        "egress": [
            {"ports": [{"protocol": "TCP", "port": port} for port in (443, 6443, 8443, 16443)]},
            manifests.dns_rule(),
            *([tasks] if "max_duration" not in settings else []),
        ],
    }


def test_no_additional_container_has_that_port() -> None:
    pod = {"containers": [{"name": "a", "ports": [{"containerPort": 2223}, {"containerPort": 9100}]}]}
    of_job = {"initContainers": [{"name": "b", "ports": [{"containerPort": 2224}]}, {"name": "c"}]}
    assert pods.activity_port(job_file("a", Job(name="w", port=2222, pod=of_job), pod=pod)) == 2225
    of_job["initContainers"][0]["ports"] = [{"containerPort": 65534}]
    assert pods.activity_port(job_file("a", Job(name="w", port=65535, pod=of_job), pod=pod)) == 65533
