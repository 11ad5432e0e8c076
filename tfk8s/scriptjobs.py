"""The Job that runs a session script beside a cluster's tasks, and the Secret that brings the script to it.

It is made from the master's StatefulSet, not from the job file: the same image, volumes, variables and rights as the
master has, whoever applied the cluster.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping, Sequence

from tfk8s import manifests, pods
from tfk8s.pods import Object
from tfk8s.quantity import Quantity

WORK_FOLDER = "/work"
ARCHIVE = "script.tar.gz"
STREAMED_ARCHIVE = f"{WORK_FOLDER}/.{ARCHIVE}"
MOUNTED_ARCHIVE = f"{pods.PACKAGE_FOLDER}/tfk8s/{ARCHIVE}"

# A script asks for little, so that it finds a place beside the tasks, and may use more where there is more.
_REQUESTS = {"cpu": "50m", "memory": "512Mi", "ephemeral-storage": pods.STORAGE_REQUEST}
_CPU_LIMIT = "4"
_MEMORY_LIMIT = Quantity.parse("4Gi")

_TASKS_OWN = ("TFK8S_JOB", "TFK8S_INDEX", "TFK8S_PRELOAD")


def secret(name: str, cluster: str, files: Mapping[str, str], archive: bytes | None) -> Object:
    """Return the Secret with the files of this package that the pod needs and, where it is small, the script."""
    data = {key: base64.b64encode(text.encode()).decode() for key, text in files.items()}
    if archive is not None:
        data[ARCHIVE] = base64.b64encode(archive).decode()
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(name, cluster), "data": data}


def job(
    name: str,
    master: Object,
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> Object:
    """Return the Job.

    Args:
        name: its own, and the Secret's.
        master: the master's StatefulSet.
        arguments: for `tfk8s.runner`.
        environment: variables besides the master's.
    """
    labels = master["metadata"]["labels"]
    cluster = labels[manifests.INSTANCE]
    metadata = _metadata(name, cluster)
    if manifests.QUEUE in labels:
        metadata["labels"][manifests.QUEUE] = labels[manifests.QUEUE]
    template_labels = {**manifests.selector(cluster), manifests.COMPONENT: manifests.SCRIPT}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": int(master["metadata"].get("annotations", {}).get(manifests.TTL, "3600")),
            "template": {
                "metadata": {"labels": template_labels},
                "spec": _pod(name, master["spec"]["template"]["spec"], arguments, environment),
            },
        },
    }


def owned(name: str, uid: str) -> Object:
    """Return the patch by which the Secret goes when its Job goes."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    return {"metadata": {"ownerReferences": [owner]}}


def _metadata(name: str, cluster: str) -> Object:
    labels = {**manifests.selector(cluster), manifests.COMPONENT: manifests.SCRIPT, manifests.MANAGED_BY: "tfk8s"}
    return {"name": name, "labels": labels}


def _pod(name: str, of_master: Object, arguments: Sequence[str], environment: Mapping[str, str]) -> Object:
    spec: Object = copy.deepcopy(of_master)
    spec.pop("affinity", None)
    spec["restartPolicy"] = "Never"
    if "nodeSelector" in spec:
        spec["nodeSelector"].pop(pods.GKE_ACCELERATOR, None)
    for volume in spec["volumes"]:
        if volume["name"] == "tfk8s":
            del volume["configMap"]
            volume["secret"] = {"secretName": name}
    spec["volumes"].append({"name": "work", "emptyDir": {"sizeLimit": pods.SCRATCH_SIZE}})
    container = spec["containers"][0]
    limit = max(_MEMORY_LIMIT, Quantity.parse(container["resources"]["limits"]["memory"]), key=lambda one: one.value)
    spec["containers"] = [
        {
            "name": "script",
            "image": container["image"],
            "command": ["python3", "-m", "tfk8s.unpack", *arguments],
            "workingDir": WORK_FOLDER,
            "env": _environment(container["env"], environment),
            "resources": {
                "requests": dict(_REQUESTS),
                "limits": {"cpu": _CPU_LIMIT, "memory": str(limit), "ephemeral-storage": pods.STORAGE_LIMIT},
            },
            "securityContext": container["securityContext"],
            "volumeMounts": [*container["volumeMounts"], {"name": "work", "mountPath": WORK_FOLDER}],
        }
    ]
    return spec


def _environment(of_master: Sequence[Object], environment: Mapping[str, str]) -> list[Object]:
    values = {
        "CUDA_VISIBLE_DEVICES": "-1",
        "NVIDIA_VISIBLE_DEVICES": "void",
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "TFK8S_RELAY": "1",  # localhost:PORT+i leads to the tasks
    }
    kept = [variable for variable in of_master if variable["name"] not in (*_TASKS_OWN, *environment)]
    given = {variable["name"] for variable in kept}
    own = {**{key: value for key, value in values.items() if key not in given}, **environment}
    return [*kept, *({"name": key, "value": value.replace("$", "$$")} for key, value in own.items())]
