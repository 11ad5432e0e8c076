"""The API server's refusals and its silence, as errors."""

from __future__ import annotations

import json
import ssl

import pytest
import urllib3

from tfk8s.backends.kubernetes.api_server import errors


def body(message: str, **details: object) -> bytes:
    return json.dumps({"kind": "Status", "message": message, "details": details}).encode()


def forbidden(user: str, action: str) -> errors.ApiError:
    return errors.from_response(403, body(f'x is forbidden: User "{user}" cannot {action}'), "c")


@pytest.mark.parametrize(
    ("verb", "resource", "roles"),
    [("list", "pods", "tfk8s-user or tfk8s-submit"), ("patch", "services", "tfk8s-user")],
)
def test_forbidden_names_the_roles_that_allow_it(verb: str, resource: str, roles: str) -> None:
    error = forbidden("jo", f'{verb} resource "{resource}" in API group "" in the namespace "ml"')
    assert str(error) == f'"jo" may not {verb} {resource} in namespace "ml"'
    assert error.help == (
        f"the Role {roles} allows it: tfk8s roles | kubectl apply -n ml -f - creates both, "
        "kubectl create rolebinding jo -n ml --role=tfk8s-user --user=jo grants one"
    )


def test_a_role_with_rights_that_the_user_lacks_names_these_rights() -> None:
    """The message is Kubernetes 1.36's."""
    message = (
        'roles.rbac.authorization.k8s.io "a-lifetime" is forbidden: user "jo" (groups=["system:authenticated"]) is '
        "attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["services"], ResourceNames:["a"], Verbs:["get" "delete"]}\n'
        '{APIGroups:[""], Resources:["services"], ResourceNames:["a-master"], Verbs:["get" "delete"]}\n'
        '{APIGroups:["apps"], Resources:["statefulsets"], ResourceNames:["a-worker"], Verbs:["delete"]}'
    )
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/ml/roles/a-lifetime"
    error = errors.from_response(403, body(message), "c", path=path)
    assert str(error) == (
        '"jo" may not create a Role with rights that it lacks in namespace "ml": get and delete services, '
        "delete statefulsets.apps"
    )
    assert error.help == (
        "the Role tfk8s-user allows it: tfk8s roles | kubectl apply -n ml -f - creates both, "
        "kubectl create rolebinding jo -n ml --role=tfk8s-user --user=jo grants one"
    )


def test_anonymous_users_are_asked_to_log_in() -> None:
    error = forbidden("system:anonymous", 'list resource "pods" in API group "" in the namespace "ml"')
    assert error.help == (
        "the kubeconfig has no credentials for this context: log in as your cluster's provider describes"
    )


def test_forbidden_in_all_namespaces_names_a_cluster_role() -> None:
    error = forbidden("jo", 'list resource "statefulsets" in API group "apps" at the cluster scope')
    assert str(error) == '"jo" may not list statefulsets.apps in all namespaces'
    assert error.help == (
        "only a ClusterRole allows it: kubectl create clusterrole tfk8s-list-statefulsets-apps --verb=list "
        "--resource=statefulsets.apps creates it, kubectl create clusterrolebinding jo-tfk8s-list-statefulsets-apps "
        "--clusterrole=tfk8s-list-statefulsets-apps --user=jo grants it"
    )


@pytest.mark.parametrize(
    ("user", "name"), [("jo",) * 2, ("system:serviceaccount:ml:ci",) * 2, ("https://id/jo", "https:--id-jo")]
)
@pytest.mark.parametrize(
    ("resource", "group", "kind", "role"),
    [
        ("endpoints", "", "endpoints", "tfk8s-patch-endpoints"),
        ("leases", "coordination.k8s.io", "leases.coordination.k8s.io", "tfk8s-patch-leases-coordination-k8s-io"),
        ("deployments/scale", "apps", "deployments.apps/scale", "tfk8s-patch-deployments-apps-scale"),
    ],
)
def test_in_a_namespace_a_role_is_enough(user: str, name: str, resource: str, group: str, kind: str, role: str) -> None:
    """No Role of tfk8s has these permissions."""
    error = forbidden(user, f'patch resource "{resource}" in API group "{group}" in the namespace "ml"')
    assert str(error) == f'"{user}" may not patch {kind} in namespace "ml"'
    assert error.help == (
        f"a Role allows it: kubectl create role {role} -n ml --verb=patch --resource={kind} creates it, kubectl "
        f"create rolebinding {name}-{role} -n ml --role={role} --user={user} grants it"
    )


def test_a_change_that_kueue_refuses() -> None:
    reason = "spec.replicas: Invalid value: 3: field is immutable"
    message = f'admission webhook "vstatefulset.kb.io" denied the request: {reason}'
    error = errors.from_response(403, body(message), "c")
    assert str(error) == f"Kueue refuses the change: {reason}"
    assert error.help == ("Kueue does not allow this change on a running cluster: run `tfk8s down`, then `tfk8s up`")


