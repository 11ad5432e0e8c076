"""The choice of a backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfk8s.backends.options import BackendOptions
from tfk8s.backends.select import choose, has_kubeconfig
from tfk8s.core.spec import Job, JobFile
from tfk8s.errors import InvalidInput


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TFK8S_LOCAL", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


SELECTED = [
    (BackendOptions(), None, False),
    (BackendOptions(), "1", True),
    (BackendOptions(), "0", False),
    (BackendOptions(), "", False),
    (BackendOptions(), "True", True),
    (BackendOptions(local=True), None, True),
    (BackendOptions(local=False), "1", False),
    (BackendOptions(context="kind-test"), "1", False),
    (BackendOptions(namespace="team"), "1", False),
]


def test_local_or_kubernetes() -> None:
    for options, variable, local in SELECTED:
        assert options.is_local({} if variable is None else {"TFK8S_LOCAL": variable}) is local, options


NAMESPACES = ["", "Team", "a/b", "../a", "a_b", "-a", "a" * 64]


def test_invalid_namespaces() -> None:
    for namespace in NAMESPACES:
        with pytest.raises(InvalidInput, match="is not a valid name of a namespace"):
            BackendOptions(namespace=namespace)
        assert BackendOptions(namespace="1-team").namespace == "1-team", namespace


@pytest.mark.parametrize(
    ("options", "variable", "message"),
    [
        (
            BackendOptions(local=True, context="kind-test"),
            "0",
            "--local can't be combined with --context",
        ),
        (
            BackendOptions(local=True, namespace="x"),
            "0",
            "--local can't be combined with --namespace",
        ),
        (BackendOptions(allow_exposed_ports=True), "0", "--allow-exposed-ports needs --local"),
        (BackendOptions(python="python3.12"), "0", "--python needs --local"),
        (BackendOptions(), "maybe", 'TFK8S_LOCAL is "maybe"'),
    ],
)
def test_contradictions(options: BackendOptions, variable: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        options.is_local({"TFK8S_LOCAL": variable})
    assert str(caught.value) == message


def test_a_missing_kubeconfig() -> None:
    with pytest.raises(InvalidInput) as caught:
        choose(BackendOptions())
    assert str(caught.value) == "no Kubernetes cluster is configured: there is no kubeconfig"
    assert caught.value.help == (
        "--local runs clusters on this machine (TFK8S_LOCAL=1 makes --local the default); "
        "for Kubernetes, name a kubeconfig in KUBECONFIG, or put it at ~/.kube/config"
    )


def test_a_kubeconfig_that_the_environment_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
    with pytest.raises(InvalidInput) as caught:
        choose(BackendOptions())
    assert str(caught.value) == (
        f'no Kubernetes cluster is configured: KUBECONFIG names "{tmp_path}/none", which does not exist'
    )


def test_a_kubeconfig_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    existing, missing = tmp_path / "config", tmp_path / "missing"
    existing.touch()
    assert has_kubeconfig({"KUBECONFIG": f"{missing}:{existing}"})
    assert not has_kubeconfig({"KUBECONFIG": str(missing)})
    assert not has_kubeconfig({})
    assert not has_kubeconfig({"KUBECONFIG": "~no-such-user/config"})
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").touch()
    assert has_kubeconfig({})


def test_this_machine_is_chosen_by_flag_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(BackendOptions(local=True)).name == "local"
    monkeypatch.setenv("TFK8S_LOCAL", "1")
    assert choose(BackendOptions()).name == "local"
    assert choose(BackendOptions()).flags == " --local"


def test_addresses_override_options() -> None:
    job = Job(name="worker", addresses=("10.0.0.5:2222",))
    spec = JobFile(name="there", jobs=(job,), master="worker")
    assert choose(BackendOptions(local=True), spec).name == "addresses"
    assert choose(BackendOptions(), spec).name == "addresses"
    assert choose(BackendOptions(), spec).flags == ""
