"""The Job that runs a session script beside a cluster's tasks, and the Secret that brings the script to it.

It is made from the master's StatefulSet, not from the job file: the same image, volumes, variables and rights as the
master has, whoever applied the cluster.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job
from tfk8s.render import manifests, package_files, pods
from tfk8s.render.pods import Object

JOB_NAME = "batch.kubernetes.io/job-name"  # the label that a Job's pods have since Kubernetes 1.27

WORK_FOLDER = "/work"
ARCHIVE = "script.tar.gz"
STREAMED_ARCHIVE = f"{WORK_FOLDER}/.{ARCHIVE}"
MOUNTED_ARCHIVE = f"{pods.PACKAGE_FOLDER}/tfk8s/{ARCHIVE}"

# A script asks for little, so that it finds a place beside the tasks, and may use more where there is more.
_REQUESTS = {"cpu": "50m", "memory": "512Mi", "ephemeral-storage": pods.STORAGE_REQUEST}
_CPU_LIMIT = "4"
_MEMORY_LIMIT = Quantity.parse("4Gi")
_ROOM = (
    f"have it raised: a script asks for {_REQUESTS['cpu']} cores and {_REQUESTS['memory']}, "
    f"with limits of {_CPU_LIMIT} cores and {_MEMORY_LIMIT} (or the master's memory, if more)"
)

_COMMAND = ("python3", "-m", "tfk8s.sessions.pod_entrypoint")
_TASKS_OWN = ("TFK8S_JOB", "TFK8S_INDEX", "TFK8S_PRELOAD")
_NOT_GPUS = ("cpu", "memory", "ephemeral-storage")
_HIDDEN_GPUS = pods.gpu_environment(Job(name="none"))
_PREFIX = "script-"  # no task's name begins so: TensorFlow's job names have no "-"


@dataclass(frozen=True, slots=True)
class Gpus:
    """What a script's pod asks for: how many, as which resource, and the labels by which GKE's nodes have them."""

    count: int
    resource: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a script is run.

    Attributes:
        arguments: for `tfk8s.sessions.runner`.
        environment: variables besides the master's.
        files: the paths of this package's files in its Secret.
        archived: the script's folder is in its Secret, too.
        gpus: None is none.
        stdin: it has a standard input, which somebody will attach to.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    files: Sequence[str] = ()
    archived: bool = True
    gpus: Gpus | None = None
    stdin: bool = False


def is_name(word: str) -> bool:
    """Return whether a word is the name of a script, rather than of a task or a job."""
    return word.startswith(_PREFIX)


def object_name(cluster: str, script: str) -> str:
    """Return the name of a script's Job and Secret."""
    return f"{cluster[:40].rstrip('-')}-{script}"


def name(made: Object) -> str:
    """Return the name of the script that a Job runs."""
    return str(made["metadata"]["name"])[-len("script-000000") :]


def secret(name: str, uid: str, cluster: str, files: Mapping[str, str], archive: bytes | None) -> Object:
    """Return the Secret with the files of this package that the pod needs and, where it is small, the script.

    It goes when the Job of that name and uid goes.
    """
    data = {package_files.key(path): base64.b64encode(text.encode()).decode() for path, text in files.items()}
    if archive is not None:
        data[ARCHIVE] = base64.b64encode(archive).decode()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    metadata = {**_metadata(name, cluster), "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def gpus_like(count: int, sets: Iterable[Object]) -> Gpus | None:
    """Return so many GPUs of the kind that tasks of these StatefulSets have; where none has any, NVIDIA's."""
    if not count:
        return None
    for made in sets:
        spec = made["spec"]["template"]["spec"]
        resources = [one for one in spec["containers"][0]["resources"]["limits"] if one not in _NOT_GPUS]
        if resources:
            selector = spec.get("nodeSelector", {})
            labels = {label: selector[label] for label in pods.GKE_GPU_LABELS if label in selector}
            return Gpus(count, resources[0], labels)
    return Gpus(count, Job(name="any").gpu_resource)


def job(name: str, master: Object, run: Run) -> Object:
    """Return the Job.

    Args:
        name: its own, and the Secret's.
        master: the master's StatefulSet.
        run: how the script is run.
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
                "spec": _pod(name, master["spec"]["template"]["spec"], run),
            },
        },
    }


def _metadata(name: str, cluster: str) -> Object:
    labels = {**manifests.selector(cluster), manifests.COMPONENT: manifests.SCRIPT, manifests.MANAGED_BY: "tfk8s"}
    return {"name": name, "labels": labels}


def _pod(name: str, of_master: Object, run: Run) -> Object:
    spec: Object = copy.deepcopy(of_master)
    spec.pop("affinity", None)
    spec["restartPolicy"] = "Never"
    for volume in spec["volumes"]:
        if volume["name"] == "tfk8s":
            del volume["configMap"]
            items = [*package_files.items(run.files), *[{"key": ARCHIVE, "path": ARCHIVE}] * run.archived]
            volume["secret"] = {"secretName": name, "items": items}
    spec["volumes"].append({"name": "work", "emptyDir": {"sizeLimit": pods.SCRATCH_SIZE}})
    spec["containers"] = [_container(spec["containers"][0], run)]
    for label in pods.GKE_GPU_LABELS:
        spec.get("nodeSelector", {}).pop(label, None)
    if run.gpus:
        if run.gpus.labels:
            spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **run.gpus.labels}
        tolerated = {"key": run.gpus.resource, "operator": "Exists", "effect": "NoSchedule"}
        spec["tolerations"] = [*(one for one in spec.get("tolerations", ()) if one != tolerated), tolerated]
    return spec


def _container(of_master: Object, run: Run) -> Object:
    memory = max(_MEMORY_LIMIT, Quantity.parse(of_master["resources"]["limits"]["memory"]), key=lambda one: one.value)
    gpus = {run.gpus.resource: str(run.gpus.count)} if run.gpus else {}
    made = {
        "name": "script",
        "image": of_master["image"],
        "command": [*_COMMAND, *run.arguments],
        "workingDir": WORK_FOLDER,
        "env": _environment(of_master["env"], run),
        "resources": {
            "requests": {**_REQUESTS, **gpus},
            "limits": {"cpu": _CPU_LIMIT, "memory": str(memory), "ephemeral-storage": pods.STORAGE_LIMIT, **gpus},
        },
        "securityContext": of_master["securityContext"],
        "volumeMounts": [*of_master["volumeMounts"], {"name": "work", "mountPath": WORK_FOLDER}],
    }
    return {**made, "stdin": True, "stdinOnce": True} if run.stdin else made


def _environment(of_master: Sequence[Object], run: Run) -> list[Object]:
    """Return the master's variables, those of the script over them, and whether it sees GPUs as it asked."""
    values = {
        **(pods.gpu_environment(Job(name="script", gpus=run.gpus.count)) if run.gpus else _HIDDEN_GPUS),
        "PYTHONUNBUFFERED": "1",
        "RES_OPTIONS": "timeout:1 attempts:3",  # resolv.conf(5): a name is given up after 3 seconds, not after 10
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
    dropped = {*_TASKS_OWN, *run.environment, *(_HIDDEN_GPUS if run.gpus else ())}
    kept = [variable for variable in of_master if variable["name"] not in dropped]
    given = {variable["name"] for variable in kept}
    own = {**{key: value for key, value in values.items() if key not in given}, **run.environment}
    return [*kept, *({"name": key, "value": value.replace("$", "$$")} for key, value in own.items())]
