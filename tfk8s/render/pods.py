"""The pods of tasks. Each has one container, and meets the pod security standard `restricted`.

The Helm chart's templates make the same pods from the same job file, so this module only computes what a Go template
can compute. Every call returns new dicts, so that YAML needs no anchors.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfk8s.core import job_kinds, naming
from tfk8s.core.addresses import MAX_PORT, POD_NAMESPACE, pod_address, script_ports
from tfk8s.core.compact import JobSize, format_jobs
from tfk8s.core.environment import data_variables
from tfk8s.core.job_file.mappings import EnvSource, Security
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile
from tfk8s.render import gang, overlay, placement, pod_volumes, program_job
from tfk8s.render.pod_volumes import SCRATCH_FOLDER, SCRATCH_SIZE

Object = dict[str, Any]

_SERVER = ("python3", "-m", "tfk8s.task.server")
_DATA_SERVICE = ("python3", "-m", "tfk8s.task.data.service", f"{SCRATCH_FOLDER}/data")  # a container may restart

# Requests of tasks whose job names none. Measured with TensorFlow 2.21: a server without a session is 340 MB resident
# (264 MB of it TensorFlow's library), and after a small training 380 MB.
DEFAULT_CPU = "100m"
DEFAULT_MEMORY = "512Mi"
MIN_CPU_LIMIT = "1"
# The storage for the scratch folder and the logs. Security scanners require both values.
STORAGE = "ephemeral-storage"
STORAGE_REQUEST = "128Mi"
STORAGE_LIMIT = "4Gi"

GRACE = "tfk8s.dev/grace"  # the annotation of StatefulSets with the job file's `grace` in seconds
POD_GRACE = 5  # of servers, and of programs and scripts without `grace`
_DIGITS = 9  # of a time that Kubernetes takes
_OF_PROCESS_1 = 3

METRICS_PORT = "tfk8s-metrics"  # the name of the port
POD_INDEX = "apps.kubernetes.io/pod-index"  # the label of a StatefulSet's pods since Kubernetes 1.28


def template(job_file: JobFile, job: Job, labels: Mapping[str, str], program_secrets: Sequence[str] = ()) -> Object:
    """Return the pod template of a job's tasks.

    Args:
        job: one of its jobs.
        labels: the labels that Services and policies select the pods by.
        program_secrets: the names of the Secrets with the script's folder, if the job runs a script.
    """
    metadata: Object = {"labels": {**job_file.labels, **job.labels, **labels}}
    if annotations := {**job_file.annotations, **job.annotations, **pod_volumes.pod_annotations(job_file, job)}:
        metadata["annotations"] = annotations
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": pod_grace(job_file.grace if job.program else None),
        "securityContext": pod_security(job_file.security),
        "containers": [_container(job_file, job)],
        "volumes": list(pod_volumes.volumes(job_file, job)),
    }
    if job.program:
        spec |= {"subdomain": job_file.name, "restartPolicy": "Never"}
        if job.program.is_script:
            spec["volumes"] += program_job.volumes(program_secrets, SCRATCH_SIZE)
    if job_file.security.service_account:
        spec["serviceAccountName"] = job_file.security.service_account
    if job_file.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in job_file.image_pull_secrets]
    if job.priority_class:
        spec["priorityClassName"] = job.priority_class
    spec |= placement.rules(job, labels, job_file.avoid) | gang.spec_field(job_file)
    for patch in filter(None, (job_file.pod, job.pod)):
        spec = overlay.apply(spec, patch, container_security)
    return {"metadata": metadata, "spec": spec}


def pod_grace(grace: int | None) -> int:
    """Return the seconds that kubelet waits after SIGTERM: a little longer than process 1, which ends the program."""
    return POD_GRACE if grace is None else grace + _OF_PROCESS_1


def grace_of(stateful_set: Object) -> int | None:
    """Return the job file's `grace` in seconds, as a StatefulSet notes it; None without, or for another's nonsense."""
    text = stateful_set["metadata"].get("annotations", {}).get(GRACE, "")
    return int(text) if text.isdecimal() and len(text) <= _DIGITS else None


def port(job_file: JobFile, job: Job) -> int:
    """Return the port of a job's servers."""
    return job.port or job_file.port


def sizes(job_file: JobFile) -> dict[str, JobSize]:
    """Return the number of tasks and the port of each job."""
    return {job.name: JobSize(job.tasks, port(job_file, job)) for job in job_file.jobs}


