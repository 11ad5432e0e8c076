"""What of the Kubernetes backend needs no cluster: words for refusals, logs that break, folders that travel."""

import io
import json
import os
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import types

import pytest
import urllib3
import websocket

from tfk8s import render
from tfk8s.backends.kubernetes import (
    apply,
    errors,
    logs,
    paths,
    pod_status,
    restart,
    script_archive,
    status,
    stdin,
    streams,
)
from tfk8s.backends.kubernetes.logs import Follower
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.errors import ClusterError, InvalidInput, TaskUnreachable
from tfk8s.render import manifests, package_files, script_job
from tfk8s.sessions import pod_entrypoint
from tfk8s.task.config import derive_cluster

JOB_FILE = JobFile(
    name="demo", image="tf:1", master="chief", queue="gold", ttl=60, namespace="ns",
    jobs=(
        Job(name="chief", gpus=1, accelerator="nvidia-l4", memory=Quantity.parse("8Gi"), preload=("ops",)),
        Job(name="My_ps", tasks=2, port=2300),
    ),
)  # fmt: skip


def stateful_sets():
    return [made for made in render.objects(JOB_FILE) if made["kind"] == "StatefulSet"]


# ---- restarts ------------------------------------------------------------------------------------------------------

START = pod_status.seconds("2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("state", "restarts", "after", "soon"),
    [
        ("running", 0, 5, True),
        ("running", 1, 5, True),
        ("running", 2, 5, False),  # kubelet would wait 20 s
        ("running", 9, 601, True),
        ("waiting", 0, 5, False),
    ],
)
def test_a_task_starts_again_in_its_pod_where_kubelet_does_not_put_that_off(state, restarts, after, soon):
    container = {"state": {state: {"startedAt": "2026-01-01T00:00:00Z"}}, "restartCount": restarts}
    pod = {"metadata": {}, "status": {"containerStatuses": [container]}}
    assert restart.starts_again_soon(pod, START + after) is soon
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not restart.starts_again_soon(pod, START + after)


# ---- refusals ------------------------------------------------------------------------------------------------------


def body(message, **details):
    return json.dumps({"kind": "Status", "message": message, "details": details}).encode()


def test_a_forbidden_verb_names_the_role_that_allows_it():
    message = 'pods is forbidden: User "jo" cannot list resource "pods" in API group "" in the namespace "ml"'
    error = errors.refused(403, body(message), "c")
    assert str(error) == '"jo" may not list pods in namespace "ml"'
    assert error.help == (
        "the Role tfk8s-user or tfk8s-submit allows it: tfk8s roles | kubectl apply -n ml -f - makes both, "
        "kubectl create rolebinding jo -n ml --role=tfk8s-user --user=jo gives one"
    )


def test_a_forbidden_verb_that_only_one_role_has_names_that_one():
    message = 'x is forbidden: User "jo" cannot patch resource "services" in API group "" in the namespace "ml"'
    assert errors.refused(403, body(message), "c").help.startswith("the Role tfk8s-user allows it: ")


def test_who_has_no_credentials_is_told_to_log_in_and_never_to_give_everybody_a_role():
    message = 'x is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" in the namespace "m"'
    help_ = errors.refused(403, body(message), "c").help
    assert "no credentials" in help_
    assert "rolebinding" not in help_


def test_a_forbidden_verb_everywhere_names_a_cluster_role():
    message = 'x is forbidden: User "jo" cannot list resource "statefulsets" in API group "apps" at the cluster scope'
    error = errors.refused(403, body(message), "c")
    assert str(error) == '"jo" may not list statefulsets.apps in all namespaces'
    assert "kubectl create clusterrole tfk8s --verb=list" in error.help


def test_a_change_that_kueue_refuses():
    why = "spec.replicas: Invalid value: 3: field is immutable"
    message = f'admission webhook "vstatefulset.kb.io" denied the request: {why}'
    error = errors.refused(403, body(message), "c")
    assert str(error) == f"Kueue refuses the change: {why}"
    assert error.help.endswith("down, and up again")


