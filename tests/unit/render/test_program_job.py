"""Tests of the Jobs of programs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from job_files import PROGRAMS, job_file

from tfk8s import render
from tfk8s.core.job_file.mappings import Network
from tfk8s.core.programs import Program, RunPolicy
from tfk8s.core.spec import Job, JobFile
from tfk8s.jobfile.loader import loads
from tfk8s.render import manifests, program_job
from tfk8s.render.pods import Object


def objects(*jobs: Job, secrets: Sequence[str] = (), **settings: object) -> dict[tuple[str, str], Object]:
    cluster: JobFile = job_file("demo", *jobs, **{"image": "tf:1", **settings})
    return {(item["kind"], item["metadata"]["name"]): item for item in render.objects(cluster, "ns", secrets)}


def worker(*words: str, **settings: object) -> Job:
    return Job(**{"name": "worker", "tasks": 2, "program": Program(words or ("train.py",)), **settings})  # type: ignore[arg-type]


def test_programs_alone_need_four_objects() -> None:
    assert list(objects(worker())) == [
        ("NetworkPolicy", "demo"), ("ConfigMap", "demo"), ("Service", "demo"), ("Job", "demo-worker"),
    ]  # fmt: skip


def test_tf1_is_for_the_program_of_its_job() -> None:
    made = objects(worker(tf1=True), worker(name="chief"))
    for name, value in [("worker", "1"), ("chief", None)]:
        (container,) = made["Job", f"demo-{name}"]["spec"]["template"]["spec"]["containers"]
        assert {one["name"]: one.get("value") for one in container["env"]}.get("TFK8S_TF1") == value


def test_grace_is_for_programs_and_not_for_servers() -> None:
    made = objects(worker(), Job(name="ps"), grace=30)
    for name, kind, period, value in [("worker", "Job", 33, "30"), ("ps", "StatefulSet", 5, None)]:
        spec = made[kind, f"demo-{name}"]["spec"]["template"]["spec"]
        variables = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
        assert (spec["terminationGracePeriodSeconds"], variables.get("TFK8S_GRACE")) == (period, value)
    assert made["StatefulSet", "demo-ps"]["metadata"]["annotations"]["tfk8s.dev/grace"] == "30"


def test_job_of_a_script() -> None:
    run = RunPolicy(max_restarts=5, timeout=7200, success="worker/0")
    job = objects(worker("train.py", "$(HOME)"), run=run, secrets=["first", "second"])["Job", "demo-worker"]
    template = job["spec"].pop("template")
    assert job["spec"] == {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "backoffLimitPerIndex": 5,
        "maxFailedIndexes": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "server", "operator": "NotIn", "values": [137, 143]},
                },
            ]
        },
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        "activeDeadlineSeconds": 7200,
    }
    pod = template["spec"]
    (container,) = pod["containers"]
    assert (pod["restartPolicy"], pod["subdomain"], container["workingDir"]) == ("Never", "demo", "/work")
    words = ["python3", "-P", "-m", "tfk8s.task.programs.pod", "exit-code", "5", "-", "train.py", "$$(HOME)"]
    assert container["command"] == words
    assert {"startupProbe", "readinessProbe"}.isdisjoint(container)
    parts = [
        {
            "secret": {
                "name": name,
                "items": [{"key": "program.tar.gz", "path": f"program.tar.gz.{part}"}],
            }
        }
        for name, part in (("first", "00"), ("second", "01"))
    ]
    assert {volume["name"]: volume.get("projected") for volume in pod["volumes"]} == {
        "tfk8s": None, "scratch": None, "program": {"sources": parts}, "work": None,
    }  # fmt: skip
    values = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert values["TFK8S_ARCHIVE"] == "/opt/tfk8s/program"
    assert values["PYTHONUNBUFFERED"] == "1"
    assert "TFK8S_TARGET" not in values


def test_never_gives_an_index_one_pod() -> None:
    job = objects(worker(), run=RunPolicy(restart_on="never"))["Job", "demo-worker"]
    assert job["spec"]["backoffLimitPerIndex"] == 0
    assert {"successPolicy", "activeDeadlineSeconds"}.isdisjoint(job["spec"])


def test_command_has_the_master_as_its_target() -> None:
    found = objects(Job(name="ps", port=2300), worker("python3", "-m", "trainer"))
    pod = found["Job", "demo-worker"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    values = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert values["TFK8S_TARGET"] == "grpc://demo-ps-0.demo.$(TFK8S_NAMESPACE).svc:2300"
    assert "workingDir" not in container
    assert [volume["name"] for volume in pod["volumes"]] == ["tfk8s", "scratch"]
    assert ("PodDisruptionBudget", "demo-worker") not in found


@pytest.mark.parametrize(("gpus", "ports"), [(0, [2222, 2322]), (1, None)])
def test_pods_of_programs_with_gpus_connect_to_all_ports_of_each_other(gpus: int, ports: object) -> None:
    policy = objects(worker(gpus=gpus), network=Network(allow_to=()))["NetworkPolicy", "demo"]["spec"]
    for rule in (policy["ingress"][0], policy["egress"][0]):
        assert (None if gpus else [port["port"] for port in rule["ports"]]) == ports
        assert ("ports" in rule) is (not gpus)
    assert len(policy["ingress"]) == 1


def test_limits_remove_jobs_too() -> None:
    found = {(item["kind"], item["metadata"]["name"]): item for item in render.objects(loads(PROGRAMS, "job.yaml"))}
    role = found["Role", "programs-lifetime"]
    names = [rule["resourceNames"] for rule in role["rules"] if rule["resources"] == ["jobs"]]
    assert names[0] == [name for (_, name), item in found.items() if manifests.is_program(item)]
    assert len(names[0]) == 4
    record, keeper = (item for (kind, name), item in found.items() if kind == "Job" and "-lifetime-" in name)
    assert names[1:] == [[record["metadata"]["name"]]]
    (container,) = keeper["spec"]["template"]["spec"]["containers"]
    assert {"name": "TFK8S_PROGRAMS", "value": "My_worker,evaluator,old,worker"} in container["env"]
    assert "subdomain" not in keeper["spec"]["template"]["spec"]


def test_scaled_job_has_nothing_of_its_controller() -> None:
    job = objects(worker())["Job", "demo-worker"]
    own = manifests.scaled(job, {})
    job["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "1"}}
    job["spec"]["template"]["metadata"]["labels"] |= {"batch.kubernetes.io/controller-uid": "1", "job-name": "demo"}
    job["metadata"] |= {"uid": "1", "resourceVersion": "2"}
    assert manifests.scaled(job, {}) == own
    more = manifests.scaled(job, {"worker": 5})
    (container,) = more["spec"]["template"]["spec"]["containers"]
    assert (more["spec"]["completions"], more["spec"]["parallelism"]) == (5, 5)
    assert {"name": "TFK8S_JOBS", "value": "worker=5"} in container["env"]


@pytest.mark.parametrize(("optional", "gpus"), [(False, "2"), (True, None)])
def test_a_program_is_told_the_gpus_that_it_must_see(optional: bool, gpus: str | None) -> None:
    job = objects(worker(gpus=2, gpus_optional=optional))["Job", "demo-worker"]
    variables = {entry["name"]: entry.get("value") for entry in pods_environment(job)}
    assert variables.get("TFK8S_GPUS") == gpus


def pods_environment(job: Object) -> list[Object]:
    return list(job["spec"]["template"]["spec"]["containers"][0]["env"])


def test_secret_of_another_folder_has_another_name() -> None:
    assert program_job.secret_name("demo", "abc") == "demo-program-abc"
    assert program_job.secret_name("demo") == "demo-program"


def coordinators(*jobs: Job, **settings: object) -> dict[str, str]:
    """Return the word for the pod that decides about restarts, by the names of Jobs."""
    return {
        name: item["spec"]["template"]["spec"]["containers"][0]["command"][6]
        for (kind, name), item in objects(*jobs, **settings).items()
        if kind == "Job"
    }


TOGETHER = RunPolicy(restart_scope="cluster")
ALPHA, CHIEF = worker("train.py", name="alpha"), worker("train.py", name="chief")


@pytest.mark.parametrize(
    ("run", "master", "alpha", "chief"),
    [
        (RunPolicy(), "chief", "-", "-"),
        (RunPolicy(restart_scope="task"), "chief", "-", "-"),
        (RunPolicy(restart_scope="job", restart_on="never"), "chief", "-", "-"),
        (RunPolicy(restart_scope="job"), "chief", "alpha/0:2225", "chief/0:2225"),
        (TOGETHER, "chief", "chief/0:2225", "chief/0:2225"),
        (TOGETHER, "ps", "alpha/0:2225", "alpha/0:2225"),
    ],
)
def test_first_task_decides_about_restarts(run: RunPolicy, master: str, alpha: str, chief: str) -> None:
    ps = Job(name="ps")
    assert coordinators(ALPHA, CHIEF, ps, run=run, master=master) == {"demo-alpha": alpha, "demo-chief": chief}


def test_port_of_restarts_is_no_other_and_open_between_the_pods() -> None:
    taken = worker("train.py", name="other", port=2225)
    assert coordinators(CHIEF, taken, run=TOGETHER, master="chief")["demo-chief"] == "chief/0:2228"
    policy = objects(CHIEF, taken, run=TOGETHER, master="chief")["NetworkPolicy", "demo"]["spec"]
    assert {"port": 2228, "protocol": "TCP"} in policy["ingress"][0]["ports"]
    alone = objects(CHIEF, taken, run=RunPolicy(), master="chief")["NetworkPolicy", "demo"]["spec"]
    assert len(alone["ingress"][0]["ports"]) == len(policy["ingress"][0]["ports"]) - 1
