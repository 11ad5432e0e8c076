"""What a kubeconfig says, as kubectl understands it: merged files, a context, its cluster and its user."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tfk8s.backends.kubernetes.access import KeyPair, Plugin, Server, User, kubeconfig
from tfk8s.errors import InvalidInput

V1, BETA = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


def config(user: object = None, cluster: object = None, context: object = None, **top: Any) -> dict[str, Any]:
    """Return a kubeconfig of one context, "one", with what differs from the plainest."""
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", **(context or {})}}],  # type: ignore[dict-item]
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443", **(cluster or {})}}],  # type: ignore[dict-item]
        "users": [{"name": "u", "user": {} if user is None else user}],
        **top,
    }  # fmt: skip


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write kubeconfigs, each in a folder of its own, and name them in KUBECONFIG."""

    def write(*configs: object) -> list[Path]:
        files = [tmp_path / str(number) / "config" for number in range(len(configs))]
        for file, one in zip(files, configs, strict=True):
            file.parent.mkdir(exist_ok=True)
            file.write_text(one if isinstance(one, str) else yaml.safe_dump(one))
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
        return files

    return write


def refusal(context: str | None = None, **options: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        kubeconfig.load(context, **options)
    return caught.value


# ---- files ---------------------------------------------------------------------------------------------------------


def test_the_plainest(write) -> None:
    (file,) = write(config({"token": "t"}))
    found = kubeconfig.load(None)
    assert (found.context, found.namespace) == ("one", "default")
    assert found.server == Server(about=f'cluster "c" of {file}', url="https://host:6443")
    assert found.user == User(about=f'user "u" of {file}', token="t")


def test_of_several_files_the_first_that_has_a_name_counts(write) -> None:
    first = config({"token": "first"}, context={"namespace": "mine"})
    del first["current-context"]
    second = config({"token": "second"}, {"server": "https://second"}, **{"current-context": "two"})
    second["contexts"].append({"name": "two", "context": {"cluster": "c", "user": "other"}})
    second["users"].append({"name": "other", "user": {"token": "third"}})
    write("", first, second, config(**{"current-context": "one"}))
    found = kubeconfig.load(None)
    assert (found.context, found.server.url, found.user.token) == ("two", "https://host:6443", "third")
    named = kubeconfig.load("one")
    assert (named.namespace, named.user.token) == ("mine", "first")


def test_missing_files_are_passed_over(write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (file,) = write(config())
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}::{file}")
    assert kubeconfig.load(None).context == "one"


@pytest.mark.parametrize("variable", ["", "~/.kube/config"])
def test_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(yaml.safe_dump(config()))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", variable)
    assert kubeconfig.load(None).context == "one"


def test_paths_start_at_their_file(write, tmp_path: Path) -> None:
    plugin = {"command": "bin/log in", "apiVersion": BETA}
    user = {"client-certificate": "mine.crt", "client-key": str(tmp_path / "far.key"), "tokenFile": "t", "exec": plugin}
    _, second = write(config(clusters=[], users=[]), config(user, {"certificate-authority": "../ca"}))
    (second.parent / "mine.crt").write_text("certificate")
    (tmp_path / "far.key").write_text("key")
    (tmp_path / "ca").write_text("authority")
    found = kubeconfig.load(None)
    assert found.server.authority == b"authority"
    assert found.user.key_pair == KeyPair(b"certificate", b"key")
    assert found.user.token_file == second.parent / "t"
    assert found.user.plugin is not None
    assert found.user.plugin.command == str(second.parent / "bin/log in")


# ---- clusters and users --------------------------------------------------------------------------------------------


def test_all_of_a_cluster(write) -> None:
    authority = base64.b64encode(b"authority").decode()
    more = {"tls-server-name": "api", "proxy-url": "http://p:1", "server": "https://[::1]:1/k8s/"}
    write(config(cluster={"certificate-authority-data": f"{authority[:4]}\n{authority[4:]}", **more}))
    found = kubeconfig.load(None).server
    assert (found.url, found.authority, found.name, found.proxy) == (
        "https://[::1]:1/k8s", b"authority", "api", "http://p:1",
    )  # fmt: skip


def test_data_comes_before_a_file(write) -> None:
    data = base64.b64encode(b"data").decode()
    write(config(cluster={"certificate-authority-data": data, "certificate-authority": "gone"}))
    assert kubeconfig.load(None).server.authority == b"data"


def test_whom_a_user_acts_as(write) -> None:
    extra = {"scopes.example.org/a": ["x", "y"], "b%": ["z"]}
    write(config({"as": "jane", "as-uid": "7", "as-groups": ["dev", "ops"], "as-user-extra": extra, "token": "t"}))
    assert sorted(kubeconfig.load(None).user.acts_as) == [
        ("Impersonate-Extra-b%25", "z"),
        ("Impersonate-Extra-scopes.example.org%2Fa", "x"),
        ("Impersonate-Extra-scopes.example.org%2Fa", "y"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-User", "jane"),
    ]


@pytest.mark.parametrize("server", ["localhost:8080", "HTTP://localhost:8080/?a#b"])
def test_no_credentials_go_to_who_speaks_no_tls(write, server: str) -> None:
    (file,) = write(config({"token": "t", "as": "jane"}, {"server": server}))
    found = kubeconfig.load(None)
    assert found.server.url == "http://localhost:8080"
    assert found.user == User(about=f'user "u" of {file}', acts_as=(("Impersonate-User", "jane"),))


def test_a_context_without_a_user_is_nobodys(write) -> None:
    write(config(context={"user": ""}))
    assert kubeconfig.load(None).user == User(about='context "one"')


def test_a_plugin_as_gke_writes_it(write) -> None:
    gke = {
        "apiVersion": BETA, "command": "gke-gcloud-auth-plugin", "provideClusterInfo": True,
        "installHint": "Install gke-gcloud-auth-plugin",
    }  # fmt: skip
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    authority = base64.b64encode(b"authority").decode()
    cluster = {"certificate-authority-data": authority, "extensions": [{"name": "x", "extension": 1}, extension]}
    write(config({"exec": gke}, {**cluster, "tls-server-name": "api", "proxy-url": "http://p:1"}))
    assert kubeconfig.load(None).user.plugin == Plugin(
        command="gke-gcloud-auth-plugin", version=BETA, interactive="IfAvailable",
        hint="Install gke-gcloud-auth-plugin",
        cluster={
            "server": "https://host:6443", "tls-server-name": "api", "certificate-authority-data": authority,
            "proxy-url": "http://p:1", "config": {"audience": "a"},
        },
    )  # fmt: skip


def test_a_plugin_as_eks_has_it(write) -> None:
    env = [{"name": "AWS_PROFILE", "value": "me"}]
    eks = {"apiVersion": V1, "command": "aws", "args": ["eks", "get-token"], "env": env, "interactiveMode": "Never"}
    write(config({"exec": eks}))
    assert kubeconfig.load(None).user.plugin == Plugin(
        command="aws", arguments=("eks", "get-token"), environment={"AWS_PROFILE": "me"}, version=V1,
        interactive="Never",
    )  # fmt: skip


def test_the_token_that_kubectl_keeps_for_oidc(write) -> None:
    write(config({"auth-provider": {"name": "oidc", "config": {"id-token": "a.b.c"}}}))
    assert kubeconfig.load(None).user.id_token == "a.b.c"


# ---- pods ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name, text in (("token", "t"), ("ca.crt", "authority"), ("namespace", "mine\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("host", "url"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")])
def test_a_pod_has_rights_of_its_own(pod: Path, monkeypatch: pytest.MonkeyPatch, host: str, url: str) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = kubeconfig.load(None, pod=pod)
    assert (found.context, found.namespace, found.server.url) == ("in-cluster", "mine", url)
    assert found.server.authority == b"authority"
    assert found.user.token_file == pod / "token"
    assert "there is no kubeconfig" in str(refusal("one", pod=pod))


def test_a_pod_whose_environment_is_gone(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "KUBERNETES_SERVICE_PORT are not set" in str(refusal(pod=pod))


@pytest.mark.parametrize("place", ["/none", "~no-such-user/none"])
def test_neither_kubeconfig_nor_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str) -> None:
    monkeypatch.setenv("KUBECONFIG", place)
    error = refusal(pod=tmp_path)
    assert str(error) == f"no Kubernetes cluster to talk to: there is no kubeconfig ({place})"
    assert "--local" in str(error.help)


# ---- mistakes ------------------------------------------------------------------------------------------------------

PLUGIN = {"command": "p", "apiVersion": V1, "interactiveMode": "Never"}
USERS = {
    'user "u" of F can\'t be used: "token" has to be text': {"token": 5},
    'user "u" of F can\'t be used: it has "token" and "username"': {"token": "SECRET", "username": "me"},
    'user "u" of F can\'t be used: it has "exec" and "auth-provider"': {"exec": PLUGIN, "auth-provider": {}},
    'user "u" of F can\'t be used: "client-key-data" is not base64': {"client-key-data": "SECRETAA!"},
    'user "u" of F can\'t be used: it has "client-certificate" and no "client-key"': {"client-certificate-data": "AA=="},
    'user "u" of F can\'t be used: "client-key" is "D/gone": No such file or directory': {"client-key": "gone"},
    'user "u" of F can\'t be used: "exec" has to be a table': {"exec": []},
    '"exec" of user "u" of F can\'t be used: it has no "command"': {"exec": {**PLUGIN, "command": ""}},
    '"exec" of user "u" of F can\'t be used: "args" has to be a list of texts': {"exec": {**PLUGIN, "args": [1]}},
    '"exec" of user "u" of F can\'t be used: "env" has to be a list': {"exec": {**PLUGIN, "env": {"A": "SECRET"}}},
    '"exec" of user "u" of F can\'t be used: number 1 of "env" has to be a table': {"exec": {**PLUGIN, "env": ["A"]}},
    '"exec" of user "u" of F can\'t be used: one of "env" has no "name"': {"exec": {**PLUGIN, "env": [{}]}},
    f'"exec" of user "u" of F can\'t be used: "apiVersion" is "v1alpha1", and has to be {V1} or {BETA}': {
        "exec": {**PLUGIN, "apiVersion": "v1alpha1"}
    },
    '"exec" of user "u" of F can\'t be used: "interactiveMode" is "", and has to be Never, IfAvailable, Always': {
        "exec": {**PLUGIN, "interactiveMode": ""}
    },
    '"auth-provider" of user "u" of F can\'t be used: the provider "gcp" is no longer known to kubectl either': {
        "auth-provider": {"name": "gcp", "config": {"access-token": "SECRET"}}
    },
    '"auth-provider" of user "u" of F can\'t be used: it has no id-token yet': {"auth-provider": {"name": "oidc"}},
    'user "u" of F can\'t be used: it has "as-uid", "as-groups" or "as-user-extra", and no "as"': {"as-groups": ["a"]},
    'user "u" of F can\'t be used: Impersonate-User can\'t be "a\\nb": a header has neither line ends nor other alphabets': {
        "as": "a\nb"
    },
}  # fmt: skip
CLUSTERS = {
    'cluster "c" of F can\'t be used: it has no "server"': {"server": ""},
    'cluster "c" of F can\'t be used: "server" is "https:///"': {"server": "https:///"},
    'cluster "c" of F can\'t be used: "server" is "https://a:b"': {"server": "https://a:b"},
    'cluster "c" of F can\'t be used: "server" is "ftp://a"': {"server": "ftp://a"},
    'cluster "c" of F can\'t be used: "server" has a login in it': {"server": "https://me:SECRET@a"},
    'cluster "c" of F can\'t be used: "certificate-authority" is "D/a\\x00": embedded null byte': {
        "certificate-authority": "a\0"
    },
    'cluster "c" of F can\'t be used: "insecure-skip-tls-verify" has to be true or false': {
        "insecure-skip-tls-verify": "yes"
    },
    'cluster "c" of F can\'t be used: it has "certificate-authority" and "insecure-skip-tls-verify"': {
        "insecure-skip-tls-verify": True, "certificate-authority-data": "AA==",
    },
}  # fmt: skip
FILES = {
    "F can't be used as a kubeconfig: this is not YAML": "a: \0",
    "F can't be used as a kubeconfig: it is no table": "SECRET",
    'F can\'t be used: "users" has to be a list': config(users={}),
    'F can\'t be used: number 1 of "users" has to be a table': config(users=["SECRET"]),
    'number 1 of "users" of F can\'t be used: it has no "name"': config(users=[{}]),
    'number 1 of "users" of F can\'t be used: "user" has to be a table': config(users=[{"name": "u", "user": "SECRET"}]),
    'F can\'t be used: "users" has "u" twice': config(users=[{"name": "u"}, {"name": "u"}]),
    "F names no current context; there is one": config(**{"current-context": ""}),
    'F has no context "two"; it has one': config(**{"current-context": "two"}),
    'F has no context "two"; it has none': config(contexts=None, **{"current-context": "two"}),
    'context "one" of F can\'t be used: it names no cluster': config(context={"cluster": None}),
    'context "one" of F can\'t be used: it names cluster "d", and there is c': config(context={"cluster": "d"}),
    'context "one" of F can\'t be used: it names user "me", and there are none': config(context={"user": "me"}, users=[]),
}  # fmt: skip
MISTAKES = [
    *FILES.items(),
    *((words, config(user=user)) for words, user in USERS.items()),
    *((words, config(cluster=cluster)) for words, cluster in CLUSTERS.items()),
]


@pytest.mark.parametrize(("words", "mistaken"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_one_clear_error_and_shows_no_secret(write, words: str, mistaken: object) -> None:
    (file,) = write(mistaken)
    error = refusal()
    said = str(error).replace(str(file.parent), "D").replace("D/config", "F")
    assert said == words
    assert "SECRET" not in f"{error}{error.help}"


def test_broken_yaml_is_told_with_its_line_alone(write) -> None:
    (file,) = write("a: 1\nb: [SECRET}\n")
    error = refusal()
    assert str(error).startswith(f"{file} can't be used as a kubeconfig: this is not YAML in line 2: ")
    assert "SECRET" not in str(error)


def test_a_file_that_can_t_be_read(write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    assert str(refusal()) == f"{tmp_path} can't be used as a kubeconfig: Is a directory"


def test_credentials_are_in_no_repr() -> None:
    proxy = "http://me:SECRET@p"
    plugin = Plugin(
        command="p", arguments=("--client-secret=SECRET",), environment={"A": "SECRET"}, version=V1,
        interactive="Never", cluster={"proxy-url": proxy},
    )  # fmt: skip
    user = User(
        about="", token="SECRET", login=("SECRET", ""), id_token="SECRET", key_pair=KeyPair(b"", b"SECRET"),
        plugin=plugin,
    )  # fmt: skip
    assert "SECRET" not in repr((user, Server(about="", url="", proxy=proxy)))
