"""Policies of others that cut a cluster's pods off."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest
import yaml_text
from hypothesis import given
from hypothesis import strategies as st
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes import default_deny
from tfk8s.backends.kubernetes.api_server.errors import ApiError
from tfk8s.core.job_file.mappings import Destination, Network
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job
from tfk8s.errors import InvalidInput
from tfk8s.render.pods import Object

ONE = job_file("demo", Job(name="worker"), image="tf:1")
TWO = job_file("demo", Job(name="ps"), Job(name="worker", tasks=2, labels={"team": "ads"}), image="tf:1")
EACH_OTHER, DNS, BOTH = "from each other", "from DNS", "from each other and from DNS"
ALL = "podSelector: {}, policyTypes: [Egress]"
TO_DNS = "{ports: [{port: 53, protocol: UDP}]}"
TO_SPACE = "{to: [{podSelector: {}}]}"
KUBE_SYSTEM = "{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}]}"
ELSEWHERE = "{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: db}}}]}"
NAME = "app.kubernetes.io/name"
OWN, OTHER, ADS = (f"{{matchLabels: {{{label}}}}}" for label in (f"{NAME}: tfk8s", f"{NAME}: other", "team: ads"))
NOT_ADS = "{matchExpressions: [{key: team, operator: DoesNotExist}]}"
POD_0 = "{matchLabels: {apps.kubernetes.io/pod-index: '0'}}"


def to_pods(selector: str, spaces: str = "") -> str:
    """Return a rule of an egress policy."""
    more = f", namespaceSelector: {spaces}" if spaces else ""
    return f"{{to: [{{podSelector: {selector}{more}}}]}}"


def policy(spec: str, name: str = "deny") -> Object:
    """Return a policy as the API server has it."""
    return {"kind": "NetworkPolicy", "metadata": {"name": name}, "spec": yaml_text.read(f"{{{spec}}}")}


def found(*specs: str, cluster: Any = TWO, namespace: str = "team") -> str:
    policies = [policy(spec, f"deny-{index}") for index, spec in enumerate(specs)]
    return str(default_deny.find(render.objects(cluster), policies, namespace) or "")


@pytest.mark.parametrize(
    ("egress", "what"),
    [
        ("", BOTH),
        (f", egress: [{TO_DNS}]", EACH_OTHER),
        (f", egress: [{KUBE_SYSTEM}]", EACH_OTHER),
        (f", egress: [{TO_SPACE}]", DNS),
        (f", egress: [{TO_SPACE}, {TO_DNS}]", ""),
        (f", egress: [{TO_SPACE}, {KUBE_SYSTEM}]", ""),
        (f", egress: [{TO_SPACE}, {ELSEWHERE}]", DNS),
        (f", egress: [{TO_SPACE}, {{to: [{{namespaceSelector: {{}}}}]}}]", ""),
        (", egress: [{}]", ""),
        (", egress: [{to: [{namespaceSelector: {}}]}]", ""),
        (", egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]", ""),  # the addresses of the pods are not known
        (", egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: 443}]}]", BOTH),
        (f", egress: [{TO_DNS}, {{ports: [{{port: 2222}}]}}]", ""),
        (f", egress: [{TO_DNS}, {{ports: [{{port: 2223}}]}}]", EACH_OTHER),
        (f", egress: [{TO_DNS}, {{ports: [{{port: 2000, endPort: 3000}}]}}]", ""),
        (f", egress: [{TO_DNS}, {{ports: [{{port: 2000, endPort: 2221}}]}}]", EACH_OTHER),
        (f", egress: [{TO_DNS}, {{ports: [{{port: grpc}}]}}]", ""),
        (f", egress: [{TO_DNS}, {{ports: [{{protocol: UDP}}]}}]", EACH_OTHER),
        (f", egress: [{TO_DNS}, {{ports: [{{protocol: TCP}}]}}]", ""),
        (f", egress: [{TO_SPACE}, {{ports: [{{port: 5353, protocol: UDP}}]}}]", ""),
        (f", egress: [{TO_DNS}, {to_pods(OWN)}]", ""),
        (f", egress: [{TO_DNS}, {to_pods(OTHER)}]", EACH_OTHER),
        (f", egress: [{TO_DNS}, {to_pods(ADS)}]", EACH_OTHER),  # not ps
        (f", egress: [{TO_DNS}, {to_pods(ADS)}, {to_pods(NOT_ADS)}]", ""),
        (f", egress: [{TO_DNS}, {to_pods(POD_0)}]", ""),
        (f", egress: [{TO_DNS}, {to_pods(OWN, spaces='{matchLabels: {tenant: a}}')}]", ""),  # a label of the namespace
        (f", egress: [{TO_DNS}, {to_pods(OTHER, spaces='{matchLabels: {tenant: a}}')}]", EACH_OTHER),
    ],
)
def test_rules_of_a_default_deny(egress: str, what: str) -> None:
    assert found(ALL + egress) == (f'NetworkPolicy "deny-0" cuts the tasks off {what}' if what else "")


@pytest.mark.parametrize(
    ("selector", "selects"),
    [
        ("{}", True),
        ("{matchLabels: {app.kubernetes.io/instance: demo}}", True),
        ("{matchLabels: {app.kubernetes.io/instance: other}}", False),
        ("{matchLabels: {team: ads}}", True),  # one job's pods
        ("{matchLabels: {team: ads, app: x}}", False),
        ("{matchExpressions: [{key: app, operator: NotIn, values: [x]}]}", True),
        ("{matchExpressions: [{key: app, operator: DoesNotExist}]}", True),
        ("{matchExpressions: [{key: app, operator: Exists}]}", False),
        ("{matchExpressions: [{key: team, operator: Exists}]}", True),
        ("{matchExpressions: [{key: team, operator: In, values: [x, ads]}]}", True),
        ("{matchExpressions: [{key: team, operator: NotIn, values: [ads]}]}", True),  # ps
        (f"{{matchExpressions: [{{key: {NAME}, operator: NotIn, values: [tfk8s]}}]}}", False),
        ("{matchLabels: {apps.kubernetes.io/pod-index: '0'}}", False),  # a controller's label: perhaps
        ("{matchLabels: {app.kubernetes.io/component: session-script}}", True),
    ],
)
def test_selectors_of_a_default_deny(selector: str, selects: bool) -> None:
    assert bool(found(f"podSelector: {selector}, policyTypes: [Egress]")) is selects


def test_policies_add_up() -> None:
    assert found(ALL, f"{ALL}, egress: [{TO_SPACE}]", f"{ALL}, egress: [{TO_DNS}]") == ""
    assert found(ALL, f"{ALL}, egress: [{TO_DNS}]") == (
        'NetworkPolicies "deny-0", "deny-1" cut the tasks off from each other'
    )
    perhaps = "podSelector: {matchLabels: {apps.kubernetes.io/pod-index: '0'}}, policyTypes: [Egress], egress: [{}]"
    assert found(ALL, perhaps) == ""


def test_policies_of_what_comes_in_close_nothing() -> None:
    """The cluster's own policy lets the pods of the cluster in."""
    assert found("podSelector: {}, policyTypes: [Ingress]", "podSelector: {}") == ""


