"""The Job that runs a session script beside a cluster's tasks, and the Secret that holds the script.

The Job is made from the master's StatefulSet in the API server, not from a job file. The script therefore has the
master's image, volumes, variables and permissions, and its pod has the labels, annotations and node settings of the
master's pod. What belongs to tasks alone is left out: see `other_pods`. TensorBoard runs as such a script. It reads the
volumes of any job, also of one with a program.
"""

from __future__ import annotations

import base64
import dataclasses
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tfk8s.core import naming
from tfk8s.core.environment import SCRIPT_DEFAULTS
from tfk8s.core.script import ScriptResources
from tfk8s.core.spec import Job
from tfk8s.render import kueue, manifests, other_pods, package_files, pod_volumes, pods, program_job, script_resources
from tfk8s.render.placement import GKE_GPU_LABELS
from tfk8s.render.pods import Object
from tfk8s.render.program_job import WORK_FOLDER
from tfk8s.render.script_resources import Rules

JOB_NAME = "batch.kubernetes.io/job-name"  # the label of a Job's pods since Kubernetes 1.27

ARCHIVE = "script.tar.gz"
STREAMED_ARCHIVE = f"{WORK_FOLDER}/.{ARCHIVE}"
MOUNTED_ARCHIVE = f"{pod_volumes.PACKAGE_FOLDER}/{ARCHIVE}"

FIELDS = "script"  # the key of the job file with the resources of scripts

_PYTHON = ("python3", "-m")
COMMAND = (*_PYTHON, "tfk8s.sessions.pod.entrypoint")
TENSORBOARD_COMMAND = (*_PYTHON, "tfk8s.sessions.pod.tensorboard")
_TASK_VARIABLES = ("TFK8S_JOB", "TFK8S_INDEX", "TFK8S_PRELOAD", "TFK8S_ACTIVITY_PORT", "TFK8S_METRICS_PORT")
_HIDDEN_GPUS = pods.gpu_environment(Job(name="none"))
_DEFAULTS = {
    ("HOME", pod_volumes.SCRATCH_FOLDER), *_HIDDEN_GPUS.items(), *pods.gpu_environment(Job(name="any", gpus=1)).items(),
}  # fmt: skip
OWNERS = {"StatefulSet": "apps/v1", "Job": "batch/v1"}  # of pods, and their API versions
# The sources of volumes that don't outlive a pod, or that nobody can write to.
_FLEETING = frozenset({"emptyDir", "ephemeral", "secret", "configMap", "downwardAPI", "projected", "image"})
_SHM = "shm"  # the volume for /dev/shm
_PREFIXES = ("script-", "warm-")  # names of tasks have no "-", because TensorFlow's job names have none


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a script's pod.

    Attributes:
        count: the number of GPUs.
        resource: the name of the GPU resource.
        labels: the GKE labels of nodes with these GPUs.
    """

    count: int
    resource: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """The settings of a script's pod.

    Attributes:
        arguments: the arguments of `tfk8s.sessions.runner`.
        environment: variables besides the master's variables.
        gpus: the GPUs, or None.
        command: the program that runs as process 1.
        read_only: whether lasting volumes are mounted for reading only.
        resources: what is named besides GPUs.
        rules: what the namespace allows.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str]
    gpus: Gpus | None = None
    command: Sequence[str] = COMMAND
    read_only: bool = False
    resources: ScriptResources = field(default_factory=ScriptResources)
    rules: Rules = field(default_factory=dict)


def is_name(word: str) -> bool:
    """Return whether a word is the name of a script or of a warm pod, and not of a task or a job."""
    return word.startswith(_PREFIXES)


def is_script(job: Object) -> bool:
    """Return whether a Job of a cluster runs a script."""
    return bool(job["metadata"]["labels"].get(manifests.COMPONENT) == manifests.SCRIPT)


def object_name(cluster: str, script: str) -> str:
    """Return the name of a script's Job and Secret."""
    return f"{cluster[:40].rstrip('-')}-{script}"


def name(job: Object) -> str:
    """Return the name of the script that a Job runs."""
    return str(job["metadata"]["name"])[-len("script-000000") :]


def shown_command(command: Sequence[str]) -> Sequence[str]:
    """Return the words of a script's command that users know: the script's own, or those of TensorBoard."""
    hidden = COMMAND if tuple(command[: len(COMMAND)]) == COMMAND else _PYTHON
    return command[len(hidden) :]