class Found:
    """A cluster that has these objects, and takes no changes."""

    def __init__(self, *objects):
        self.objects = objects

    def find(self, path):
        return next((one for one in self.objects if path == paths.path(one, "ns")), None)

    def get(self, path, query):
        return {"items": [one for one in self.objects if path == paths.collection(one["kind"], "ns")]}


@pytest.mark.parametrize(
    "change",
    [
        lambda client: apply.apply(client, "ns", "demo", render.objects(JOB_FILE)),
        lambda client: apply.scale(client, status.describe(client.objects), {"My_ps": 3}),
        lambda client: apply.delete(client, "ns", "demo"),
    ],
    ids=["up", "scale", "down"],
)
def test_what_changes_a_cluster_that_helm_installed_is_left_to_helm(change):
    client = Found(*stateful_sets())
    for made in client.objects:
        made["metadata"]["labels"][manifests.MANAGED_BY] = "Helm"
        made["metadata"]["annotations"] |= {"meta.helm.sh/release-name": "digits"}
    with pytest.raises(InvalidInput) as caught:
        change(client)
    assert str(caught.value) == 'cluster "demo" was installed by Helm, as release "digits"'
    place = "digits --namespace ns"
    assert caught.value.help == f"`helm upgrade {place} …` changes it, `helm uninstall {place}` removes it"


def test_a_conflict_names_owner_and_field():
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


def test_a_namespace_that_is_being_deleted():
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
def test_other_refusals(code, answer, words):
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
def test_silence_is_said_in_words(error, words):
    said = errors.unreachable(error, "c", "https://h")
    assert str(said) == f'the API server of context "c" (https://h) does not answer: {words}'


def test_a_certificate_that_is_not_trusted_is_no_silence():
    cause = ssl.SSLCertVerificationError("x")
    cause.verify_message = "self-signed certificate"
    said = errors.unreachable(urllib3.exceptions.SSLError(cause), "c", "https://h")
    assert said.unheard, "and so it is not tried again"
    assert str(said) == (
        'the API server of context "c" (https://h) is not the one that the kubeconfig trusts: self-signed certificate'
    )
    assert said.help == "was the cluster made anew? get its kubeconfig again"


@pytest.mark.parametrize("words", ["certificate is not yet valid", "certificate has expired"])
def test_a_certificate_out_of_its_time_may_be_a_clock_that_is_wrong(words):
    cause = ssl.SSLCertVerificationError("x")
    cause.verify_message = words
    error = errors.unreachable(urllib3.exceptions.SSLError(cause), "c", "https://h")
    assert str(error) == f'the certificate of the API server of context "c" (https://h) can\'t be trusted: {words}'
    assert error.help == "is the clock of this machine right? else have it renewed"


# ---- clusters from their StatefulSets ------------------------------------------------------------------------------


def test_a_cluster_is_known_from_any_of_its_stateful_sets():
    for one in stateful_sets():
        cluster = status.describe([one])
        assert (cluster.name, cluster.namespace, cluster.master) == ("demo", "ns", Task("chief", 0))
        assert cluster.tasks == list(JOB_FILE)
        assert cluster.target == "grpc://demo-chief-0.demo.ns.svc:2222"
        assert cluster.address(Task("My_ps", 1)).endswith("-1.demo.ns.svc:2300")
    assert status.describe(stateful_sets()[:1]).set_of("My_ps") is None


# ---- scripts -------------------------------------------------------------------------------------------------------


