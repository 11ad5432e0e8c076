"""Job files that are made from TFJobs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
import yaml_text
from tfjobs import TFJOB

from tfk8s.errors import InvalidInput, JobFileError
from tfk8s.features.init import kubeflow
from tfk8s.jobfile.loader import loads

HERE = Path(__file__).parent

READ_ONLY = "the pods do not run as root, and only /tmp and volumes are writable (docs/security.md)"


def converted(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the job file of a text, and the notes."""
    found = kubeflow.convert(text.encode(), "tfjob.yaml")
    return found.data, found.notes


def test_whole_job_file() -> None:
    """With TFK8S_UPDATE=1, the test writes the expected job file."""
    found = kubeflow.convert((HERE / "tfjob.yaml").read_bytes(), "tfjob.yaml").text("tfjob.yaml")
    expected = HERE / "tfjob.expected.yaml"
    if os.environ.get("TFK8S_UPDATE"):
        expected.write_text(found)
    assert found == expected.read_text()
    assert loads(found, "cluster.yaml").name


def test_smallest_tfjob() -> None:
    data, notes = converted(TFJOB)
    assert data == {
        "apiVersion": "tfk8s.dev/v1",
        "name": "mnist",
        "image": "a",
        "jobs": {"worker": {"tasks": 1, "program": ["b"]}},
        "run": {"restart_on": "never"},
    }
    assert notes == (
        READ_ONLY,
        "only the pods of the cluster connect to its pods; network: {allow_from: …} lets others in",
    )


def with_spec(**keys: Any) -> str:
    """Return the smallest TFJob with more fields of its spec."""
    data = yaml_text.read(TFJOB)
    data["spec"] |= keys
    return yaml.safe_dump(data)


def with_replicas(**replicas: dict[str, Any]) -> str:
    """Return a TFJob with more fields of its replicas, by their type."""
    data = yaml_text.read(TFJOB)
    worker = data["spec"]["tfReplicaSpecs"].pop("Worker")
    data["spec"]["tfReplicaSpecs"] = {kind: worker | more for kind, more in replicas.items()}
    return json.dumps(data)


def with_pod(container: dict[str, Any] | None = None, **keys: Any) -> str:
    """Return the smallest TFJob with more fields of its container and of its pod."""
    data = yaml_text.read(TFJOB)
    spec = data["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    spec |= keys
    spec["containers"][0] |= container or {}
    return yaml.safe_dump(data)


@pytest.mark.parametrize(
    ("text", "run"),
    [
        (with_replicas(Worker={"restartPolicy": "ExitCode", "replicas": 2}), {"restart_on": "exit-code", "max_restarts": 1000, "success": "worker/0"}),  # noqa: E501
        (with_spec(runPolicy={"backoffLimit": 4, "activeDeadlineSeconds": 60}), {"restart_on": "never", "timeout": 60}),
        (with_spec(backoffLimit=4, activeDeadlineSeconds=60), {"restart_on": "never", "timeout": 60}),
        (with_replicas(chief={}, worker={"replicas": 2}, ps={}), {"restart_on": "never"}),
        (with_replicas(worker={}, ps={}), {"restart_on": "never", "success": "worker"}),
        (with_replicas(worker={}, evaluator={}), {"restart_on": "never"}),
    ],
)  # fmt: skip
def test_run(text: str, run: dict[str, Any]) -> None:
    assert converted(text)[0]["run"] == run


@pytest.mark.parametrize(
    ("resources", "keys"),
    [
        ({"limits": {"cpu": "500m"}}, {"cpu": "500m"}),
        ({"requests": {"cpu": "500m"}, "limits": {"cpu": 1}}, {"cpu": 1}),
        ({"requests": {"memory": "1Gi"}}, {"memory": "1Gi"}),
        ({"limits": {"rdma/hca": 1}}, {}),
        ({"limits": {"nvidia.com/gpu": 2}}, {"gpus": 2}),
    ],
)  # fmt: skip
def test_resources(resources: dict[str, Any], keys: dict[str, Any]) -> None:
    job = converted(with_pod({"resources": resources}))[0]["jobs"]["worker"]
    assert job == {"tasks": 1, "program": ["b"], **keys}


@pytest.mark.parametrize(
    ("env", "args", "program"),
    [
        ([{"name": "A", "value": "1"}], ["$(A) $$(A) $(B) $A"], ["b", "1 $(A) $(B) $A"]),
        ([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}], ["$(B)"], ["b", "12"]),
    ],
)
def test_references_to_variables(env: list[Any], args: list[str], program: list[str]) -> None:
    assert converted(with_pod({"env": env, "args": args}))[0]["jobs"]["worker"]["program"] == program


