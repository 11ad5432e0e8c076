"""Credentials of kubeconfigs: plugins, files whose tokens change, and impersonation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import on_cluster
import pytest
import yaml

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server.client import Client

BETA = "client.authentication.k8s.io/v1beta1"
ANSWER = '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1beta1", "status": {"token": "%s"}}'
PLUGIN = f"""\
#!/bin/sh
cd FOLDER
echo "$KUBERNETES_EXEC_INFO" >>asked
read -r token <token
printf '{ANSWER}' "$token"
"""


@pytest.fixture
def kubeconfig(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], None]:
    def write(user: dict[str, Any]) -> None:
        (tmp_path / "config").write_text(on_cluster.kubeconfig(client, user))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))

    return write


def who(client: Client) -> dict[str, Any]:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = client.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=body)
    return dict(found["status"]["userInfo"])


@pytest.fixture
def gke_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Install a program of GKE's name, which prints what is in the file `token`; return the user GKE would write."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "gke-gcloud-auth-plugin"
    program.write_text(PLUGIN.replace("FOLDER", str(tmp_path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))  # where the real one is not
    hint = "Install gke-gcloud-auth-plugin for use with kubectl"
    return {
        "exec": {
            "apiVersion": BETA, "command": program.name, "installHint": hint, "provideClusterInfo": True,
            "args": None, "env": None, "interactiveMode": "IfAvailable",
        }
    }  # fmt: skip


def test_tokens_that_end_are_got_again(client, namespace, kubeconfig, gke_plugin, tmp_path) -> None:
    file = tmp_path / "token"
    file.write_text(on_cluster.token(client, namespace, "first"))
    asking = []
    for user in (gke_plugin, {"tokenFile": "token"}):
        kubeconfig(user)
        asking.append(Client(None))
    first = f"system:serviceaccount:{namespace}:first"
    assert [who(one)["username"] for one in asking] == [first, first]
    told = json.loads((tmp_path / "asked").read_text())["spec"]["cluster"]
    assert told["server"] == client.url
    assert told["certificate-authority-data"]

    file.write_text(on_cluster.token(client, namespace, "second"))
    client.send("DELETE", f"/api/v1/namespaces/{namespace}/serviceaccounts/first")
    second = f"system:serviceaccount:{namespace}:second"

    def changed() -> bool:
        return [who(one)["username"] for one in asking] == [second, second]

    polling.wait_until(changed, "the API server to forget whose the first token was", 60)
    assert len((tmp_path / "asked").read_text().splitlines()) == 2


def test_a_plugin_that_fails_is_one_error(kubeconfig, gke_plugin, monkeypatch, tmp_path) -> None:
    kubeconfig(gke_plugin)

    def said() -> str:
        done = subprocess.run([sys.executable, "-m", "tfk8s", "ls"], capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2)
        return done.stderr

    (tmp_path / "bin" / "gke-gcloud-auth-plugin").write_text("#!/bin/sh\necho please log in >&2\nexit 1\n")
    assert said().startswith("please log in\n")
    assert "gave no credentials: it ended with exit code 1" in said()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "is not installed, or not in PATH" in said()
    assert "Install gke-gcloud-auth-plugin" in said()


def test_a_user_who_acts_as_another(client, tmp_path, monkeypatch) -> None:
    file = Path(os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config").expanduser()
    config = yaml.safe_load(file.read_text())
    for user in config["users"]:
        user["user"] |= {"as": "jane", "as-groups": ["dev", "ops"], "as-user-extra": {"example.org/Why": ["tests"]}}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    found = who(Client(client.context))
    assert (found["username"], found["extra"]) == ("jane", {"example.org/why": ["tests"]})
    assert found["groups"] == ["dev", "ops", "system:authenticated"]
