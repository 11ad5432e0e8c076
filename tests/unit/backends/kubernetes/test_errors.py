"""The API server's refusals, and its silence, in words."""

from __future__ import annotations

import json
import ssl
from typing import Any

import pytest
import urllib3

from tfk8s.backends.kubernetes import errors


def body(message: str, **details: object) -> bytes:
    return json.dumps({"kind": "Status", "message": message, "details": details}).encode()


def test_forbidden_names_the_roles_that_allow_it() -> None:
    message = 'pods is forbidden: User "jo" cannot list resource "pods" in API group "" in the namespace "ml"'
    error = errors.refused(403, body(message), "c")
    assert str(error) == '"jo" may not list pods in namespace "ml"'
    assert error.help == (
        "the Role tfk8s-user or tfk8s-submit allows it: tfk8s roles | kubectl apply -n ml -f - makes both, "
        "kubectl create rolebinding jo -n ml --role=tfk8s-user --user=jo gives one"
    )


def test_forbidden_names_the_only_role_that_allows_it() -> None:
    message = 'x is forbidden: User "jo" cannot patch resource "services" in API group "" in the namespace "ml"'
    assert errors.refused(403, body(message), "c").help.startswith("the Role tfk8s-user allows it: ")


def test_anonymous_users_are_asked_to_log_in() -> None:
    message = 'x is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" in the namespace "m"'
    help_ = errors.refused(403, body(message), "c").help
    assert "no credentials" in help_
    assert "rolebinding" not in help_


def test_forbidden_in_all_namespaces_names_a_cluster_role() -> None:
    message = 'x is forbidden: User "jo" cannot list resource "statefulsets" in API group "apps" at the cluster scope'
    error = errors.refused(403, body(message), "c")
    assert str(error) == '"jo" may not list statefulsets.apps in all namespaces'
    assert "kubectl create clusterrole tfk8s --verb=list" in error.help


def test_kueue_refuses_a_change() -> None:
    why = "spec.replicas: Invalid value: 3: field is immutable"
    message = f'admission webhook "vstatefulset.kb.io" denied the request: {why}'
    error = errors.refused(403, body(message), "c")
    assert str(error) == f"Kueue refuses the change: {why}"
    assert error.help.endswith("down, and up again")


def test_a_conflict_names_owner_and_field() -> None:
    cause = {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "helm" using apps/v1',
        "field": ".spec.replicas",
    }
    error = errors.refused(409, body("conflict", name="a", kind="statefulsets", causes=[cause]), "c")
    assert str(error) == 'statefulsets "a" is changed by others too: spec.replicas belongs to helm'
    path = "/apis/apps/v1/namespaces/ns/statefulsets/demo-ps"
    nameless = errors.refused(409, body("conflict", causes=[cause]), "c", path=path)
    assert str(nameless).startswith('statefulsets "demo-ps" is changed by others too: ')


def test_a_terminating_namespace() -> None:
    message = 'jobs.batch "a" is forbidden: unable to create new content in namespace ns because it is being terminated'
    error = errors.refused(403, body(message), "c")
    assert str(error) == 'namespace "ns" is being deleted: nothing new can be made in it'
    assert error.help == "take another one, or wait until `kubectl get namespace ns` finds it no more"


@pytest.mark.parametrize(
    ("code", "answer", "words"),
    [
        (401, b"", 'the API server of context "c" refuses your credentials'),
        (404, body("x", kind="namespaces", name="ml"), 'there is no namespace "ml"'),
        (422, body("spec.replicas: must be positive"), "the API server refuses: spec.replicas: must be positive"),
        (502, b"<html>bad gateway", 'the API server of context "c" can\'t do it now: <html>bad gateway'),
        (500, b"", 'the API server of context "c" can\'t do it now: HTTP status 500'),
    ],
)
def test_other_refusals(code: int, answer: bytes, words: str) -> None:
    error = errors.refused(code, answer, "c")
    assert str(error).startswith(words)
    assert error.code == code


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (urllib3.exceptions.NewConnectionError(None, "Failed: [Errno 111] Connection refused"), "Connection refused"),
        (urllib3.exceptions.ConnectTimeoutError(), "no answer in time"),
        (urllib3.exceptions.NameResolutionError("h", None, OSError("x")), "no such host"),
        (ConnectionResetError("reset by peer"), "reset by peer"),
    ],
)
def test_no_answer(error: Any, words: str) -> None:
    said = errors.unreachable(error, "c", "https://h")
    assert str(said) == f'the API server of context "c" (https://h) does not answer: {words}'


def test_an_untrusted_certificate() -> None:
    cause = ssl.SSLCertVerificationError("x")
    cause.verify_message = "self-signed certificate"
    said = errors.unreachable(urllib3.exceptions.SSLError(cause), "c", "https://h")
    assert said.unheard, "and so it is not tried again"
    assert str(said) == (
        'the API server of context "c" (https://h) is not the one that the kubeconfig trusts: self-signed certificate'
    )
    assert said.help == "was the cluster made anew? get its kubeconfig again"


@pytest.mark.parametrize("words", ["certificate is not yet valid", "certificate has expired"])
def test_an_expired_certificate_may_be_a_wrong_clock(words: str) -> None:
    cause = ssl.SSLCertVerificationError("x")
    cause.verify_message = words
    error = errors.unreachable(urllib3.exceptions.SSLError(cause), "c", "https://h")
    assert str(error) == f'the certificate of the API server of context "c" (https://h) can\'t be trusted: {words}'
    assert error.help == "is the clock of this machine right? else have it renewed"
