"""Errors without a kubeconfig, an API server, permissions or a namespace."""

import secrets
import time

import on_cluster
import pytest
from kube_api import MERGE
from on_cluster import make_job_file, token

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.errors import ClusterError, InvalidInput, Tfk8sError


@pytest.fixture(autouse=True)
def no_hang():
    """All of it takes seconds; a wait that no limit ends would take longer than this."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < 100


@pytest.fixture
def kubeconfig(client, tmp_path, monkeypatch):
    """Writes a kubeconfig for this server, with other credentials or another address."""

    def write(user=None, server=None):
        path = tmp_path / "config"
        path.write_text(on_cluster.kubeconfig(client, user or {}, server))
        monkeypatch.setenv("KUBECONFIG", str(path))

    return write


def refusal(kind, call):
    with pytest.raises(kind) as caught:
        call()
    return caught.value


def test_no_kubeconfig(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    error = refusal(InvalidInput, KubernetesBackend)
    assert "there is no kubeconfig" in str(error)
    assert "--local" in error.help


def test_a_kubeconfig_that_is_none(monkeypatch, tmp_path):
    (tmp_path / "config").write_text("hello: [")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert "can't be used" in str(refusal(InvalidInput, KubernetesBackend))


def test_no_such_context():
    assert 'no context "absent"' in str(refusal(InvalidInput, lambda: KubernetesBackend("absent")))


@pytest.mark.parametrize(
    ("server", "words"),
    [("https://127.0.0.1:1", "refused"), ("https://10.255.255.1:6443", ""), ("https://no.such.host.invalid", "")],
)
def test_a_server_that_can_not_be_reached(kubeconfig, server, words):
    kubeconfig(server=server)
    error = refusal(ClusterError, lambda: KubernetesBackend().clusters())
    assert f'the API server of context "other" ({server}) ' in str(error), "where a proxy answers, it is distrusted"
    assert words in str(error)


def test_expired_credentials(kubeconfig):
    kubeconfig({"token": "expired"})
    error = refusal(ClusterError, lambda: KubernetesBackend().clusters())
    assert "refuses your credentials" in str(error)


@pytest.fixture
def stranger(client, namespace, kubeconfig):
    """Make a kubeconfig of a service account without any rights."""
    kubeconfig({"token": token(client, namespace, "stranger")})


def test_forbidden_names_the_verb_and_the_role(stranger, namespace):
    error = refusal(ClusterError, lambda: KubernetesBackend(namespace=namespace).apply(make_job_file("denied")))
    assert f'may not get networkpolicies.networking.k8s.io in namespace "{namespace}"' in str(error)
    assert f"tfk8s roles | kubectl apply -n {namespace}" in error.help


def test_a_write_that_is_forbidden_is_named_too(client, stranger, namespace):
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
    role = {"metadata": {"name": "stranger"}, "rules": rules}
    binding = {
        "metadata": {"name": "stranger"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "stranger"},
        "subjects": [{"kind": "ServiceAccount", "name": "stranger", "namespace": namespace}],
    }
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    client.send("POST", f"{rbac}/roles", body=role)
    client.send("POST", f"{rbac}/rolebindings", body=binding)

    def denied():
        error = refusal(ClusterError, lambda: KubernetesBackend(namespace=namespace).apply(make_job_file("denied")))
        return error if "may not patch" in str(error) else None

    try:
        error = polling.wait_until(denied, "the rights to read to hold", 60)
    finally:
        client.send("DELETE", f"{rbac}/rolebindings/stranger")
        client.send("DELETE", f"{rbac}/roles/stranger")
    assert f'may not patch networkpolicies.networking.k8s.io in namespace "{namespace}"' in str(error)
    assert "tfk8s-user" in error.help


def test_a_forbidden_list_is_an_error(stranger, namespace):
    error = refusal(ClusterError, lambda: KubernetesBackend(namespace=namespace).clusters())
    assert "may not list statefulsets.apps" in str(error)


def test_a_namespace_that_is_missing():
    error = refusal(Tfk8sError, lambda: KubernetesBackend(namespace="absent").apply(make_job_file("nowhere")))
    assert 'there is no namespace "absent"' in str(error)
    assert error.help == "kubectl create namespace absent"


def test_a_server_that_is_too_old(monkeypatch, namespace):
    original = Client.get
    old = {"/apis": {"groups": []}, "/version": {"major": "1", "minor": "27+", "gitVersion": "v1.27.3"}}
    monkeypatch.setattr(Client, "get", lambda self, path, *a: old.get(path) or original(self, path, *a))
    error = refusal(ClusterError, lambda: KubernetesBackend(namespace=namespace).apply(make_job_file("old")))
    assert str(error).endswith("runs Kubernetes v1.27.3; tfk8s needs 1.28 or newer")


def test_a_field_that_others_own(client, namespace):
    backend = KubernetesBackend(namespace=namespace)
    job_file = make_job_file("shared-field")
    backend.apply(job_file)
    path = f"{paths.collection('StatefulSet', namespace)}/shared-field-worker"
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"replicas": 1}}
    client.send("PATCH", path, {"fieldManager": "somebody", "force": True}, body, "application/apply-patch+yaml")
    error = refusal(ClusterError, lambda: backend.apply(job_file))
    assert 'field spec.replicas is owned by "somebody"' in str(error)
    backend.delete("shared-field")


def test_a_namespace_that_is_being_deleted(client):
    name = f"tfk8s-test-{secrets.token_hex(3)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    client.send("POST", "/api/v1/namespaces", body=body)
    backend = KubernetesBackend(namespace=name)
    backend.apply(make_job_file("late"))
    keeps = {"metadata": {"name": "keeps", "finalizers": ["tfk8s.dev/test"]}}  # else the namespace may be gone at once
    client.send("POST", f"/api/v1/namespaces/{name}/configmaps", body=keeps)
    client.send("DELETE", f"/api/v1/namespaces/{name}")
    try:
        for change in (backend.apply, backend.plan):
            error = refusal(ClusterError, lambda change=change: change(make_job_file("late")))
            assert str(error) == f'namespace "{name}" is being deleted: nothing can be created in it'
    finally:
        body, path = {"metadata": {"finalizers": None}}, f"/api/v1/namespaces/{name}/configmaps/keeps"
        client.send("PATCH", path, body=body, content_type=MERGE)
