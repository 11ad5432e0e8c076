"""The Roles of `tfk8s roles` allow what their commands need, and no more."""

import os

import pytest
from on_cluster import IMAGE, kubeconfig, left, token

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import streams
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.api_server.transport import Transport
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cli import scripts
from tfk8s.cli.app import main
from tfk8s.cluster import network_policy
from tfk8s.errors import ClusterError
from tfk8s.render import rbac

ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces"
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
JOB_FILE = """\
apiVersion: tfk8s.dev/v1
name: ours
image: {image}
jobs: {{worker: {{tasks: {tasks}, cpu: 100m, memory: 1Gi}}{more}}}
"""
EDITOR = "editor"  # has Kubernetes' own ClusterRole `edit`
LIMITS = "max_duration: 8h\nidle: {suspend: 30m, remove: 7d}\nvolumes: [{path: /ckpt, claim: ours, create: 64Mi}]\n"
TWO_JOBS = ", ps: {cpu: 100m, memory: 1Gi}"
SCRIPT = "import sys; print(sys.stdin.read() or 'no input')\n"


@pytest.fixture(scope="module")
def team(make_namespace, client):
    """A namespace with the Roles, and with an account for each of them, one of an editor and one for none."""
    name = make_namespace()
    for role in rbac.roles():
        client.send("POST", f"{ROLES}/{name}/roles", body=role)
    for kind, role, account in (*(("Role", role, role) for role in rbac.ROLES), ("ClusterRole", "edit", EDITOR)):
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": name}],
        }  # fmt: skip
        client.send("POST", f"{ROLES}/{name}/rolebindings", body=binding)
    return name


@pytest.fixture
def become(client, team, tmp_path, monkeypatch):
    """Has all that follows done by an account; waits until it has its rights."""

    def become(account):
        path = tmp_path / f"{account}.config"
        path.write_text(kubeconfig(client, {"token": token(client, team, account)}))
        monkeypatch.setenv("KUBECONFIG", str(path))
        own, wanted = Client(None), account in (*rbac.ROLES, EDITOR)
        about = {"namespace": team, "verb": "list", "group": "apps", "resource": "statefulsets"}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body["spec"] = {"resourceAttributes": about}
        polling.wait_until(
            lambda: own.send("POST", REVIEW, body=body)["status"]["allowed"] == wanted or None,
            f"{account}'s rights",
            60,
        )

    return become


@pytest.fixture
def asked(monkeypatch):
    """Notes what is asked of the API server, in the words of RBAC; a stream asks for two things at once."""
    found = set()
    send, open_stream = Transport.request, streams.open_stream

    def note(path, verb):
        parts = path.split("/")
        if "namespaces" in parts:  # else it is another's question, which has an answer without the right too
            group = parts[2] if parts[1] == "apis" else ""
            kind, name, *rest = [*parts[parts.index("namespaces") + 2 :], ""]
            found.update((one, "/".join([kind, *rest[:-1]]), group) for one in verb(bool(name)).split())

    def request(self, method, url, *, headers, **options):
        path, _, query = url.partition("?")
        verbs = {
            "GET": lambda named: "get" if named else "watch" if "watch=" in query else "list",
            "POST": lambda named: "create",
            "PATCH": lambda named: "create patch" if "apply" in headers["content-type"] else "patch",
            "DELETE": lambda named: "delete" if named else "deletecollection",
        }
        note(path, verbs[method])
        return send(self, method, url, headers=headers, **options)

    def opened(client, path, *more):
        note(path.partition("?")[0], lambda named: "get create")
        return open_stream(client, path, *more)

    monkeypatch.setattr(Transport, "request", request)
    monkeypatch.setattr(streams, "open_stream", opened)
    return found


@pytest.fixture
def tfk8s(team, capfd):
    """Run a command in the namespace; return its standard output."""

    def tfk8s(command, *arguments, code=0):
        capfd.readouterr()
        patience = ["--timeout", "5m"] if command in ("up", "scale") else []
        assert main([command, "--namespace", team, *patience, *arguments]) == code
        return capfd.readouterr().out

    return tfk8s


@pytest.fixture
def files(tmp_path):
    """A job file of one job, one of two with limits, and a script beside a file that no Secret can hold."""
    for name, more, limits in (("one", "", ""), ("two", TWO_JOBS, LIMITS)):
        (tmp_path / f"{name}.yaml").write_text(JOB_FILE.format(image=IMAGE, tasks=1, more=more) + limits)
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "script.py").write_text(SCRIPT)
    (tmp_path / "large" / "data").write_bytes(os.urandom(1_000_000))
    return tmp_path


