"""The pod that reads a shared history from its claim: it waits, and commands run in it."""

from __future__ import annotations

from collections.abc import Sequence

from tfk8s.core.job_file.mappings import Security
from tfk8s.render import manifests, pods
from tfk8s.render.lifetime import AMOUNTS, LIMITS, REQUESTS
from tfk8s.render.pods import Object

COMPONENT = "history-reader"
CONTAINER = "reader"
FOLDER = "/history"
LIFETIME = 600  # seconds, after which Kubernetes ends the pod of a command that was killed
DEFAULT_IMAGE = "tensorflow/tensorflow:2.21.0"  # which nodes have, and documentation names
ROOM_ADVICE = f"ask for room: the pod requests {AMOUNTS}"
_WAIT = "import signal; signal.signal(signal.SIGTERM, lambda *_: exit()); signal.pause()"


def render(name: str, claim: str, image: str, pull_secrets: Sequence[Object] = ()) -> Object:
    """Return the pod.

    Args:
        name: the pod's.
        claim: the claim, which the pod can't write.
        image: an image with Python 3.
        pull_secrets: as a pod's spec has them, for the image.
    """
    storage = pods.storage(None)
    container = {
        "name": CONTAINER,
        "image": image,
        "command": ["python3", "-c", _WAIT],
        "resources": {"requests": REQUESTS | storage["requests"], "limits": LIMITS | storage["limits"]},
        "securityContext": pods.container_security(),
        "volumeMounts": [{"name": "history", "mountPath": FOLDER, "readOnly": True}],
    }
    labels = {manifests.NAME: "tfk8s", manifests.COMPONENT: COMPONENT}
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LIFETIME,
        "terminationGracePeriodSeconds": 1,
        "securityContext": pods.pod_security(Security()),
        "containers": [container],
        "volumes": [{"name": "history", "persistentVolumeClaim": {"claimName": claim}}],
    }
    if pull_secrets:
        spec["imagePullSecrets"] = list(pull_secrets)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
