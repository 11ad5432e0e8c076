"""TFJobs that are made from job files."""

from __future__ import annotations

from typing import Any

import pytest
import yaml_text

from tfk8s import render
from tfk8s.errors import InvalidInput
from tfk8s.jobfile.loader import loads
from tfk8s.render import tfjob

HEAD = "apiVersion: tfk8s.dev/v1\nname: mnist\nimage: a\n"
NETWORK = "a TFJob has no NetworkPolicy: each pod that reaches its pods can connect to them"
VARIABLES = "a TFJob sets TF_CONFIG alone, and none of the variables TFK8S_…"


def rendered(text: str, namespace: str | None = None) -> Any:
    """Return the TFJob of a job file."""
    return yaml_text.read(render.tfjob_text(loads(HEAD + text, "cluster.yaml"), namespace))


def container(found: Any, kind: str) -> Any:
    """Return the container of a replica type."""
    (found,) = found["spec"]["tfReplicaSpecs"][kind]["template"]["spec"]["containers"]
    return found


FILE = """\
namespace: team
queue: gold
ttl: 60
labels: {team: a}
run: {restart_on: failure, max_restarts: 5, timeout: 2h}
jobs:
  chief: {program: [python3, train.py, "$HOME"], env: {PYTHONPATH: /lib, A: $b}, port: 2300}
  ps: 2
"""


def test_tfjob_has_the_rules_of_the_run() -> None:
    found = rendered(FILE.replace("train.py", "/app/train.py"))
    assert {key: found[key] for key in ("apiVersion", "kind", "metadata")} == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "mnist", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "gold"}},
    }
    assert found["spec"]["runPolicy"] == {
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": 60,
        "backoffLimit": 5,
        "activeDeadlineSeconds": 7200,
    }
    replicas = found["spec"]["tfReplicaSpecs"]
    assert {kind: (one["replicas"], one["restartPolicy"]) for kind, one in replicas.items()} == {
        "PS": (2, "OnFailure"),
        "Chief": (1, "OnFailure"),
    }
    assert replicas["PS"]["template"]["metadata"] == {"labels": {"team": "a"}}


def test_container_has_nothing_of_tfk8s() -> None:
    found = rendered(FILE.replace("train.py", "/app/train.py"))
    chief = container(found, "Chief")
    assert sorted(chief) == [
        "command", "env", "image", "name", "ports", "resources", "securityContext", "volumeMounts",
    ]  # fmt: skip
    assert chief["name"] == "tensorflow"
    assert chief["command"] == ["python3", "/app/train.py", "$$HOME"]
    assert chief["ports"] == [{"name": "tfjob-port", "containerPort": 2300}]
    assert chief["env"] == [
        {"name": "A", "value": "$$b"},
        {"name": "CUDA_VISIBLE_DEVICES", "value": "-1"},
        {"name": "HOME", "value": "/tmp"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
        {"name": "PYTHONPATH", "value": "/lib"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "TF_CPP_MIN_LOG_LEVEL", "value": "1"},
        {"name": "TF_GRPC_DEFAULT_OPTIONS", "value": "grpc.initial_reconnect_backoff_ms=100"},
    ]
    assert container(found, "PS")["command"] == ["python3", "-c", tfjob.SERVER]


@pytest.mark.parametrize(
    ("jobs", "policy"),
    [
        ("worker: {tasks: 2, program: [a]}", "AllWorkers"),
        ("worker: {tasks: 1, program: [a]}", None),
        ("worker: {tasks: 2, program: [a]}\n  chief: {program: [a]}", None),
    ],
)
def test_success_policy(jobs: str, policy: str | None) -> None:
    assert rendered(f"jobs:\n  {jobs}")["spec"].get("successPolicy") == policy


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("jobs: {worker: {program: [a]}}", [NETWORK, VARIABLES, "a TFJob with one replica gets no TF_CONFIG"]),
        (
            (
                "jobs: {worker: {tasks: 2, program: [a]}, ps: {preload: [b]}, evaluator: {program: [c]}}\n"
                "max_duration: 1h\nidle: 1h\nvolumes: [{path: /c, claim: c, create: 1Gi}]"
            ),
            [
                "a TFJob restarts a failed replica alone, and has no restart_scope: cluster",
                "a TFJob has no max_duration",
                "a TFJob has no idle",
                'a TFJob makes no claim: make "c" first',
                'the servers of job "ps" in a TFJob do not preload b',
                NETWORK,
                VARIABLES,
                "the TF_CONFIG of all replicas of a TFJob names the evaluator",
            ],
        ),
        (
            "jobs: {worker: {tasks: 3, program: [a]}}\nrun: {success: worker/1, restart_scope: task}",
            [
                "a TFJob succeeds when worker/0 ends with exit code 0, whatever run.success says",
                NETWORK,
                VARIABLES,
            ],
        ),
    ],
)
def test_what_a_tfjob_lacks(text: str, lost: list[str]) -> None:
    assert tfjob.differences(loads(HEAD + text, "cluster.yaml")) == lost


@pytest.mark.parametrize(
    ("jobs", "message", "advice"),
    [
        (
            "worker: 2",
            'a TFJob runs programs, and no job of "mnist" has one',
            "add a program to a job, as in program: [python3, -m, trainer]",
        ),
        (
            "trainer: {program: [a]}",
            'job "trainer" is no replica type of a TFJob',
            "rename the job: chief, master, worker, ps, evaluator",
        ),
        (
            "chief: {program: [a]}, master: {program: [a]}",
            "a TFJob can't have both a chief and a master",
            "rename one of the jobs",
        ),
        ("ps: {program: [a]}", "a TFJob needs a chief, a master or workers, whose end decides about its success", None),
        (
            "worker: {program: [src/train.py]}",
            (
                'the image of a TFJob must have the program of job "worker", '
                'and "src/train.py" is a file beside the job file'
            ),
            "put the program into the image or a volume, and write a command: program: [python3, /app/train.py]",
        ),
        (
            "worker: {program: [a]}, ps: {kind: data, tasks: 2}",
            "a TFJob can't run tf.data's service, as job \"ps\" does",
            "remove the job; run the service beside the TFJob, and give the program its address",
        ),
        ('worker: ["a:1"]', 'the servers of "mnist" already run at the addresses in its job file', None),
    ],
)
def test_job_files_that_no_tfjob_can_run(jobs: str, message: str, advice: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        rendered(f"jobs: {{{jobs}}}")
    assert (str(caught.value), caught.value.help) == (message, advice)