def ports(job_file: JobFile) -> list[int]:
    """Return the ports of the cluster's servers without duplicates, in the order of the jobs."""
    return list(dict.fromkeys(port(job_file, job) for job in job_file.jobs))


def activity_port(job_file: JobFile) -> int:
    """Return the port where tasks tell who is connected to them; no container names it as its own."""
    return next(_free_ports(job_file))


def metrics_port(job_file: JobFile) -> int:
    """Return the port where tasks serve their metrics, the next one that no container of the job file names."""
    return next(itertools.islice(_free_ports(job_file), 1, None))


def restarts_port(job_file: JobFile) -> int | None:
    """Return the port of the pod that decides about restarts of programs together; None without one."""
    has_coordinator = program_job.has_coordinator(job_file)
    return next(itertools.islice(_free_ports(job_file), 2, None)) if has_coordinator else None


def _free_ports(job_file: JobFile) -> Iterator[int]:
    highest = max(ports(job_file))
    scripts = script_ports(port(job_file, job_file.job(job_file.master)))  # where a warm pod's scripts have servers
    used = {*ports(job_file), *_additional_ports(job_file), *scripts}
    candidates = itertools.chain(range(highest + 1, MAX_PORT + 1), range(highest - 1, 0, -1))
    return (number for number in candidates if number not in used)


def _additional_ports(job_file: JobFile) -> Iterator[int]:
    """Yield the ports of additional containers."""
    for pod in filter(None, (job_file.pod, *(job.pod for job in job_file.jobs))):
        for container in (*pod.get("containers", ()), *pod.get("initContainers", ())):
            yield from (entry["containerPort"] for entry in container.get("ports", ()))


def _container(job_file: JobFile, job: Job) -> Object:
    container: Object = {
        "name": naming.SERVER_CONTAINER,
        "image": job.image or job_file.image,
        "env": list(_environment(job_file, job)),
        "ports": [{"name": "grpc", "containerPort": port(job_file, job)}, *_metrics_ports(job_file)],
        "resources": resources(job, job_file.queue),
        "securityContext": container_security(),
        "volumeMounts": list(pod_volumes.mounts(job_file, job)),
    }
    if job.program is None:
        return {**container, "command": [*(_SERVER if job.has_server else _DATA_SERVICE)], **_probes()}
    container["command"] = program_job.command(job_file, job, job.program, restarts_port(job_file))
    if job.program.is_script:
        container["workingDir"] = program_job.WORK_FOLDER
        container["volumeMounts"] += program_job.mounts()
    return container


def _metrics_ports(job_file: JobFile) -> Iterator[Object]:
    if job_file.metrics:
        yield {"name": METRICS_PORT, "containerPort": metrics_port(job_file)}


def _probes() -> Object:
    return {
        # A server listens after 0.3 s; with `preload`, after an import. A livenessProbe is not needed, because failures
        # that it could detect end the process anyway. It would restart busy servers, which then lose their variables.
        "startupProbe": {"tcpSocket": {"port": "grpc"}, "periodSeconds": 1, "failureThreshold": 300},
        "readinessProbe": {"tcpSocket": {"port": "grpc"}, "periodSeconds": 5, "timeoutSeconds": 5},
    }


def storage(queue: str | None) -> dict[str, dict[str, str]]:
    """Return the request and the limit of storage of a container for which nobody names one.

    In a queue there is none. Kueue admits a workload if its ClusterQueue covers each resource that the pods request,
    and an ordinary ClusterQueue covers CPU, memory and GPUs. Kubernetes takes a limit alone as the request, too.
    """
    if queue:
        return {"requests": {}, "limits": {}}
    return {"requests": {STORAGE: STORAGE_REQUEST}, "limits": {STORAGE: STORAGE_LIMIT}}