def secret(name: str, uid: str, cluster: str, files: Mapping[str, bytes]) -> Object:
    """Return the Secret of a script's Job, which owns the Secret.

    Args:
        name: the name of the Job and of the Secret.
        uid: the Job's uid.
        files: what the pod gets beside the zip of this package, by name.
    """
    files = {package_files.KEY: package_files.zip_of_scripts(), **files}
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}
    metadata = {**_metadata(name, cluster), "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def gpus_like(count: int, sets: Iterable[Object]) -> Gpus | None:
    """Return GPUs of the kind that these StatefulSets use; if none uses GPUs, NVIDIA's."""
    if not count:
        return None
    for stateful_set in sets:
        spec = stateful_set["spec"]["template"]["spec"]
        tolerated = {toleration.get("key") for toleration in spec.get("tolerations", ())}
        resources = [name for name in spec["containers"][0]["resources"].get("limits", ()) if name in tolerated]
        if resources:
            selector = spec.get("nodeSelector", {})
            labels = {label: selector[label] for label in GKE_GPU_LABELS if label in selector}
            return Gpus(count, resources[0], labels)
    return Gpus(count, Job(name="any").gpu_resource)


def job(name: str, master: Object, run: PodSettings) -> Object:
    """Return the Job.

    Args:
        name: the name of the Job and of the Secret.
        master: the master's StatefulSet; or the Job of a program, whose volumes the script gets.
        run: the settings of the script's pod.
    """
    labels = master["metadata"]["labels"]
    cluster = labels[manifests.INSTANCE]
    metadata = _metadata(name, cluster)
    # Kubernetes removes a cluster's scripts together with the cluster, whoever removes it.
    kind = master["kind"]
    owner = {"apiVersion": OWNERS[kind], "kind": kind, "name": master["metadata"]["name"]}
    metadata["ownerReferences"] = [{**owner, "uid": master["metadata"]["uid"]}]
    if queue := kueue.queue_of(master):
        metadata["labels"][kueue.QUEUE] = queue
    template = program_job.template_without_program(master) if kind == "Job" else master["spec"]["template"]
    notes = master["metadata"].get("annotations", {})
    if (grace := pods.grace_of(master)) is not None:
        run = dataclasses.replace(run, environment={**run.environment, naming.GRACE: str(grace)})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": int(notes.get(manifests.TTL, "3600")),
            "template": {
                "metadata": other_pods.metadata(
                    template, {**manifests.selector(cluster), manifests.COMPONENT: manifests.SCRIPT}
                ),
                "spec": _pod(name, template["spec"], run, queue),
            },
        },
    }