def test_relative_python_file_is_a_command_of_the_image() -> None:
    assert converted(with_pod({"command": ["./train.py"]}))[0]["jobs"]["worker"]["program"] == ["env", "./train.py"]


def test_fields_beside_a_run_policy_are_those_of_an_old_version() -> None:
    data, notes = converted(with_spec(runPolicy={"activeDeadlineSeconds": 60}, cleanPodPolicy="All", suspend=True))
    assert data["run"] == {"restart_on": "never", "timeout": 60}
    assert notes[1:3] == ("spec.cleanPodPolicy has no counterpart", "spec.suspend has no counterpart")


def test_misspelt_fields_have_their_path_and_a_suggestion() -> None:
    _, notes = converted(with_spec(runPolicy={"backoffLimt": 3}))
    assert notes[1] == "spec.runPolicy.backoffLimt has no counterpart; did you mean backoffLimit?"


def test_long_name() -> None:
    data, notes = converted(TFJOB.replace("mnist", "m" * 60))
    assert data["name"] == "m" * 45
    assert notes[1] == f'the name is "{"m" * 45}": with the names of jobs, at most 52 characters fit'


@pytest.mark.parametrize(
    ("text", "message", "advice"),
    [
        ("kind: Pod\nmetadata: {name: a}", '"tfjob.yaml" has no TFJob: it has Pod "a"', "name a file with a TFJob"),
        ("", '"tfjob.yaml" has no TFJob', "name a file with a TFJob"),
        ("apiVersion: tfk8s.dev/v1\nname: a", '"tfjob.yaml" is a job file already', "tfk8s validate tfjob.yaml"),
    ],
)  # fmt: skip
def test_file_without_such_an_object(text: str, message: str, advice: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        kubeflow.convert(text.encode(), "tfjob.yaml")
    assert (str(caught.value), caught.value.help) == (message, advice)


BAD = [
    "a: [",
    "a: &b 1",
    "- a",
    f"{TFJOB}---\n{TFJOB}",
    TFJOB.replace("org/v1", "org/v7"),
    TFJOB.replace("{name: mnist}", "{}"),
    TFJOB.replace("Worker", "Driver"),
    TFJOB + TFJOB.partition("tfReplicaSpecs:\n")[2].replace("Worker", "worker"),
    TFJOB.replace("tfReplicaSpecs", "replicaSpecs"),
    TFJOB.replace("name: tensorflow", "name: main"),
    TFJOB.replace("image: a, ", ""),
    TFJOB.replace("image: a", "image: A b"),
    TFJOB.replace("command: [b]", "command: b"),
    TFJOB.replace("command: [b]", "command: [1]"),
    TFJOB.replace("command: [b]", "command: [b], resources: {limits: {cpu: x}}"),
    TFJOB.replace("          containers", "          tolerations: [{operator: yes}]\n          containers"),
    TFJOB.replace("      template:", "      replicas: two\n      template:"),
    TFJOB.replace("      template:", "      replicas: 20000\n      template:"),
    TFJOB.replace("      template:", "      restartPolicy: Maybe\n      template:"),
    TFJOB.replace("spec:\n", "spec:\n  successPolicy: Sometimes\n", 1),
]


def test_located_errors() -> None:
    """With TFK8S_UPDATE=1, the test writes the expected messages."""
    messages = []
    for text in BAD:
        with pytest.raises(JobFileError) as caught:
            kubeflow.convert(text.encode(), "tfjob.yaml")
        messages.append(str(caught.value))
    expected = HERE / "errors.txt"
    if os.environ.get("TFK8S_UPDATE"):
        expected.write_text("\n\n".join(messages) + "\n")
    assert "\n\n".join(messages) + "\n" == expected.read_text()


def test_a_container_without_a_command_gets_a_placeholder_for_its_entrypoint() -> None:
    data, notes = converted(TFJOB.replace("command: [b]", "args: [--steps=3]"))
    assert data["jobs"]["worker"]["program"] == ["ENTRYPOINT", "--steps=3"]
    assert notes[0] == (
        "worker: write the ENTRYPOINT of the image into program, in place of ENTRYPOINT; it is printed by "
        "docker inspect --format '{{json .Config.Entrypoint}} {{json .Config.Cmd}}' IMAGE"
    )


def test_a_value_that_only_the_whole_job_file_forbids_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidInput) as caught:
        converted(with_pod(nodeSelector={"a b": "c"}))
    assert str(caught.value).startswith("no job file can have jobs.worker.node_selector")


def test_args_that_begin_with_python_are_the_command() -> None:
    data, notes = converted(TFJOB.replace("command: [b]", "args: [python, -u, /app/mnist.py]"))
    assert data["jobs"]["worker"]["program"] == ["python", "-u", "/app/mnist.py"]
    assert "worker: the args are the command, without the ENTRYPOINT of the image" in notes
