"""Claims that every user can write to, also where the provisioner of volumes leaves them to root."""

from __future__ import annotations

from typing import Any


def claim(name: str, **more: object) -> dict[str, Any]:
    """Return a claim of one node; `more` are further fields of its spec."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "256Mi"}}, **more}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def opener(name: str, image: str, mode: str = "777") -> dict[str, Any]:
    """Return the pod `opener-NAME`, which gives the folder of a claim another mode, and succeeds."""
    container = {
        "name": "opener", "image": image, "command": ["chmod", mode, "/opened"], "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "opened", "mountPath": "/opened"}],
    }  # fmt: skip
    volume = {"name": "opened", "persistentVolumeClaim": {"claimName": name}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"opener-{name}"}, "spec": spec}