def resources(job: Job, queue: str | None = None) -> Object:
    """Return the requests and limits of a task's container.

    Without `cpu` or `memory`, a task requests what a server needs, and has no limit of it: only the graph decides how
    much is needed. Otherwise the limits equal the requests, except that the storage limit is higher and the CPU limit
    is at least one core. A server uses half a second of a core before it listens. Four servers with a limit of 200m
    each took 8.7 s to listen; with a core each, they took 5.4 s (measured on two cores).
    """
    memory = job.memory or Quantity.parse(DEFAULT_MEMORY)
    # The kernel counts what a container writes to /dev/shm as the container's memory.
    requests = {"cpu": str(job.cpu or DEFAULT_CPU), "memory": str(memory + job.shm if job.shm else memory)}
    limits: dict[str, str] = {}
    if job.cpu:
        limits["cpu"] = max(job.cpu, Quantity.parse(MIN_CPU_LIMIT), key=lambda quantity: quantity.value).text
    if job.memory:
        limits["memory"] = requests["memory"]
    if job.gpus:
        requests[job.gpu_resource] = limits[job.gpu_resource] = str(job.gpus)
    made = storage(queue)
    limits |= made["limits"]
    return {"requests": requests | made["requests"], **({"limits": limits} if limits else {})}


def _environment(job_file: JobFile, job: Job) -> Iterator[Object]:
    """Yield the defaults and the user's variables by name, and then the variables that identify the task."""
    values: dict[str, str | EnvSource] = {**default_environment(job), **job_file.env, **job.env}
    values["PYTHONPATH"] = pod_volumes.python_path(values.get("PYTHONPATH"))
    for name in sorted(values):
        yield {"name": name, **_value(values[name])}
    yield {"name": "TFK8S_NAME", "value": job_file.name}
    yield {"name": "TFK8S_NAMESPACE", "valueFrom": _field("metadata.namespace")}
    if job_kinds.is_elastic(job_file):
        yield {"name": "TFK8S_PORT", "value": str(port(job_file, job))}
    else:
        yield {"name": "TFK8S_JOBS", "value": format_jobs(sizes(job_file), job_file.port)}
        yield {"name": "TFK8S_PORT", "value": str(job_file.port)}
    for name, value in data_variables(job_file, pod_address(job_file, POD_NAMESPACE)).items():
        yield {"name": name, "value": value}
    yield {"name": "TFK8S_JOB", "value": job.name}
    index = program_job.POD_INDEX if job.program else POD_INDEX
    yield {"name": "TFK8S_INDEX", "valueFrom": _field(f"metadata.labels['{index}']")}
    if job.required_gpus:
        yield {"name": "TFK8S_GPUS", "value": str(job.required_gpus)}
    if job_file.metrics:
        yield {"name": "TFK8S_METRICS_PORT", "value": str(metrics_port(job_file))}
    if job.program:
        yield from ({"name": name, "value": value} for name, value in program_job.variables(job_file, job))
        return
    if job.preload:
        yield {"name": "TFK8S_PRELOAD", "value": ",".join(job.preload)}
    if job_kinds.watches_use(job_file):
        yield {"name": "TFK8S_ACTIVITY_PORT", "value": str(activity_port(job_file))}


def _value(value: str | EnvSource) -> Object:
    """Return the value of a variable, or the source of its value."""
    if isinstance(value, str):
        return {"value": value.replace("$", "$$")}  # Kubernetes expands $(NAME) in a value, and reads $$ as $
    if value.secret:
        return {"valueFrom": {"secretKeyRef": {"name": value.secret, "key": value.key}}}
    return {"valueFrom": {"configMapKeyRef": {"name": value.config_map, "key": value.key}}}


def _field(path: str) -> Object:
    """Return a reference to a field of the pod, as the source of a variable's value.

    The API server would add the version. Without the version, a second field manager that applies the object gets a
    conflict, because a `fieldRef` has one owner as a whole.
    """
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}


def default_environment(job: Job) -> dict[str, str]:
    """Return the variables of a task's container that the job file can override."""
    return {"HOME": SCRATCH_FOLDER, **gpu_environment(job), **(program_job.DEFAULTS if job.program else {})}


def gpu_environment(job: Job) -> dict[str, str]:
    """Return the variables that let TensorFlow share GPUs, or that hide the node's GPUs from a task without GPUs.

    NVIDIA's images expose all GPUs of the node to a container that requests none (NVIDIA/k8s-device-plugin#61).
    """
    if job.gpus:
        return {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    return {"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_VISIBLE_DEVICES": "void"}


def pod_security(security: Security) -> Object:
    """Return the security context of a pod."""
    return {
        "runAsNonRoot": True,
        "runAsUser": security.user,
        "runAsGroup": security.group,
        "fsGroup": security.group,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Object:
    """Return the security context of a container."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def master_pod(job_file: JobFile) -> str:
    """Return the name of the master's pod."""
    return naming.pod(job_file.name, job_file.master, 0)