def test_a_task_alone_needs_dns_and_its_scripts() -> None:
    assert found(f"{ALL}, egress: [{TO_DNS}]", cluster=ONE).endswith(EACH_OTHER)  # a script's pod and the task
    program = job_file("demo", Job(name="w", program=Program(("train.py",))), image="tf:1")
    assert found(f"{ALL}, egress: [{TO_DNS}]", cluster=program) == ""


def test_pods_with_a_dns_of_their_own() -> None:
    own = dataclasses.replace(TWO, pod={"dnsConfig": {"nameservers": ["10.0.0.1"]}})
    assert found(f"{ALL}, egress: [{TO_SPACE}]", cluster=own) == ""
    assert found(f"{ALL}, egress: [{TO_SPACE}]", namespace="kube-system") == ""


def test_an_earlier_policy_of_the_cluster_does_not_count() -> None:
    closed = dataclasses.replace(TWO, network=Network(allow_to=()))
    earlier = [item for item in render.objects(closed) if item["kind"] == "NetworkPolicy"]
    assert default_deny.find(render.objects(TWO), earlier, "team") is None
    assert default_deny.find(render.objects(TWO), [*earlier, policy(ALL)], "team")


SELECTORS = st.sampled_from(
    ["{}", "{matchLabels: {team: ads}}", f"{{matchLabels: {{{NAME}: tfk8s}}}}",
     "{matchExpressions: [{key: team, operator: NotIn, values: [ads]}]}"]
)  # fmt: skip
SPECS = st.builds(
    lambda selector, rules: f"podSelector: {selector}, policyTypes: [Egress], egress: [{', '.join(rules)}]",
    SELECTORS,
    st.lists(st.sampled_from([TO_DNS, TO_SPACE, KUBE_SYSTEM, ELSEWHERE]), max_size=3),
)


@given(st.lists(SPECS, max_size=4))
def test_a_list_of_destinations_cures_and_an_open_policy_does(specs: list[str]) -> None:
    closed = dataclasses.replace(TWO, network=Network(allow_to=(Destination(cidr="10.0.0.0/8"),)))
    assert found(*specs, cluster=closed) == ""
    assert found(*specs, f"{ALL}, egress: [{{}}]") == ""


@given(st.lists(SPECS, max_size=4), SPECS)
def test_another_rule_closes_no_more(specs: list[str], more: str) -> None:
    """A policy that selects no other pods adds what its rules allow."""
    if not found(ALL, *specs):
        assert found(ALL, *specs, more) == ""


class Policies:
    """An API server with policies; an error where they can't be listed."""

    def __init__(self, *items: Object, code: int = 0) -> None:
        self.items, self.code, self.requests = items, code, 0

    def get(self, path: str, query: object) -> Object:
        self.requests += 1
        assert path == "/apis/networking.k8s.io/v1/namespaces/team/networkpolicies"
        if self.code:
            raise ApiError(self.code, "you may not list networkpolicies")
        return {"items": [{key: value for key, value in item.items() if key != "kind"} for item in self.items]}


def require(client: Policies, cluster: Any = TWO) -> None:
    default_deny.require_connections(client, "team", cluster, render.objects(cluster))  # type: ignore[arg-type]


def test_up_is_refused_with_the_cure() -> None:
    with pytest.raises(InvalidInput) as caught:
        require(Policies(policy(ALL)))
    assert str(caught.value) == 'NetworkPolicy "deny" cuts the tasks off from each other and from DNS'
    assert caught.value.help == (
        "write `network: {allow_to: []}` in the job file: the cluster's own policy then allows the tasks and DNS, and "
        "entries of the list allow more; nothing was changed"
    )
    cured = dataclasses.replace(TWO, network=Network(allow_to=()))
    client = Policies(policy(ALL))
    require(client, cured)
    assert client.requests == 0


def test_users_who_may_not_list_policies_get_a_note(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tfk8s"):
        require(Policies(code=403))
    assert caplog.messages == [
        "you may not list networkpolicies; so a NetworkPolicy of others that cuts the tasks off would not be noticed"
    ]
    with pytest.raises(ApiError):
        require(Policies(code=500))