@pytest.mark.parametrize("details", [{"name": "demo-ps", "kind": "statefulsets"}, {}])
def test_a_conflict_names_field_and_owner(details: dict[str, str]) -> None:
    cause = {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "helm" using apps/v1',
        "field": ".spec.replicas",
    }
    path = "/apis/apps/v1/namespaces/ns/statefulsets/demo-ps"
    error = errors.from_response(409, body("conflict", causes=[cause], **details), "c", path=path)
    assert str(error) == 'conflict on statefulsets "demo-ps": field spec.replicas is owned by "helm"'
    assert error.help == "release the field there, or delete the object; tfk8s never takes over fields"


def test_a_conflict_with_kubectl_scale_names_the_command_that_ends_it() -> None:
    message = 'conflict with "kubectl" with subresource "scale" using apps/v1'
    cause = {"reason": "FieldManagerConflict", "message": message, "field": ".spec.replicas"}
    path = "/apis/apps/v1/namespaces/ns/statefulsets/demo-ps"
    error = errors.from_response(409, body("conflict", causes=[cause]), "c", path=path)
    assert str(error) == 'conflict on statefulsets "demo-ps": field spec.replicas is owned by "kubectl"'
    assert error.help == (
        "kubectl scale statefulsets demo-ps --replicas=NUMBER, with the number that tfk8s is to set, or delete the "
        "object; tfk8s never takes over fields"
    )


def test_a_terminating_namespace() -> None:
    message = 'jobs.batch "a" is forbidden: unable to create new content in namespace ns because it is being terminated'
    error = errors.from_response(403, body(message), "c")
    assert str(error) == 'namespace "ns" is being deleted: nothing can be created in it'
    assert error.help == "use another namespace, or wait until `kubectl get namespace ns` no longer finds it"


@pytest.mark.parametrize(
    ("code", "answer", "message"),
    [
        (401, b"", 'the API server of context "c" refuses your credentials: they are wrong, or have expired'),
        (404, body("x", kind="namespaces", name="ml"), 'there is no namespace "ml"'),
        (422, body("spec.replicas: must be positive"), "the API server refuses: spec.replicas: must be positive"),
        (502, b"<html>bad gateway", 'the API server of context "c" can\'t serve the request now: <html>bad gateway'),
        (500, b"", 'the API server of context "c" can\'t serve the request now: HTTP status 500'),
    ],
)
def test_other_refusals(code: int, answer: bytes, message: str) -> None:
    error = errors.from_response(code, answer, "c")
    assert (str(error), error.code) == (message, code)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (urllib3.exceptions.NewConnectionError(None, "Failed: [Errno 111] Connection refused"), "Connection refused"),  # type: ignore[arg-type]
        (urllib3.exceptions.ConnectTimeoutError(), "no answer in time"),
        (urllib3.exceptions.NameResolutionError("h", None, OSError("x")), "no such host"),  # type: ignore[arg-type]
        (ConnectionResetError("reset by peer"), "reset by peer"),
    ],
)
def test_no_response(error: Exception, reason: str) -> None:
    message = f'the API server of context "c" (https://h) does not answer: {reason}'
    assert str(errors.unreachable(error, "c", "https://h")) == message


@pytest.mark.parametrize(
    ("problem", "message", "help_"),
    [
        (
            "self-signed certificate",
            'the API server of context "c" (https://h) is not the one that the kubeconfig trusts: {}',
            "if the cluster was re-created, fetch its kubeconfig again",
        ),
        *(
            (
                problem,
                'the certificate of the API server of context "c" (https://h) can\'t be trusted: {}',
                "check this machine's clock; if it is right, have the certificate renewed",
            )
            for problem in ("certificate is not yet valid", "certificate has expired")
        ),
    ],
)
def test_an_untrusted_certificate(problem: str, message: str, help_: str) -> None:
    cause = ssl.SSLCertVerificationError("x")
    cause.verify_message = problem
    error = errors.unreachable(urllib3.exceptions.SSLError(cause), "c", "https://h")
    assert (str(error), error.help) == (message.format(problem), help_)
    assert error.had_no_effect, "and so the first request is not retried"


@pytest.mark.parametrize(
    "body", ['{"message": 1}', '{"details": [1]}', '{"details": {"causes": 1}}', '{"details": {"causes": [1]}}'],
)  # fmt: skip
def test_an_answer_that_is_no_status(body: str) -> None:
    for code in (403, 404, 409, 422):
        assert errors.from_response(code, body.encode(), "c").code == code
    assert errors.from_response(500, b"[" * 100_000, "c").code == 500
    assert str(errors.from_response(422, b'{"message": "no", "details": null}', "c")) == "the API server refuses: no"
