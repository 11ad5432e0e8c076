"""What `tfk8s doctor` says of a machine and of a Kubernetes cluster."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fakes.backend import Run

from tfk8s.backends.kubernetes.errors import ApiError
from tfk8s.backends.options import BackendOptions
from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.render import rbac
from tfk8s.tools import doctor
from tfk8s.tools.doctor import kubernetes, network_policy
from tfk8s.tools.doctor import local as local_health
from tfk8s.tools.doctor.check import Check, State

pytest_plugins = ("fakes.command_line",)


class FakeClient:
    """An API server that allows some rights, and has two nodes."""

    context, namespace = "kind-test", "team"
    url = "https://127.0.0.1:6443"

    def __init__(self, *refused: str, namespaces: tuple[str, ...] = ("team",)) -> None:
        self.refused, self.namespaces = refused, namespaces
        self.asked: list[str] = []

    def __call__(self, context: str | None) -> FakeClient:
        return self

    def require_version(self) -> None:
        pass

    def get(self, path: str) -> dict[str, Any]:
        if path == "/version":
            return {"gitVersion": "v1.36.3"}
        assert path == "/api/v1/nodes"
        return {"items": [node({"cpu": "4"}), node({"cpu": "4", "nvidia.com/gpu": "8"})]}

    def find(self, path: str) -> dict[str, Any] | None:
        name = path.rpartition("/")[2]
        return {"name": name} if name in self.namespaces else None

    def send(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        asked = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        self.asked.append(f"{asked['verb']} {resource}")
        return {"status": {"allowed": not {self.asked[-1], "all"} & set(self.refused)}}


def node(allocatable: dict[str, str], **labels: str) -> dict[str, Any]:
    return {"metadata": {"labels": labels}, "status": {"allocatable": allocatable}}


def on_kubernetes(monkeypatch: pytest.MonkeyPatch, client: FakeClient, image: str | None = None) -> dict[str, Check]:
    monkeypatch.setattr(kubernetes, "Client", client)
    return {check.name: check for check in doctor.examine(BackendOptions(context="kind-test"), image)}


# ---- Kubernetes ----------------------------------------------------------------------------------------------------


def test_a_cluster_in_which_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_policy, "enforced", lambda client, namespace, image: True)
    found = on_kubernetes(monkeypatch, FakeClient(), "python:3")
    assert {check.state for check in found.values()} == {State.OK}
    assert [(check.name, check.detail) for check in found.values()][1:] == [
        ("kubeconfig", 'context "kind-test", namespace "team"'),
        ("API server", "Kubernetes v1.36.3 at https://127.0.0.1:6443"),
        ("namespace", '"team" is there'),
        ("rights to up", 'all, in namespace "team"'),
        ("rights to submit", 'all, in namespace "team"'),
        ("rights to down", 'all, in namespace "team"'),
        ("GPUs", "8 nvidia.com/gpu on 2 nodes"),
        ("NetworkPolicy", "enforced: a pod reached an allowed port, and not one that is not allowed"),
    ]


def test_a_right_that_is_missing_is_named_with_the_role_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_kubernetes(monkeypatch, FakeClient("patch services", "create pods/exec"))
    states = {name: found[f"rights to {name}"].state for name in ("up", "submit", "down")}
    assert states == {"up": State.MISSING, "submit": State.MISSING, "down": State.OK}
    assert found["rights to up"].detail == 'you may not patch services in namespace "team"'
    assert "the Role tfk8s-user:" in found["rights to up"].help
    assert "the Role tfk8s-submit:" in found["rights to submit"].help


def test_every_right_is_asked_for_and_the_first_few_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient("all")
    found = on_kubernetes(monkeypatch, client)
    wanted = [right for right in rbac.PERMISSIONS if set(right.commands) & {"up", "submit", "down"}]
    assert sorted(client.asked) == sorted(f"{right.verb} {right.resource}" for right in wanted)
    needed = [right for right in wanted if "submit" in right.commands]
    first = ", ".join(map(str, needed[:3]))
    assert found["rights to submit"].detail == f'you may not {first} and {len(needed) - 3} more in namespace "team"'


def test_a_namespace_that_is_not_there_ends_what_is_asked_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = on_kubernetes(monkeypatch, FakeClient(namespaces=()))
    assert found["namespace"].help == "kubectl create namespace team"
    assert set(found) == {"versions", "kubeconfig", "API server", "namespace", "GPUs"}


def test_without_an_image_it_is_not_known_whether_policies_are_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = on_kubernetes(monkeypatch, FakeClient())["NetworkPolicy"]
    assert policy.state is State.UNKNOWN
    assert "tfk8s doctor --context kind-test --image IMAGE" in policy.help


def test_a_network_that_does_not_enforce_policies_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_policy, "enforced", lambda client, namespace, image: False)
    assert on_kubernetes(monkeypatch, FakeClient(), "python:3")["NetworkPolicy"].state is State.MISSING


def test_what_could_not_be_tried_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise ApiError(403, '"jo" may not create pods', help="ask")

    monkeypatch.setattr(network_policy, "enforced", refuse)
    found = on_kubernetes(monkeypatch, FakeClient(), "python:3")["NetworkPolicy"]
    assert found == Check("NetworkPolicy", State.UNKNOWN, 'it could not be tried: "jo" may not create pods', "ask")


@pytest.mark.parametrize("error", [InvalidInput("no kubeconfig", help="get one"), ClusterError("no answer")])
def test_without_a_kubeconfig_there_is_nothing_more_to_look_at(monkeypatch: pytest.MonkeyPatch, error) -> None:
    def client(context: str | None) -> None:
        raise error

    found = on_kubernetes(monkeypatch, client)  # type: ignore[arg-type]
    assert list(found) == ["versions", "kubeconfig"]
    assert found["kubeconfig"] == Check("kubeconfig", State.MISSING, str(error), error.help or "")


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([node({"cpu": "4"})], "none on 1 node: jobs with `gpus` would wait for such a node"),
        (
            [node({"amd.com/gpu": "2"}), node({"nvidia.com/gpu": "1"}, **{kubernetes.GKE_ACCELERATOR: "nvidia-l4"})],
            "2 amd.com/gpu, 1 nvidia.com/gpu (nvidia-l4) on 2 nodes",
        ),
    ],
)
def test_gpus_by_kind(nodes: list[dict[str, Any]], words: str) -> None:
    assert kubernetes.gpus(nodes) == words


def test_the_probe_allows_one_port_of_its_own_pod_only() -> None:
    policy, pod = network_policy.policy("probe"), network_policy.pod("probe-0", "probe", "python:3", "pass", "10.0.0.1")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8001}]}]
    assert pod["spec"]["containers"][0]["command"] == ["python3", "-c", "pass", "10.0.0.1"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"containerStatuses": [{"state": {"waiting": {"reason": "BadImage", "message": "x"}}}]}, "BadImage: x"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]}, "0/1 nodes"),
        ({}, ""),
    ],
)  # fmt: skip
def test_why_a_pod_of_the_probe_does_not_run(status: dict[str, Any], words: str) -> None:
    assert network_policy.why_not({"status": status}) == words


# ---- this machine --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["tensorflow-2.21.0"], ["tensorflow_cpu-2.21.0", "tensorflow_datasets-4.9.1"]])
def test_tensorflow_s_version_without_importing_it(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / f"{name}.dist-info").mkdir()
    assert doctor.tensorflow_version(tmp_path / "tensorflow") == "2.21.0"


def this_machine(
    monkeypatch: pytest.MonkeyPatch, code: int = 0, stderr: str = "", free: int = 1 << 33
) -> dict[str, Check]:
    ended = subprocess.CompletedProcess([], code, "", stderr)
    monkeypatch.setattr(local_health.subprocess, "run", lambda *_, **__: ended)
    monkeypatch.setattr(local_health.capacity, "available_memory", lambda: free)
    return {check.name: check for check in doctor.examine(BackendOptions(local=True))}


def test_a_machine_on_which_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    found = this_machine(monkeypatch)
    assert list(found) == ["versions", "system", "namespaces", "TensorFlow", "memory", "GPUs"]
    assert {check.state for check in found.values()} == {State.OK}
    assert found["memory"].detail == "8.0 GiB free, enough for 164 idle tasks"


def test_namespaces_that_are_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = "Traceback (most recent call last):\n  …\nOSError: [Errno 1] unshare: Operation not permitted\n"
    check = this_machine(monkeypatch, 1, stderr)["namespaces"]
    assert (check.state, check.detail) == (
        State.MISSING, "tasks can't have a network of their own: unshare: Operation not permitted",
    )  # fmt: skip
    assert "--allow-exposed-ports" in check.help


def test_memory_for_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    assert this_machine(monkeypatch, free=1 << 28)["memory"].state is State.MISSING


def test_tensorflow_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_health.interpreter, "tensorflow_folder", lambda python: None)
    check = this_machine(monkeypatch)["TensorFlow"]
    assert (check.state, check.help) == (State.MISSING, "pip install 'tfk8s[local]', or pip install tensorflow-cpu")


def test_another_system_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_health.sys, "platform", "darwin")
    assert list(this_machine(monkeypatch)) == ["versions", "system"]


# ---- the command ---------------------------------------------------------------------------------------------------


CHECKS = [
    Check("API server", State.OK, "answers"),
    Check("NetworkPolicy", State.UNKNOWN, "who knows", "try it"),
    Check("rights to submit", State.MISSING, "none", "ask"),
]


@pytest.mark.parametrize(("count", "code"), [(1, 0), (2, 0), (3, 1)])
def test_only_what_is_missing_counts(run: Run, monkeypatch: pytest.MonkeyPatch, count: int, code: int) -> None:
    monkeypatch.setattr(doctor, "examine", lambda where, image: iter(CHECKS[:count]))
    assert run("doctor")[0] == code


def test_one_line_a_check(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", lambda where, image: iter(CHECKS))
    assert run("doctor")[1].splitlines() == [
        "ok       API server        answers",
        "unknown  NetworkPolicy     who knows; try it",
        "missing  rights to submit  none; ask",
    ]


def test_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "examine", lambda where, image: iter(CHECKS[1:2]))
    code, out, _ = run("doctor", "-o", "json")
    assert (code, json.loads(out)) == (
        0, [{"name": "NetworkPolicy", "state": "unknown", "detail": "who knows", "help": "try it"}],
    )  # fmt: skip


def test_where_contradicts_itself(run: Run) -> None:
    code, out, err = run("doctor", "--local", "--context", "x")
    assert (code, out) == (2, "")
    assert "--local and --context exclude each other" in err