def test_the_role_of_a_user_is_sufficient_and_minimal(become, tfk8s, asked, files, client, team, monkeypatch):
    monkeypatch.setattr(network_policy, "METADATA", "127.0.0.1:9")  # no test asks the metadata server of a real node
    become("tfk8s-user")
    asked.clear()
    tfk8s("up", str(files / "two.yaml"))
    tfk8s("up", str(files / "one.yaml"))  # without the ps and the limits of before
    assert "ours" in tfk8s("ls")
    assert "worker/0" in tfk8s("status", "ours")
    assert "CPU:0" in tfk8s("devices", "ours")
    assert "worker/0" in tfk8s("logs", "ours")
    assert tfk8s("events", "ours")
    assert tfk8s("submit", "ours", str(files / "large" / "script.py")) == "no input\n"
    assert tfk8s("submit", "--fresh", "ours", str(files / "large" / "script.py")) == "no input\n"
    tfk8s("stop", "ours", tfk8s("submit", "--detach", "ours", str(files / "small" / "script.py")).strip())
    assert KubernetesBackend(namespace=team).shared.note_bad_places("ours", ["ours-worker-0"])
    tfk8s("restart", "--no-wait", "ours", "worker/0")
    tfk8s("scale", "ours", "worker=2")
    tfk8s("diff", str(files / "one.yaml"), code=1)
    assert network_policy.test(Client(None), team, IMAGE).enforced  # `doctor --image`
    tfk8s("history", "--claim", "ours", "--image", IMAGE)
    tfk8s("down", "--delete-claims", "ours")

    table = {(right.verb, right.resource, right.group) for right in rbac.PERMISSIONS}
    assert asked - table == set()
    # Other tests follow events.
    elsewhere = {
        ("watch", "events", ""),
        # Only while pods or Jobs wait in a queue of Kueue, and when a cluster in a queue is suspended.
        *((verb, "workloads", "kueue.x-k8s.io") for verb in ("list", "watch", "get", "delete")),
        # The account of the Job that removes a cluster has these, and nobody may grant what they lack.
        ("delete", "configmaps", ""),
        ("delete", "services", ""),
        ("patch", "statefulsets/scale", "apps"),
        # Only where the API server has PodGroups.
        *((verb, "podgroups", "scheduling.k8s.io") for verb in ("create", "get", "patch", "delete")),
    }
    assert table - asked <= elsewhere
    assert left(client, team, "ours") == []


def test_limits_are_refused_before_anything_is_made_where_the_user_may_make_no_role(become, tfk8s, files, client, team):
    become(EDITOR)
    error = refused(tfk8s, "up", str(files / "two.yaml"))
    assert str(error) == (
        "max_duration, idle, drain: idle and history need a Job that may remove the cluster, and you can't create it: "
        f'"system:serviceaccount:{team}:editor" may not patch roles.rbac.authorization.k8s.io in namespace "{team}"'
    )
    assert "--role=tfk8s-user" in error.help
    assert left(client, team, "ours") == []


CHANGES = (
    ("up", "one.yaml"), ("restart", "ours"), ("scale", "ours", "worker=2"), ("down", "ours"), ("devices", "ours"),
    ("connect", "ours"),
)  # fmt: skip


def test_the_role_of_a_submitter_is_sufficient(become, tfk8s, files, team, monkeypatch):
    monkeypatch.chdir(files)
    monkeypatch.setattr(scripts, "until_gone", lambda _: None)
    become("tfk8s-user")
    tfk8s("up", "one.yaml")
    become("tfk8s-submit")
    assert tfk8s("submit", "--fresh", "ours", "small/script.py") == "no input\n"
    polling.wait_until(lambda: "Succeeded" in tfk8s("status", "ours"), "the status to have the script's end", 60)
    tfk8s("logs", "ours")
    assert tfk8s("submit", "ours", "small/script.py") == "no input\n"
    become("tfk8s-user")
    assert tfk8s("submit", "ours", "small/script.py") == "no input\n"
    assert tfk8s("status", "ours").count("warm-") == 2  # each user has a warm pod
    become("tfk8s-submit")
    for command in CHANGES[:-2]:
        error = refused(tfk8s, *command)
        assert f'"system:serviceaccount:{team}:tfk8s-submit" may not ' in str(error), command
        assert f'in namespace "{team}"' in str(error)
        assert error.help.startswith("the Role tfk8s-user allows it: "), command
    become("tfk8s-user")
    assert "1/1" in tfk8s("status", "ours")
    tfk8s("down", "ours")


def test_without_a_role_every_command_names_the_missing_permission(become, tfk8s, files, team, monkeypatch):
    monkeypatch.chdir(files)
    become("stranger")
    for command in (*CHANGES, ("status", "ours"), ("ls",), ("logs", "ours"), ("submit", "ours", "small/script.py")):
        error = refused(tfk8s, *command)
        assert f'"system:serviceaccount:{team}:stranger" may not ' in str(error), command
        assert "--role=tfk8s-user" in error.help


def refused(tfk8s, *command):
    with pytest.raises(ClusterError) as caught:
        tfk8s(*command)
    return caught.value
