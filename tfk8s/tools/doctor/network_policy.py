"""Tries whether the cluster's network enforces NetworkPolicy, with two pods that are gone afterwards.

One pod listens on two ports, of which a policy allows one. The other pod connects to the allowed port until that
answers, so that silence on the other one means something, and then tries that one: a policy may take seconds to bite.
Both programs run in any image that has Python: without this package, and so without its `waiting`.
"""

from __future__ import annotations

import contextlib
import secrets

from tfk8s import polling
from tfk8s.backends.kubernetes import paths, pod_status
from tfk8s.backends.kubernetes.client import Client
from tfk8s.core.spec import Security
from tfk8s.errors import ClusterError
from tfk8s.render import pods
from tfk8s.render.pods import Object

_SECONDS = 120.0  # for each pod; an image may have to be pulled
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
# Ends with 0 where the policy is enforced, 1 where not, 2 where not even the allowed port answers.
_VISIT = f"""
import socket, sys, time
def answers(port):
    try:
        with socket.create_connection((sys.argv[1], port), 2) as stream:
            return stream.recv(3) == b"yes"
    except OSError:
        return False
def comes_true(look, times):
    for _ in range(times):
        if look():
            return True
        time.sleep(1)
    return False
if not comes_true(lambda: answers({_ALLOWED}), 30):
    sys.exit(2)
sys.exit(not comes_true(lambda: not answers({_FORBIDDEN}) and answers({_ALLOWED}), 15))
"""


def enforced(client: Client, namespace: str, image: str) -> bool:
    """Return whether NetworkPolicy is enforced between pods of this namespace.

    Raises:
        ClusterError: it can't be tried, as where the pods can't run.
        WaitTimeout: the pods take too long.
    """
    name = f"tfk8s-doctor-{secrets.token_hex(3)}"
    made: list[str] = []

    def make(thing: Object) -> str:
        client.send("POST", paths.collection(thing["kind"], namespace), body=thing)
        made.append(paths.path(thing, namespace))
        return made[-1]

    try:
        make(policy(name))
        listener = make(pod(f"{name}-0", name, image, _LISTEN))
        address = _until(client, listener, "Running")["status"]["podIP"]
        visitor = make(pod(f"{name}-1", f"{name}-visitor", image, _VISIT, address))
        ended = _until(client, visitor, "Succeeded", "Failed")
    finally:
        for path in reversed(made):
            with contextlib.suppress(ClusterError):
                client.send("DELETE", path, {"gracePeriodSeconds": 0})
    code: int = ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
    if code not in (0, 1):
        raise ClusterError(f"the pods don't reach each other at all (the visitor's exit code is {code})")
    return code == 0


def policy(name: str) -> Object:
    """Return the policy that allows one port of the pod with this label."""
    allowed = [{"ports": [{"protocol": "TCP", "port": _ALLOWED}]}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "labels": {_NAME: name}},
        "spec": {"podSelector": {"matchLabels": {_NAME: name}}, "policyTypes": ["Ingress"], "ingress": allowed},
    }


def pod(name: str, label: str, image: str, program: str, *arguments: str) -> Object:
    """Return a pod that runs a Python program, as small and as restricted as can be."""
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


def _until(client: Client, path: str, *phases: str) -> Object:
    """Return the pod once it is in one of the phases.

    Raises:
        ClusterError: its image can't be pulled.
        WaitTimeout: it takes too long.
    """
    complaint = ""

    def look() -> Object | None:
        nonlocal complaint
        found = client.get(path)
        if found["status"].get("phase") in phases:
            return found
        complaint = why_not(found)
        if "Image" in complaint:
            raise ClusterError(f"a pod can't run: {complaint}")
        return None

    return polling.wait_until(look, lambda: f"a pod to run{': ' * bool(complaint)}{complaint}", _SECONDS)


def why_not(pod: Object) -> str:
    """Return what Kubernetes says of a pod that does not run."""
    for container in pod["status"].get("containerStatuses", ()):
        state = container["state"].get("waiting", {})
        return ": ".join(filter(None, (state.get("reason", ""), state.get("message", ""))))
    placed = pod_status.condition(pod, "PodScheduled") or {}
    return str(placed.get("message", ""))
