"""What the pods of a cluster connect to: everything, or what the job file's `allow_to` names."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
from fakes.key_pair import CERTIFICATE_OF_STORAGE, KEY
from kube_api import KubeApi
from on_cluster import IMAGE, devices, left, make_job, make_job_file

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.backends.kubernetes.pods.pod_status import condition
from tfk8s.cluster import network_policy
from tfk8s.cluster.program_run import wait_for_programs
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.job_file.mappings import Destination, Network
from tfk8s.core.programs import Program
from tfk8s.core.script import LogOptions, Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.errors import InvalidInput
from tfk8s.features.doctor import kubernetes
from tfk8s.features.doctor.check import State

PORT = 8080
# Serves one file, by HTTP, and by HTTPS in the place of storage.googleapis.com.
SERVE = f"""
import base64, http.server, os, ssl, sys, threading
folder = "/dev/shm/"
for name in ("CERTIFICATE", "KEY"):
    with open(folder + name, "w") as file:
        file.write(os.environ[name])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(base64.b64decode(os.environ["DATA"]))
secure = http.server.ThreadingHTTPServer(("", 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder + "CERTIFICATE", folder + "KEY")
secure.socket = context.wrap_socket(secure.socket, server_side=True)
threading.Thread(target=secure.serve_forever, daemon=True).start()
http.server.ThreadingHTTPServer(("", {PORT}), Handler).serve_forever()
"""
ASK = """
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    opener.open(f"http://{sys.argv[1]}/", timeout=3).read()
except OSError:
    sys.exit(1)
"""
# Keras knows the hash of the real file, which only the Internet has. The check itself stays.
LOAD_DATA = """
import os
os.environ["SSL_CERT_FILE"] = os.path.abspath("authority.pem")
import tensorflow as tf
from keras.src.datasets import mnist
get_file = mnist.get_file
mnist.get_file = lambda fname, origin, file_hash: get_file(fname, origin=origin, file_hash={hash!r})
(x, y), _ = tf.keras.datasets.mnist.load_data()
assert x.shape == (3, 28, 28) and y.tolist() == [7, 8, 9]
"""
# The policy drops the packets: a library would wait for two minutes. A policy holds for a new pod after some seconds.
WAITS = """
import socket, time
for attempt in range(60):
    try:
        socket.create_connection(("{server}", {port}), timeout=10).close()
    except TimeoutError:
        break
    time.sleep(0.5)
"""


def data() -> bytes:
    """Return a file like that of Keras' MNIST, with three images."""
    images, digits = numpy.zeros((3, 28, 28), "uint8"), numpy.array([7, 8, 9])
    numpy.savez(file := io.BytesIO(), x_train=images, y_train=digits, x_test=images, y_test=digits)
    return file.getvalue()


@pytest.fixture(scope="module")
def serve(client: KubeApi, make_namespace: Callable[[], str]) -> Iterator[Callable[[], str]]:
    """Starts servers in another namespace; returns their addresses."""
    namespace = make_namespace()
    made = []

    def serve() -> str:
        name = f"server-{secrets.token_hex(2)}"
        body = network_policy.pod(name, name, IMAGE, SERVE)
        texts = {"CERTIFICATE": CERTIFICATE_OF_STORAGE, "KEY": KEY, "DATA": base64.b64encode(data())}
        body["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}
        body["spec"]["containers"][0]["env"] = [{"name": key, "value": texts[key].decode()} for key in texts]
        body["spec"]["securityContext"]["sysctls"] = [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]
        client.send("POST", paths.collection("Pod", namespace), body=body)
        made.append(path := paths.path(body, namespace))
        polling.wait_until(
            lambda: (condition(client.get(path), "Ready") or {}).get("status") == "True", "the server to listen", 120
        )
        return str(client.get(path)["status"]["podIP"])

    yield serve
    for path in made:
        client.send("DELETE", path, {"gracePeriodSeconds": 0})


@pytest.fixture(scope="module")
def server(serve: Callable[[], str]) -> str:
    return serve()


def reaches(backend: KubernetesBackend, name: str, address: str) -> bool:
    """Return whether a task gets an answer from a server."""
    return backend.inside.execute(name, Task("worker", 0), ["python3", "-c", ASK, f"{address}:{PORT}"]) == 0


def until_reaches(backend: KubernetesBackend, name: str, address: str, *, expected: bool) -> None:
    polling.wait_until(lambda: reaches(backend, name, address) is expected, f"reaching to be {expected}", 90)


def test_tasks_and_scripts_reach_what_the_job_file_allows(
    up: Callable[[JobFile], str], backend: KubernetesBackend, server: str, serve: Callable[[], str], tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pod = {"hostAliases": [{"ip": server, "hostnames": ["storage.googleapis.com"]}]}
    closed = make_job_file("egress", make_job(), network=Network(allow_to=()), pod=pod)
    name = up(closed)  # with the rules of earlier versions
    until_reaches(backend, name, server, expected=False)

    opened = dataclasses.replace(closed, network=Network())
    (change,) = backend.plan(opened).changes
    assert (change.kind, [str(field).split(":")[0] for field in change.fields]) == (
        "NetworkPolicy", ["spec.egress", "spec.policyTypes"],
    )  # fmt: skip
    assert backend.apply(opened)
    until_reaches(backend, name, server, expected=True)
    (tmp_path / "authority.pem").write_bytes(CERTIFICATE_OF_STORAGE)
    (tmp_path / "script.py").write_text(LOAD_DATA.format(hash=hashlib.sha256(data()).hexdigest()))
    assert backend.scripts.run(name, Script(path=tmp_path / "script.py", fresh=True)).code == 0

    other, rest = serve(), Destination(cidr="0.0.0.0/0", except_=(f"{server}/32",))
    assert backend.apply(dataclasses.replace(closed, network=Network(allow_to=(rest,))))
    until_reaches(backend, name, server, expected=False)
    until_reaches(backend, name, other, expected=True)

    (tmp_path / "script.py").write_text(WAITS.format(server=server, port=PORT))
    for fresh in (True, False):
        assert backend.scripts.run(name, Script(path=tmp_path / "script.py", fresh=fresh)).code == 0
        err = capfd.readouterr().err
        assert f"tfk8s: no answer from {server}:{PORT} for" in err
        assert "network.allow_to of the job file, or another NetworkPolicy, may close the way to it" in err


def test_the_log_of_a_program_names_what_it_does_not_reach(
    up: Callable[[JobFile], str], backend: KubernetesBackend, server: str, tmp_path: Path
) -> None:
    (tmp_path / "waits.py").write_text(WAITS.format(server=server, port=PORT))
    worker = make_job(program=Program(("waits.py",), str(tmp_path)))
    name = up(make_job_file("waits", worker, network=Network(allow_to=())))
    assert wait_for_programs(backend, name, 120).exit_code == 0
    lines = [line.text for line in backend.logs(name, [Task("worker", 0)], LogOptions())]
    assert any(line.startswith(f"tfk8s: no answer from {server}:{PORT} for") for line in lines), lines


def test_a_default_deny_is_refused_and_cured(client: KubeApi, make_namespace: Callable[[], str]) -> None:
    namespace = make_namespace()
    deny = {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "default-deny"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }  # fmt: skip
    client.send("POST", paths.collection("NetworkPolicy", namespace), body=deny)
    backend, job_file = KubernetesBackend(namespace=namespace), make_job_file("cured")
    with pytest.raises(InvalidInput, match='NetworkPolicy "default-deny" cuts the tasks off from each') as caught:
        backend.apply(job_file)
    assert "`network: {allow_to: []}`" in caught.value.help
    assert left(client, namespace, "cured") == []
    found = {check.name: check for check in kubernetes.checks(None, namespace, None, job_file)}
    assert found["Egress policies"].state is State.MISSING

    backend.apply(dataclasses.replace(job_file, network=Network(allow_to=())))
    wait_until_ready(backend, "cured", 180)
    assert len(devices(backend, "cured")) == 2
    backend.delete("cured")


def test_doctor_says_what_pods_reach(namespace: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_policy, "METADATA", f"{server}:{PORT}")
    found = {check.name: check for check in kubernetes.checks(None, namespace, IMAGE)}
    assert (found["metadata server"].state, found["API server, from pods"].state) == (State.NOTE, State.NOTE)
    assert f"except: [{server}/32]" in found["metadata server"].help
