"""Test of NetworkPolicy: two pods find out whether the cluster's network enforces a policy.

One pod listens on two ports, and a policy allows only one of them. The other pod connects to the allowed port until
that works. Then it tries the forbidden port several times, because the network may need seconds to enforce a policy.
Both programs run in any image with Python, without this package.
"""

from __future__ import annotations

import contextlib
import secrets

from tfk8s import polling
from tfk8s.backends.kubernetes import pod_status
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.api_server.client import Client
from tfk8s.core.spec import Security
from tfk8s.errors import ClusterError
from tfk8s.render import pods
from tfk8s.render.pods import Object

_POD_TIMEOUT = 120.0  # includes the time to pull the image
_ALLOWED, _FORBIDDEN = 8001, 8002
_NAME = "app.kubernetes.io/name"

_LISTEN = f"""
import select, socket
servers = [socket.create_server(("", port)) for port in ({_ALLOWED}, {_FORBIDDEN})]
while True:
    for server in select.select(servers, [], [])[0]:
        with server.accept()[0] as stream:
            stream.sendall(b"yes")
"""
# The exit code is 0 if the policy is enforced, 1 if not, and 2 if the allowed port does not respond either.
_CONNECT = f"""
import socket, sys, time
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
if not wait_until(lambda: responds({_ALLOWED}), 30):
    sys.exit(2)
sys.exit(not wait_until(lambda: not responds({_FORBIDDEN}) and responds({_ALLOWED}), 15))
"""


def enforced(client: Client, namespace: str, image: str) -> bool:
    """Return whether the network enforces NetworkPolicy between pods of a namespace.

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
        connector = create(pod(f"{name}-1", f"{name}-connector", image, _CONNECT, address))
        ended = _wait_for(client, connector, "Succeeded", "Failed")
    finally:
        for path in reversed(created):
            with contextlib.suppress(ClusterError):
                client.send("DELETE", path, {"gracePeriodSeconds": 0})
    code: int = ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    if code not in (0, 1):
        raise ClusterError(f"the pods can't connect to each other at all (exit code {code})")
    return code == 0


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
