"""Tests of the checks of `tfk8s doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from fakes.command_line import Run
from job_files import job_file

from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.backends.kubernetes.nodes.cluster_fit import Room
from tfk8s.backends.local import isolation
from tfk8s.backends.options import BackendOptions
from tfk8s.cluster import network_policy
from tfk8s.cluster.network_policy import Reach
from tfk8s.core.job_file.mappings import Network
from tfk8s.core.quantity import Quantity
from tfk8s.core.resources import Resources
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.features import doctor
from tfk8s.features.doctor import command, kubernetes
from tfk8s.features.doctor import local as local_checks
from tfk8s.features.doctor.check import Check, State, complete
from tfk8s.render import rbac

pytest_plugins = ("fakes.command_line",)


class FakeClient:
    """An API server with two nodes that denies some permissions."""

    context, namespace = "kind-test", "team"
    url = "https://127.0.0.1:6443"

    served = frozenset({"scheduling.k8s.io/v1beta1"})

    def __init__(
        self, *denied: str, namespaces: tuple[str, ...] = ("team",), policies: tuple[dict[str, Any], ...] = ()
    ) -> None:
        self.denied, self.namespaces, self.policies = denied, namespaces, policies
        self.reviews: list[str] = []

    def __call__(self, context: str | None) -> FakeClient:
        return self

    def require_version(self) -> frozenset[str]:
        return self.served

    def get(self, path: str, query: dict[str, str] | None = None) -> dict[str, Any]:
        if path == "/version":
            return {"gitVersion": "v1.36.3"}
        if path == "/api/v1/nodes":
            return {"items": [node({"cpu": "4"}), node({"cpu": "4", "nvidia.com/gpu": "8"})]}
        if path == "/apis/networking.k8s.io/v1/namespaces/team/networkpolicies":
            if "list networkpolicies" in self.denied:
                raise ApiError(403, "you may not list networkpolicies", help="ask")
            return {"items": list(self.policies)}
        running = "spec.nodeName=n,status.phase!=Succeeded,status.phase!=Failed"
        assert (path, query) == ("/api/v1/pods", {"fieldSelector": running})
        return {"items": []}

    def find(self, path: str) -> dict[str, Any] | None:
        name = path.rpartition("/")[2]
        return {"name": name} if name in self.namespaces else None

    def send(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        attributes = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (attributes["resource"], attributes["subresource"])))
        self.reviews.append(f"{attributes['verb']} {resource}")
        return {"status": {"allowed": not {self.reviews[-1], "all"} & set(self.denied)}}


def node(allocatable: dict[str, str], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "n", "labels": labels}, "spec": {}, "status": {"allocatable": allocatable}}


def on_kubernetes(
    monkeypatch: pytest.MonkeyPatch, client: FakeClient, image: str | None = None, job_file: JobFile | None = None
) -> dict[str, Check]:
    monkeypatch.setattr(kubernetes, "Client", client)
    return {check.name: check for check in doctor.examine(BackendOptions(context="kind-test"), image, job_file)}


# ---- Kubernetes ----------------------------------------------------------------------------------------------------


def test_all_checks_of_kubernetes_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = with_pods(monkeypatch, Reach(enforced=True))
    assert {check.state for check in checks.values()} == {State.OK}
    assert [(check.name, check.detail) for check in checks.values()][1:] == [
        ("kubeconfig", 'context "kind-test", namespace "team"'),
        ("API server", "Kubernetes v1.36.3 at https://127.0.0.1:6443"),
        ("namespace", '"team" exists'),
        ("permissions: up", 'all, in namespace "team"'),
        ("permissions: submit", 'all, in namespace "team"'),
        ("permissions: down", 'all, in namespace "team"'),
        ("permissions: max_duration, idle, drain: idle", 'all, in namespace "team"'),
        ("permissions: suspension while idle", 'all, in namespace "team"'),
        ("permissions: programs", 'all, in namespace "team"'),
        ("permissions: claims", 'all, in namespace "team"'),
        ("permissions: gangs", 'all, in namespace "team"'),
        ("permissions: suspension in a queue", 'all, in namespace "team"'),
        ("permissions: shared history", 'all, in namespace "team"'),
        ("gangs", "the tasks of a new cluster start together or not at all, by a PodGroup"),
        ("nodes", "2 nodes: all ready, without taints"),
        ("GPUs", "free: n 8 of 8 nvidia.com/gpu"),
        ("Egress policies", "none cuts the tasks off from each other or from DNS"),
        ("NetworkPolicy", "enforced: a pod could connect to an allowed port only"),
        ("metadata server", "a pod gets no answer from 169.254.169.254:80"),
        ("API server, from pods", "a pod gets no answer from the API server"),
    ]


def with_pods(monkeypatch: pytest.MonkeyPatch, reach: Reach) -> dict[str, Check]:
    """Return the checks where two pods found what pods reach."""
    monkeypatch.setattr(network_policy, "test", lambda client, namespace, image: reach)
    return on_kubernetes(monkeypatch, FakeClient(), "python:3")


def test_what_pods_reach_is_a_note_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = with_pods(monkeypatch, Reach(enforced=True, metadata=True, api_server=True))
    assert checks["metadata server"] == Check(
        "metadata server",
        State.NOTE,
        "a pod reaches 169.254.169.254:80, which may give the node's credentials to whoever asks",
        "to close it, unless the pods use Workload Identity: network: {allow_to: [{cidr: 0.0.0.0/0, except: "
        "[169.254.169.254/32]}]} in the job file",
    )
    assert checks["API server, from pods"] == Check(
        "API server, from pods",
        State.NOTE,
        "a pod reaches the API server; the pods of tasks and scripts have no token for it",
        "to close it, name what the tasks connect to: network: {allow_to: […]} in the job file",
    )
    assert complete(checks.values())


DENY = {"metadata": {"name": "deny"}, "spec": {"podSelector": {}, "policyTypes": ["Egress"]}}


@pytest.mark.parametrize(
    ("settings", "state"),
    [(None, State.NOTE), ({}, State.MISSING), ({"network": Network(allow_to=())}, State.OK)],
    ids=str,
)
def test_default_deny(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any] | None, state: State) -> None:
    monkeypatch.setattr(kubernetes, "find_room", lambda client, namespace, name, objects: Room(asked=ASKED))
    file = None if settings is None else job_file(image="tf:1", **settings)
    check = on_kubernetes(monkeypatch, FakeClient(policies=(DENY,)), job_file=file)["Egress policies"]
    words = 'NetworkPolicy "deny" cuts the tasks off from each other and from DNS'
    assert (check.state, check.detail == words) == (state, state is not State.OK)
    assert check.help == ("" if state is State.OK else "write `network: {allow_to: []}` in the job file")


def test_policies_that_can_not_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    check = on_kubernetes(monkeypatch, FakeClient("list networkpolicies"))["Egress policies"]
    assert check == Check("Egress policies", State.UNKNOWN, "you may not list networkpolicies", "ask")


def test_missing_permission_is_listed_with_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = on_kubernetes(monkeypatch, FakeClient("patch services", "get pods"))
    states = {name: checks[f"permissions: {name}"].state for name in ("up", "submit", "down")}
    assert states == {"up": State.MISSING, "submit": State.MISSING, "down": State.OK}
    assert checks["permissions: up"].detail == 'you may not patch services in namespace "team"'
    assert "the Role tfk8s-user:" in checks["permissions: up"].help
    assert "the Role tfk8s-submit:" in checks["permissions: submit"].help


def test_missing_permissions_for_limits_are_told_and_forbid_no_other_job_file(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = on_kubernetes(monkeypatch, FakeClient("create roles", "delete configmaps"))
    assert checks["permissions: up"].state is State.OK
    assert checks["permissions: max_duration, idle, drain: idle"] == Check(
        "permissions: max_duration, idle, drain: idle",
        State.NOTE,
        "job files with them would be refused: you may not create roles.rbac.authorization.k8s.io, delete configmaps "
        'in namespace "team"',
        "ask an administrator for the Role tfk8s-user: `tfk8s roles | kubectl apply -n team -f -` creates it, "
        "`kubectl create rolebinding YOU -n team --role=tfk8s-user --user=YOU` grants it",
    )


def test_nothing_that_a_user_without_rights_can_not_do_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = on_kubernetes(monkeypatch, FakeClient("all"))
    permissions = {name: check for name, check in checks.items() if name.startswith("permissions: ")}
    assert len(permissions) == 3 + len(rbac.FEATURES)
    assert not [name for name, check in permissions.items() if check.state is State.OK or not check.help]


def test_at_most_three_missing_permissions_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient("all")
    checks = on_kubernetes(monkeypatch, client)
    needed = [p for p in rbac.PERMISSIONS if set(p.commands) & {"up", "submit", "down"}]
    assert sorted(client.reviews) == sorted(f"{p.verb} {p.resource}" for p in needed)
    missing = [p for p in needed if "submit" in p.commands and rbac.RULES not in p.features]
    first = ", ".join(map(str, missing[:3]))
    assert (
        checks["permissions: submit"].detail == f'you may not {first} and {len(missing) - 3} more in namespace "team"'
    )


def test_missing_namespace_skips_its_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = on_kubernetes(monkeypatch, FakeClient(namespaces=()))
    assert checks["namespace"].help == "kubectl create namespace team"
    assert set(checks) == {"versions", "kubeconfig", "API server", "namespace", "gangs", "nodes", "GPUs"}


def test_without_pod_groups_nobody_is_asked_for_rights_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeClient()
    client.served = frozenset()
    checks = on_kubernetes(monkeypatch, client)
    detail = "none: the API server has no scheduling.k8s.io/v1beta1, so tasks start one by one"
    assert checks["gangs"] == Check("gangs", State.OK, detail)
    assert "permissions: gangs" not in checks
    assert not [review for review in client.reviews if "podgroups" in review]


def test_network_policy_is_unknown_without_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = on_kubernetes(monkeypatch, FakeClient())["NetworkPolicy"]
    assert policy.state is State.UNKNOWN
    assert "tfk8s doctor --context kind-test --image IMAGE" in policy.help


def test_network_policy_that_is_not_enforced_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_pods(monkeypatch, Reach(enforced=False))["NetworkPolicy"].state is State.MISSING


def test_network_policy_is_unknown_if_the_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bool:
        raise ApiError(403, '"jo" may not create pods', help="ask")

    monkeypatch.setattr(network_policy, "test", refuse)
    checks = on_kubernetes(monkeypatch, FakeClient(), "python:3")
    assert list(checks)[-1] == "NetworkPolicy"
    assert checks["NetworkPolicy"] == Check(
        "NetworkPolicy", State.UNKNOWN, 'could not be tested: "jo" may not create pods', "ask"
    )


@pytest.mark.parametrize("error", [InvalidInput("no kubeconfig", help="get one"), ClusterError("no answer")])
def test_missing_kubeconfig_ends_the_checks(monkeypatch: pytest.MonkeyPatch, error) -> None:
    def client(context: str | None) -> None:
        raise error

    checks = on_kubernetes(monkeypatch, client)  # type: ignore[arg-type]
    assert list(checks) == ["versions", "kubeconfig"]
    assert checks["kubeconfig"] == Check("kubeconfig", State.MISSING, str(error), error.help or "")


def test_policy_allows_one_port() -> None:
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
def test_waiting_reason_of_a_pod(status: dict[str, Any], words: str) -> None:
    assert network_policy.waiting_reason({"status": status}) == words


ASKED = Resources.parse({"cpu": "300m", "memory": "1536Mi"})
SHORT = "the tasks of job worker request 300m cpu in sum, and the only node for them has 200m cpu"


@pytest.mark.parametrize(
    ("room", "check"),
    [
        (
            Room(asked=ASKED),
            Check("room", State.OK, "the tasks request 300m cpu, 1536Mi memory in sum, and the nodes lack nothing"),
        ),
        (
            Room(asked=ASKED, is_known=False),
            Check(
                "room",
                State.UNKNOWN,
                "the tasks request 300m cpu, 1536Mi memory in sum; the scheduler or an autoscaler decides",
            ),
        ),
        (Room(asked=ASKED, shortage=SHORT), Check("room", State.UNKNOWN, SHORT)),
        (Room(asked=ASKED, shortage=SHORT, is_final=True), Check("room", State.MISSING, SHORT, "or add such nodes")),
    ],
)
def test_room_for_a_job_file(monkeypatch: pytest.MonkeyPatch, room: Room, check: Check) -> None:
    monkeypatch.setattr(kubernetes, "find_room", lambda client, namespace, name, objects: room)
    assert on_kubernetes(monkeypatch, FakeClient(), job_file=job_file(image="tf:1"))["room"] == check


def test_room_for_a_job_file_without_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    check = on_kubernetes(monkeypatch, FakeClient(), job_file=job_file())["room"]
    assert (check.state, check.detail) == (State.MISSING, 'job "chief" has no image')


# ---- this machine --------------------------------------------------------------------------------------------------


def this_machine(
    monkeypatch: pytest.MonkeyPatch, answer: str = '{"kind": "own network", "reason": ""}', free: int = 1 << 33
) -> dict[str, Check]:
    ended = subprocess.CompletedProcess([], 0, answer, "")
    monkeypatch.setattr(isolation.subprocess, "run", lambda *_, **__: ended)
    monkeypatch.setattr(local_checks.capacity, "available_memory", lambda: free)
    return {check.name: check for check in doctor.examine(BackendOptions(local=True))}


def test_all_checks_of_this_machine_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = this_machine(monkeypatch)
    assert list(checks) == ["versions", "system", "isolation", "way out", "TensorFlow", "memory", "GPUs"]
    assert {check.state for check in checks.values()} == {State.OK}
    assert checks["memory"].detail == "8.0 GiB free, enough for 164 idle tasks"


@pytest.mark.parametrize(
    ("answer", "state", "detail", "advice"),
    [
        (
            '{"kind": "loopback", "reason": "no network namespace: unshare"}',
            State.OK,
            "loopback: other users of this machine can connect (no network namespace: unshare)",
            "--cap-add SYS_ADMIN",
        ),
        ('{"error": "no", "help": "insist"}', State.MISSING, "no", "insist"),
        ("", State.MISSING, "the isolation of a cluster can't be found out: unknown reason", "see the reason"),
    ],
)
def test_a_machine_without_network_namespaces(
    monkeypatch: pytest.MonkeyPatch, answer: str, state: State, detail: str, advice: str
) -> None:
    check = this_machine(monkeypatch, answer)["isolation"]
    assert (check.state, check.detail) == (state, detail)
    assert advice in check.help


def test_room_for_a_job_file_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_checks.capacity, "available_memory", lambda: 1 << 30)
    check = local_checks.room(job_file())
    assert check == Check("room", State.OK, 'enough memory for all tasks of "mnist"')
    large = job_file("mnist", Job(name="worker", tasks=2, memory=Quantity.parse("1Gi")))
    assert local_checks.room(large) == Check(
        "room",
        State.MISSING,
        'cluster "mnist" needs 2.3 GiB of memory (worker 2 × 1Gi); this machine has 1.0 GiB free',
        "lower `memory` or `tasks` in a copy of the job file for this machine",
    )


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert this_machine(monkeypatch, free=1 << 28)["memory"].state is State.MISSING


def test_missing_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_checks.interpreter, "find_tensorflow", lambda: None)
    check = this_machine(monkeypatch)["TensorFlow"]
    assert check.state is State.MISSING
    assert check.help.startswith("pip install 'tfk8s[local]', or pip install tensorflow-cpu; or activate")


def test_checks_end_on_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert list(this_machine(monkeypatch)) == ["versions", "system"]


# ---- the command ---------------------------------------------------------------------------------------------------


CHECKS = [
    Check("API server", State.OK, "answers"),
    Check("NetworkPolicy", State.UNKNOWN, "not tested", "test it"),
    Check("permissions: submit", State.MISSING, "none", "ask"),
]


@pytest.mark.parametrize(("count", "code"), [(1, 0), (2, 0), (3, 1)])
def test_exit_code_is_1_if_a_requirement_is_missing(
    run: Run, monkeypatch: pytest.MonkeyPatch, count: int, code: int
) -> None:
    monkeypatch.setattr(command, "examine", lambda where, image, job_file: iter(CHECKS[:count]))
    assert run("doctor")[0] == code


def test_text_output(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "examine", lambda where, image, job_file: iter(CHECKS))
    assert run("doctor")[1].splitlines() == [
        "ok       API server           answers",
        "unknown  NetworkPolicy        not tested; test it",
        "missing  permissions: submit  none; ask",
    ]


def test_json_output(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "examine", lambda where, image, job_file: iter(CHECKS[1:2]))
    code, out, _ = run("doctor", "-o", "json")
    assert (code, json.loads(out)) == (
        0, [{"name": "NetworkPolicy", "state": "unknown", "detail": "not tested", "help": "test it"}],
    )  # fmt: skip


def test_contradicting_options(run: Run) -> None:
    code, out, err = run("doctor", "--local", "--context", "x")
    assert (code, out) == (2, "")
    assert "--local can't be combined with --context" in err
