"""Test of NetworkPolicy: two pods find out whether the cluster's network enforces a policy, and what a pod reaches.

One pod listens on two ports, and a policy allows only one of them. The other pod connects to the allowed port until
that works. Then it tries the forbidden port several times, because the network may need seconds to enforce a policy.
At last it tries the metadata server of its node, and the API server: no policy of tfk8s rules what the pod connects to.
Both programs run in any image with Python, without this package.
"""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass

from tfk8s import polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.backends.kubernetes.pods import pod_status
from tfk8s.core.job_file.mappings import Security
from tfk8s.errors import ClusterError
from tfk8s.render import pods
from tfk8s.render.pods import Object

_POD_TIMEOUT = 120.0  # includes the time to pull the image
_ALLOWED, _FORBIDDEN = 8001, 8002
_NAME = "app.kubernetes.io/name"
METADATA = "169.254.169.254:80"  # where clouds give a node's credentials to its processes

_LISTEN = f"""
import select, socket
servers = [socket.create_server(("", port)) for port in ({_ALLOWED}, {_FORBIDDEN})]
while True:
    for server in select.select(servers, [], [])[0]:
        with server.accept()[0] as stream:
            stream.sendall(b"yes")
"""
# The exit code is the sum of these numbers.
_OPEN, _SILENT, _METADATA, _API_SERVER = 1, 2, 4, 8
_CONNECT = f"""
import os, socket, ssl, sys, time
def responds(port):
    try:
        with socket.create_connection((sys.argv[1], port), 2) as stream:
            return stream.recv(3) == b"yes"
    except OSError:
        return False
def wait_until(condition, attempts):
    for _ in range(attempts):
        if condition():
            return True
        time.sleep(1)
    return False
def metadata_server():
    host, _, port = sys.argv[2].rpartition(":")
    with socket.create_connection((host, int(port)), 3) as stream:
        stream.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        return stream.recv(5) == b"HTTP/"
def api_server():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    address = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    with socket.create_connection(address, 3) as stream, context.wrap_socket(stream):
        return True
def answers(server):
    try:
        return server()
    except (OSError, KeyError):
        return False
if not wait_until(lambda: responds({_ALLOWED}), 30):
    sys.exit({_SILENT})
is_open = not wait_until(lambda: not responds({_FORBIDDEN}) and responds({_ALLOWED}), 15)
sys.exit({_OPEN} * is_open + {_METADATA} * answers(metadata_server) + {_API_SERVER} * answers(api_server))
"""


@dataclass(frozen=True, slots=True)
class Reach:
    """The connections that the network lets pods make.

    Attributes:
        enforced: whether the network enforces NetworkPolicy between pods of a namespace.
        metadata: whether a pod without a policy gets an answer from the metadata server of its node.
        api_server: whether such a pod gets an answer from the API server.
    """

    enforced: bool
    metadata: bool = False
    api_server: bool = False

    @property
    def isolation(self) -> str:
        """The isolation of pods from each other, in words."""
        if self.enforced:
            return "enforced: a pod could connect to an allowed port only"
        return "not enforced: every pod can connect to every task, and run any program in it"


def test(client: Client, namespace: str, image: str) -> Reach:
    """Return what pods of a namespace reach.

    Raises:
        ClusterError: the test was not possible, for example because the pods can't run.
        WaitTimeout: a pod did not run in time.
    """
    name = f"tfk8s-doctor-{secrets.token_hex(3)}"
    created: list[str] = []

    def create(item: Object) -> str:
        client.send("POST", paths.collection(item["kind"], namespace), body=item)
        created.append(paths.path(item, namespace))
        return created[-1]

    try:
        create(policy(name))
        listener = create(pod(f"{name}-0", name, image, _LISTEN))
        address = _wait_for(client, listener, "Running")["status"]["podIP"]
        connector = create(pod(f"{name}-1", f"{name}-connector", image, _CONNECT, address, METADATA))
        ended = _wait_for(client, connector, "Succeeded", "Failed")
    finally:
        for path in reversed(created):
            with contextlib.suppress(ClusterError):
                client.send("DELETE", path, {"gracePeriodSeconds": 0})
    code: int = ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    if code & _SILENT or code >= 2 * _API_SERVER:
        raise ClusterError(f"the pods can't connect to each other at all (exit code {code})")
    return Reach(not code & _OPEN, bool(code & _METADATA), bool(code & _API_SERVER))


def policy(name: str) -> Object:
    """Return a policy that allows one port of the pods with a label."""
    allowed = [{"ports": [{"protocol": "TCP", "port": _ALLOWED}]}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": {_NAME: name}},
        "spec": {"podSelector": {"matchLabels": {_NAME: name}}, "policyTypes": ["Ingress"], "ingress": allowed},
    }


def pod(name: str, label: str, image: str, program: str, *arguments: str) -> Object:
    """Return a small and restricted pod that runs a Python program."""
    resources = {"cpu": "50m", "memory": "64Mi"}
    container = {
        "name": "probe",
        "image": image,
        "command": ["python3", "-c", program, *arguments],
        "resources": {"requests": resources, "limits": resources},
        "securityContext": pods.container_security(),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {_NAME: label}},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "securityContext": pods.pod_security(Security()),
            "containers": [container],
        },
    }


def _wait_for(client: Client, path: str, *phases: str) -> Object:
    """Wait until a pod is in one of the phases, and return the pod.

    Raises:
        ClusterError: the image can't be pulled.
        WaitTimeout: the pod is not in one of the phases in time.
    """
    reason = ""

    def poll() -> Object | None:
        nonlocal reason
        pod = client.get(path)
        if pod["status"].get("phase") in phases:
            return pod
        reason = waiting_reason(pod)
        if "Image" in reason:
            raise ClusterError(f"a pod can't run: {reason}")
        return None

    return polling.wait_until(poll, lambda: f"a pod to run{': ' * bool(reason)}{reason}", _POD_TIMEOUT)


def waiting_reason(pod: Object) -> str:
    """Return Kubernetes' reason why a pod does not run, or ""."""
    for container in pod["status"].get("containerStatuses", ()):
        state = container["state"].get("waiting", {})
        return ": ".join(filter(None, (state.get("reason", ""), state.get("message", ""))))
    scheduled = pod_status.condition(pod, "PodScheduled") or {}
    return str(scheduled.get("message", ""))