def test_a_scripts_job_is_like_the_master_but_for_gpus():
    run = script_job.Run(arguments=["--tf1", "a.py"], environment={"A": "$x"})
    made = script_job.job("demo-script-1", stateful_sets()[0], run)
    spec = made["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gold"
    assert (made["spec"]["backoffLimit"], made["spec"]["ttlSecondsAfterFinished"]) == (0, 60)
    assert made["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "session-script"
    assert container["command"] == ["python3", "-m", "tfk8s.sessions.pod_entrypoint", "--tf1", "a.py"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "4Gi"}
    assert "nodeSelector" not in spec or "cloud.google.com/gke-accelerator" not in spec["nodeSelector"]
    assert environment["CUDA_VISIBLE_DEVICES"] == "-1"
    assert environment["A"] == "$$x"
    assert environment["TFK8S_JOBS"] == "chief=1,My_ps=2:2300"
    assert not {"TFK8S_JOB", "TFK8S_INDEX", "TFK8S_PRELOAD"} & set(environment)
    assert spec["securityContext"] == stateful_sets()[0]["spec"]["template"]["spec"]["securityContext"]
    assert [volume["name"] for volume in spec["volumes"]] == ["tfk8s", "scratch", "work"]


@pytest.mark.parametrize("master", [0, 1], ids=["of GPUs", "without"])
def test_a_script_asks_for_gpus_of_the_clusters_kind(master):
    gpus = script_job.gpus_like(2, reversed(stateful_sets()))
    run = script_job.Run(arguments=["a.py"], environment={}, gpus=gpus)
    spec = script_job.job("a", stateful_sets()[master], run)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "2"
    assert spec["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
    assert "CUDA_VISIBLE_DEVICES" not in environment


def test_without_gpus_in_the_cluster_a_script_asks_for_nvidias():
    assert script_job.gpus_like(1, stateful_sets()[1:]) == script_job.Gpus(1, "nvidia.com/gpu")
    assert script_job.gpus_like(0, stateful_sets()) is None


def test_standard_input_closes_with_who_attached():
    run = script_job.Run(arguments=["a.py"], environment={}, stdin=True)
    (container,) = script_job.job("a", stateful_sets()[0], run)["spec"]["template"]["spec"]["containers"]
    assert container["stdin"]
    assert container["stdinOnce"]


def test_the_stateful_set_stays_as_it_was():
    master = stateful_sets()[0]
    script_job.job("a", master, script_job.Run(arguments=[], environment={}, gpus=script_job.gpus_like(1, [master])))
    assert master == stateful_sets()[0]


def test_a_secret_has_the_packages_files_and_the_script():
    files = package_files.of_scripts()
    made = script_job.secret("a", "uid", "demo", files, b"archive")
    keys = set(map(package_files.key, files))
    assert set(made["data"]) == {*keys, "script.tar.gz"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid"
    assert set(script_job.secret("a", "uid", "demo", files, None)["data"]) == keys


def test_a_folder_travels_without_what_is_made_again_and_always_the_same(tmp_path):
    for name in ("script.py", "package/a.py", "package/__pycache__/a.pyc", ".git/config", "venv/x", "data.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    packed = script_archive.pack(tmp_path / "script.py")
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        assert files.getnames() == ["data.bin", "script.py", "package/a.py"]
    os.utime(tmp_path / "script.py", (1, 1))
    assert script_archive.pack(tmp_path / "script.py") == packed


def test_requirements_travel_too(tmp_path):
    (tmp_path / "app/conf").mkdir(parents=True)
    for name in ("app/a.py", "app/conf/in.txt", "out.txt"):
        (tmp_path / name).touch()
    script = tmp_path / "app/a.py"
    for path, found, travelling in (
        ("app/conf/in.txt", "conf/in.txt", ["a.py", "conf/in.txt"]),
        ("out.txt", "tfk8s-requirements.txt", ["a.py", "conf/in.txt", "tfk8s-requirements.txt"]),
    ):
        assert script_archive.requirements_in_folder(script, tmp_path / path) == found
        with tarfile.open(fileobj=io.BytesIO(script_archive.pack(script, tmp_path / path))) as files:
            assert files.getnames() == travelling


class Pip:
    """Stands for pip: notes how it was called, and installs a module."""

    def __init__(self, code, place):
        self.code, self.place = code, place

    def __call__(self, command, env, **options):
        self.command, self.env = command, env
        self.place.mkdir()
        return subprocess.CompletedProcess(command, self.code)


def test_requirements_are_installed_before_the_images_packages(monkeypatch, tmp_path):
    pip = Pip(0, tmp_path / "user")
    monkeypatch.setattr(pod_entrypoint.subprocess, "run", pip)
    monkeypatch.setattr(pod_entrypoint.site, "getusersitepackages", lambda: str(tmp_path / "user"))
    monkeypatch.setattr(pod_entrypoint.sys, "path", ["/opt", "/usr/lib/python3.11", "/usr/lib/python3/dist-packages"])
    monkeypatch.setenv("PIP_TIMEOUT", "60")
    pod_entrypoint.install("my.txt")
    assert pip.command[1:4] == ["-m", "pip", "install"]
    assert pip.command[-2:] == ["-r", "my.txt"]
    assert (pip.env["PIP_TIMEOUT"], pip.env["PIP_RETRIES"]) == ("60", "1")
    assert sys.path == ["/opt", "/usr/lib/python3.11", str(tmp_path / "user"), "/usr/lib/python3/dist-packages"]


def test_requirements_that_can_t_be_installed_end_the_script(monkeypatch, tmp_path, capsys):
    class Ended(Exception):
        pass

    def end(code):
        raise Ended(code)

    monkeypatch.setattr(pod_entrypoint.subprocess, "run", Pip(1, tmp_path / "user"))
    monkeypatch.setattr(pod_entrypoint.os, "_exit", end)
    with pytest.raises(Ended, match="1"):
        pod_entrypoint.install("my.txt")
    assert capsys.readouterr().err.startswith("error: my.txt can't be installed: pip ended with exit code 1\n")


@pytest.mark.parametrize("what", ["/dev/null", "an empty file", "an ended pipe", "closed"])
def test_there_is_nothing_to_pass_on_of(what, monkeypatch, tmp_path):
    (tmp_path / "empty").touch()
    if what == "an ended pipe":
        read, write = os.pipe()
        os.close(write)
    else:
        read = os.open({"an empty file": tmp_path / "empty"}.get(what, "/dev/null"), os.O_RDONLY)
    if what == "closed":
        os.close(read)
    monkeypatch.setattr(stdin, "_STDIN", read)
    assert stdin.waiting() is None


def test_a_pipe_is_passed_on_to_its_end(monkeypatch):
    read, write = os.pipe()
    monkeypatch.setattr(stdin, "_STDIN", read)
    idle = stdin.waiting()
    os.write(write, b"one")
    begun = stdin.waiting()
    os.write(write, b"two")
    os.close(write)
    assert list(begun) == [b"one", b"two"]
    assert list(idle) == []


def test_a_folder_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(script_archive, "MOST_BYTES", 10_000_000)
    (tmp_path / "a.py").touch()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10_000_001)
    with pytest.raises(InvalidInput, match="more than 10 MB"):
        script_archive.pack(tmp_path / "a.py")


def test_a_pod_unpacks_what_was_packed(tmp_path, monkeypatch):
    (tmp_path / "from").mkdir()
    (tmp_path / "from/a.py").write_text("a")
    (tmp_path / "archive").write_bytes(script_archive.pack(tmp_path / "from/a.py"))
    monkeypatch.chdir(tmp_path)
    pod_entrypoint.extract(tmp_path / "archive")
    assert (tmp_path / "a.py").read_text() == "a"


def test_a_pod_knows_the_cluster_spec_from_its_compact_form(monkeypatch):
    for name, value in {
        "TFK8S_NAME": "demo", "TFK8S_NAMESPACE": "ns", "TFK8S_JOBS": "chief=1,ps=2:2300", "TFK8S_PORT": "2222",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert json.loads(pod_entrypoint.cluster_json(derive_cluster(os.environ))) == {
        "chief": ["demo-chief-0.demo.ns.svc:2222"],
        "ps": ["demo-ps-0.demo.ns.svc:2300", "demo-ps-1.demo.ns.svc:2300"],
    }


def test_standard_error_is_marked_and_tensorflows_chatter_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "1")
    (tmp_path / "in").write_bytes(
        b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
        b"I0000 00:00:1795263665.384623       6 port.cc:153] oneDNN custom operations are on.\n"
        b"E0000 00:00:1795263665.384623       6 port.cc:153] an error\nnext\n"
    )
    sink = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    pod_entrypoint.mark(os.open(tmp_path / "in", os.O_RDONLY), sink)
    os.close(sink)
    assert (tmp_path / "out").read_bytes().splitlines() == [
        b"\x1eE0000 00:00:1795263665.384623       6 port.cc:153] an error", b"\x1enext",
    ]  # fmt: skip


# ---- logs ----------------------------------------------------------------------------------------------------------


class Streams:
    """A client whose log streams break: each call gives the next of them."""

    def __init__(self, *streams):
        self.streams, self.asked = list(streams), []

    def lines(self, path, query):
        self.asked.append(query)
        answer = self.streams.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return (line for line in answer)


def follow(*streams):
    client = Streams(*streams)
    lines = list(Follower(client, "ns", "pod", 7, lambda: len(client.streams) > 1))
    return lines, client.asked


def test_a_broken_stream_goes_on_where_it_broke_and_shows_each_line_once():
    lines, asked = follow(
        ["2026-01-01T00:00:01.5Z one", "2026-01-01T00:00:02.5Z two", "2026-01-01T00:00:02.5Z three"],
        ["2026-01-01T00:00:02.1Z before", "2026-01-01T00:00:02.5Z two", "2026-01-01T00:00:02.5Z three",
         "2026-01-01T00:00:02.5Z four", "2026-01-01T00:00:03.5Z five"],
        ["unable to retrieve container logs for containerd://7470"],
        ["2026-01-01T00:00:03.5Z five", "2026-01-01T00:00:04.5Z last"],
    )  # fmt: skip
    assert lines == ["one", "two", "three", "four", "five", "last"]
    assert [query.get("tailLines") for query in asked] == [7, None, None, None]
    assert asked[1]["sinceTime"] == "2026-01-01T00:00:02Z"
    assert [query["follow"] for query in asked] == [True, True, True, False]


def test_a_log_that_is_read_once_keeps_the_marks_of_standard_error():
    class Text:
        def text(self, path, query):
            return "out\n\x1eerr\n\n"

    assert logs.read_pod(Text(), "ns", "pod", None) == ["out", "\x1eerr", ""]


def test_a_container_that_has_not_started_is_waited_for():
    lines, _ = follow(errors.ApiError(400, "waiting to start"), ["2026-01-01T00:00:01Z one"], [])
    assert lines == ["one"]


def test_a_refusal_is_not():
    with pytest.raises(errors.ApiError):
        follow(errors.ApiError(403, "no"), [])


# ---- streams -------------------------------------------------------------------------------------------------------


class Pinged:
    def __init__(self):
        self.pings = 0

    def ping(self):
        self.pings += 1


def test_a_stream_that_says_nothing_is_asked_for_a_sign_of_life_and_given_up(monkeypatch):
    now = 100.0
    monkeypatch.setattr(streams.time, "monotonic", lambda: now)
    stream = Pinged()
    life = streams._Life(stream)
    over = []
    for second in range(1, 21):
        now = 100.0 + second
        over.append(life.is_over(said=second in (3, 9)))
    assert over.index(True) == 9 + streams._DEAD_SECONDS  # the second 18
    assert stream.pings == 8  # at 2, 5, 7, 11, 13, 15, 17 and 19


class Told:
    """A stream of a command that says these messages."""

    sock = None

    def __init__(self, *messages):
        self.messages, self.sent, self.closed = list(messages), [], False

    def settimeout(self, seconds):
        pass

    def recv_data(self):
        return self.messages.pop(0)

    def send_binary(self, data):
        self.sent.append(data)

    def close(self):
        self.closed = True


def client_that_opens(stream):
    transport = types.SimpleNamespace(with_credentials=lambda *_: stream)
    return types.SimpleNamespace(transport=transport, url="https://h", context="c")


def execute(monkeypatch, *messages):
    stream = Told(*messages)
    try:
        streams.execute(client_that_opens(stream), "ns", "pod", ["run"], [b"in"])
    finally:
        assert (stream.sent, stream.closed) == ([b"\0in"], True)


BINARY, CLOSE = websocket.ABNF.OPCODE_BINARY, websocket.ABNF.OPCODE_CLOSE


def test_a_command_in_a_pod_ends_well(monkeypatch):
    execute(monkeypatch, (BINARY, b""), (BINARY, b"\1out"), (BINARY, b'\3{"status": "Success"}'))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([(BINARY, b"\2no such file\n"), (BINARY, b'\3{"status": "Failure"}')], "run failed in pod pod: no such file"),
        ([(CLOSE, b"\x03\xe8")], "the stream to pod pod ended before run did"),  # 1000, which begins as a status does
        ([(BINARY, b"\1"), (CLOSE, b"")], "the stream to pod pod ended before run did"),
    ],
)
def test_a_command_in_a_pod_that_fails_or_is_out_of_sight(monkeypatch, messages, words):
    with pytest.raises(ClusterError) as caught:
        execute(monkeypatch, *messages)
    assert str(caught.value) == words


class Port:
    """A forwarded port: the API server's end, and whose stream it is."""

    def __init__(self):
        here, self.server = socket.socketpair()
        ours, self.stream = socket.socketpair()
        for one in (self.server, self.stream):
            one.settimeout(20)
        opened = websocket.WebSocket(skip_utf8_validation=False)
        opened.sock, opened.connected = here, True
        self.carrying = threading.Thread(target=streams._relay, args=(opened, ours), daemon=True)
        self.carrying.start()

    def says(self, *messages):
        self.server.sendall(b"".join(bytes([0x82, len(one)]) + one for one in messages))

    def hears(self):
        """Return the next message, which its key is laid over."""
        head = self.server.recv(6, socket.MSG_WAITALL)
        data = self.server.recv(head[1] & 0x7F, socket.MSG_WAITALL)
        return bytes(one ^ head[2 + at % 4] for at, one in enumerate(data))


@pytest.fixture
def port(request, monkeypatch):
    monkeypatch.setattr(streams, "_DEAD_SECONDS", getattr(request, "param", streams._DEAD_SECONDS))
    port = Port()
    yield port
    for one in (port.server, port.stream):
        one.close()
    port.carrying.join(20)
    assert not port.carrying.is_alive()


def test_data_goes_both_ways_without_what_begins_its_channels(port):
    port.says(b"\0\xae\x08", b"\1\xae\x08", b"\0one")
    assert port.stream.recv(100) == b"one"
    port.stream.sendall(b"two")
    assert port.hears() == b"\0two"


@pytest.mark.parametrize("port", [600.0], indirect=True)
def test_what_came_before_an_error_is_passed_on_and_then_the_end(port):
    port.says(b"\0\xae\x08", b"\1\xae\x08", b"\0one", b"\1nobody listens")
    assert [port.stream.recv(100) for _ in range(2)] == [b"one", b""]


@pytest.mark.parametrize("port", [0.05], indirect=True)
def test_a_message_that_does_not_come_to_its_end_ends_the_stream(port):
    port.server.sendall(b"\x82\x05\0")  # a binary message of five bytes, of which one comes
    assert port.stream.recv(100) == b""


@pytest.mark.parametrize(("code", "error"), [(403, errors.ApiError), (404, TaskUnreachable), (500, TaskUnreachable)])
def test_a_pod_that_can_t_be_dialled_is_unreachable_unless_that_is_forbidden(code, error):
    refusal = websocket.WebSocketBadStatusException("", code, resp_body=body("no"))
    with pytest.raises(error):
        streams.dial(client_that_opens(refusal), "ns", "pod", 2222)


@pytest.mark.parametrize("error", [ClusterError("no"), InvalidInput("no")])
def test_standard_input_that_can_t_be_passed_on_is_told(monkeypatch, error):
    def attach(*_):
        raise error

    monkeypatch.setattr(streams, "attach", attach)
    failures = []
    stdin.PassedOn(None, "ns", "pod", iter([b"in"]), failures.append).run()
    assert failures == [error]


def test_standard_input_that_breaks_is_its_end(monkeypatch):
    def blocks():
        yield b"in"
        raise OSError

    stream = Told()
    monkeypatch.setattr(streams, "attach", lambda *_: stream)
    stdin.PassedOn(None, "ns", "pod", blocks(), print).run()
    assert (stream.sent, stream.closed) == ([b"\0in"], True)