def lasting_mounts(workload: Object) -> list[str]:
    """Return the paths in a job's pods where volumes are mounted that outlive the pods."""
    spec = workload["spec"]["template"]["spec"]
    return [mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"] if _lasts(mount, spec["volumes"])]


def _lasts(mount: Object, volumes: Iterable[Object]) -> bool:
    return not any(volume["name"] == mount["name"] and _FLEETING & volume.keys() for volume in volumes)


def own_variables(master: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a script on another machine has in common with the master.

    Left out are tfk8s' own variables, and the path of folders in the image.

    Args:
        master: the variables with fixed values in the master's StatefulSet.
    """
    values = {name: value.replace("$$", "$") for name, value in master.items()}
    return {
        name: value
        for name, value in values.items()
        if not name.startswith("TFK8S_") and name != "PYTHONPATH" and (name, value) not in _DEFAULTS
    }


def _metadata(name: str, cluster: str) -> Object:
    labels = {**manifests.selector(cluster), manifests.COMPONENT: manifests.SCRIPT, manifests.MANAGED_BY: "tfk8s"}
    return {"name": name, "labels": labels}


def _pod(name: str, master: Object, run: PodSettings, queue: str | None) -> Object:
    spec = other_pods.spec(master)
    spec["restartPolicy"] = "Never"
    if grace := run.environment.get(naming.GRACE):
        spec["terminationGracePeriodSeconds"] = pods.pod_grace(int(grace))
    for volume in spec["volumes"]:
        if volume["name"] == "tfk8s":
            del volume["configMap"]
            volume["secret"] = {"secretName": name}
    _resize(spec["volumes"], run.resources)
    spec["containers"] = [_container(spec["containers"][0], spec["volumes"], run, queue)]
    if run.gpus:
        if run.gpus.labels:
            spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **run.gpus.labels}
        toleration = {"key": run.gpus.resource, "operator": "Exists", "effect": "NoSchedule"}
        others = [other for other in spec.get("tolerations", ()) if other != toleration]
        spec["tolerations"] = [*others, toleration]
    return spec


def _resize(volumes: list[Object], resources: ScriptResources) -> None:
    """Set the sizes of the script's own folders, and of its `/dev/shm`."""
    size = str(resources.ephemeral_storage or pod_volumes.SCRATCH_SIZE)
    volumes.append({"name": "work", "emptyDir": {"sizeLimit": size}})
    for volume in volumes:
        if volume["name"] == "scratch":
            volume["emptyDir"] = {"sizeLimit": size}
    if resources.shm:
        volumes[:] = [volume for volume in volumes if volume["name"] != _SHM]
        volumes.append({"name": _SHM, "emptyDir": {"medium": "Memory", "sizeLimit": str(resources.shm)}})


def _with_shm(mounts: Sequence[Object], volumes: Sequence[Object]) -> list[Object]:
    """Return mounts with that of the volume for `/dev/shm`, if there is this volume and nothing else is there."""
    is_needed = any(volume["name"] == _SHM for volume in volumes)
    taken = any(posixpath.normpath(mount["mountPath"]) == naming.SHM_FOLDER for mount in mounts)
    return [*mounts, *[{"name": _SHM, "mountPath": naming.SHM_FOLDER}] * (is_needed and not taken)]


def _container(master: Object, volumes: Sequence[Object], run: PodSettings, queue: str | None) -> Object:
    gpus = {run.gpus.resource: str(run.gpus.count)} if run.gpus else {}
    own = script_resources.requirements(run.resources, master["resources"].get("limits", {}), run.rules, queue)
    package = {"name": "tfk8s", "mountPath": pod_volumes.PACKAGE_FOLDER, "readOnly": True}  # the whole Secret
    mounts = [package if mount["name"] == "tfk8s" else mount for mount in _with_shm(master["volumeMounts"], volumes)]
    if run.read_only:
        mounts = [{**mount, "readOnly": True} if _lasts(mount, volumes) else mount for mount in mounts]
    container = {
        "name": naming.SCRIPT_CONTAINER,
        "image": master["image"],
        "command": [*run.command, *run.arguments],
        "workingDir": WORK_FOLDER,
        "env": _environment(master["env"], run),
        "resources": {kind: {**amounts, **gpus} for kind, amounts in own.items() if amounts or gpus},
        "securityContext": master["securityContext"],
        "volumeMounts": [*mounts, {"name": "work", "mountPath": WORK_FOLDER}],
    }
    container |= {key: master[key] for key in ("envFrom", "imagePullPolicy") if key in master}
    return container


def _environment(master: Sequence[Object], run: PodSettings) -> list[Object]:
    """Return the master's variables, overridden by the script's variables, and the variables for GPUs."""
    values = {
        **(pods.gpu_environment(Job(name="script", gpus=run.gpus.count)) if run.gpus else _HIDDEN_GPUS),
        "PYTHONUNBUFFERED": "1",
        "RES_OPTIONS": "timeout:1 attempts:3",  # resolv.conf(5): look-ups fail after 3 seconds, not after 10
        **SCRIPT_DEFAULTS,
    }
    dropped = {*_TASK_VARIABLES, *run.environment, *(_HIDDEN_GPUS if run.gpus else ())}
    inherited = [_own(variable) for variable in master if variable["name"] not in dropped]
    names = {variable["name"] for variable in inherited}
    added = {**{key: value for key, value in values.items() if key not in names}, **run.environment}
    return [*inherited, *({"name": key, "value": value.replace("$", "$$")} for key, value in added.items())]


def _own(variable: Object) -> Object:
    """Return a variable of the master for a script, whose package is of this version of tfk8s."""
    if variable["name"] != "PYTHONPATH":
        return variable
    return {**variable, "value": pod_volumes.python_path(pod_volumes.users_python_path(variable["value"]))}
