"""A TFJob of Kubeflow's training-operator (kubeflow.org/v1) for a job file with programs.

The pods of the replicas are those that `up` makes, without tfk8s' own files. Fields and their meaning are those of
training-operator 1.8 (pkg/apis/kubeflow.org/v1/tensorflow_types.go, pkg/controller.v1/tensorflow).
"""

from __future__ import annotations

from collections.abc import Iterator

from tfk8s.core import kinds, naming, programs
from tfk8s.core.roles import BLOCK, EVALUATOR
from tfk8s.core.spec import Job, JobFile, Task
from tfk8s.core.storage import claims
from tfk8s.errors import InvalidInput
from tfk8s.render import kueue, pods, volumes
from tfk8s.render.pods import Object

REPLICA_TYPES = {"chief": "Chief", "master": "Master", "worker": "Worker", "ps": "PS", EVALUATOR: "Evaluator"}
RESTART_POLICIES: dict[str | tuple[int, ...], str] = {
    programs.EXIT_CODE: "ExitCode",
    programs.FAILURE: "OnFailure",
    programs.NEVER: "Never",
}
CONTAINER = "tensorflow"
PORT = "tfjob-port"
# The program of a job without one: TensorFlow's server, of the task that TF_CONFIG names.
SERVER = (
    "import tensorflow as tf\n"
    "task = tf.distribute.cluster_resolver.TFConfigClusterResolver()\n"
    "tf.distribute.Server(task.cluster_spec(), task.task_type, task.task_id, protocol='grpc').join()\n"
)
_DECIDING = ("chief", "master", "worker")  # the end of one of these decides about a TFJob's success
_OF_THE_OPERATOR = ("restartPolicy", "subdomain")
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def render(job_file: JobFile, namespace: str | None = None) -> Object:
    """Return the TFJob.

    Args:
        job_file: the cluster. Each job must have an image, and no job may have addresses.
        namespace: overrides the namespace of the job file. If both are None, the TFJob has no namespace.

    Raises:
        InvalidInput: a TFJob can't run these jobs.
    """
    _check(job_file)
    metadata: Object = {"name": job_file.name}
    if namespace := namespace or job_file.namespace:
        metadata["namespace"] = namespace
    if job_file.queue:
        metadata["labels"] = {kueue.QUEUE: job_file.queue}
    spec: Object = {"runPolicy": _run_policy(job_file)}
    if _decides_by_all_workers(job_file):
        spec["successPolicy"] = "AllWorkers"
    spec["tfReplicaSpecs"] = {REPLICA_TYPES[job.name]: _replicas(job_file, job) for job in job_file.jobs}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, "spec": spec}


def selector(cluster: str, job: str) -> dict[str, str]:
    """Return the labels of one job's pods, which the operator sets."""
    return {"training.kubeflow.org/job-name": cluster, "training.kubeflow.org/replica-type": job}


def differences(job_file: JobFile) -> list[str]:
    """Return what a TFJob does not have of a job file, one sentence each."""
    return [*_lost_settings(job_file), *_lost_services(job_file)]


def _check(job_file: JobFile) -> None:
    names = [job.name for job in job_file.jobs]
    if not kinds.program_jobs(job_file):
        raise InvalidInput(
            f'a TFJob runs programs, and no job of "{job_file.name}" has one',
            help="add a program to a job, as in program: [python3, -m, trainer]",
        )
    if data := kinds.data_job(job_file):
        raise InvalidInput(
            f"a TFJob can't run tf.data's service, as job \"{data.name}\" does",
            help="remove the job; run the service beside the TFJob, and give the program its address",
        )
    for name in names:
        if name not in REPLICA_TYPES:
            raise InvalidInput(
                f'job "{name}" is no replica type of a TFJob', help=f"rename the job: {', '.join(REPLICA_TYPES)}"
            )
    if "chief" in names and "master" in names:
        raise InvalidInput("a TFJob can't have both a chief and a master", help="rename one of the jobs")
    if not {*names} & {*_DECIDING}:
        raise InvalidInput("a TFJob needs a chief, a master or workers, whose end decides about its success")
    for job in kinds.program_jobs(job_file):
        if job.program and job.program.is_script:
            raise InvalidInput(
                f'the image of a TFJob must have the program of job "{job.name}", '
                f'and "{job.program.words[0]}" is a file beside the job file',
                help="put the program into the image or a volume, and write a command: "
                f"program: [python3, /app/{job.program.script.name}]",
            )


def _run_policy(job_file: JobFile) -> Object:
    run = job_file.run
    # `Running` ends the programs that still run after the success, and keeps the logs of the others.
    policy: Object = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": job_file.ttl}
    if run.restart_on != programs.NEVER:
        policy["backoffLimit"] = run.max_restarts
    if run.timeout is not None:
        policy["activeDeadlineSeconds"] = run.timeout
    return policy


def _deciding(job_file: JobFile) -> Job:
    """Return the job whose tasks decide about a TFJob's success."""
    return min((job for job in job_file.jobs if job.name in _DECIDING), key=lambda job: _DECIDING.index(job.name))


def _decides_by_all_workers(job_file: JobFile) -> bool:
    """Return whether all workers must succeed; by default, worker 0 decides, and all of the chief's tasks."""
    job = _deciding(job_file)
    return job.name == "worker" and job.tasks > 1 and kinds.success_tasks(job_file) == list(job)


def _success(job_file: JobFile) -> list[Task]:
    """Return the tasks whose ends with code 0 are the success of the TFJob."""
    job = _deciding(job_file)
    return list(job) if job.name != "worker" or _decides_by_all_workers(job_file) else [Task(job.name, 0)]


def _replicas(job_file: JobFile, job: Job) -> Object:
    return {
        "replicas": job.tasks,
        "restartPolicy": RESTART_POLICIES.get(job_file.run.restart_on, "ExitCode"),
        "template": _template(job_file, job),
    }


def _template(job_file: JobFile, job: Job) -> Object:
    """Return the pod template that `up` makes, without what is tfk8s' own."""
    labels = selector(job_file.name, job.name)
    made = pods.template(job_file, job, labels)
    spec = {key: value for key, value in made["spec"].items() if key not in _OF_THE_OPERATOR}
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != "tfk8s"]
    spec["containers"] = [
        _container(job_file, job, container) if container["name"] == naming.SERVER_CONTAINER else container
        for container in spec["containers"]
    ]
    metadata = {key: {name: text for name, text in made["metadata"].get(key, {}).items() if name not in labels}
                for key in ("labels", "annotations")}  # fmt: skip
    metadata = {key: entries for key, entries in metadata.items() if entries}
    return {**({"metadata": metadata} if metadata else {}), "spec": spec}


def _container(job_file: JobFile, job: Job, server: Object) -> Object:
    words = job.program.words if job.program else ("python3", "-c", SERVER)
    own = {
        "name": CONTAINER,
        "command": [word.replace("$", "$$") for word in words],
        "env": list(_environment(server["env"])),
        "ports": [{"name": PORT, "containerPort": pods.port(job_file, job)}],
        "volumeMounts": [mount for mount in server["volumeMounts"] if mount["name"] != "tfk8s"],
    }
    return {key: value for key, value in (server | own).items() if key not in _PROBES and key != "args"}


def _environment(server: list[Object]) -> Iterator[Object]:
    """Yield the variables of a server's container that are not tfk8s' own."""
    for variable in server:
        if variable["name"] == "PYTHONPATH":
            if path := volumes.users_python_path(variable["value"]):
                yield {"name": "PYTHONPATH", "value": path}
        elif not variable["name"].startswith("TFK8S_"):
            yield variable


def _lost_settings(job_file: JobFile) -> Iterator[str]:
    run = job_file.run
    several = sum(job.tasks for job in job_file.jobs) > 1
    if isinstance(run.restart_on, tuple):
        codes = ", ".join(map(str, run.restart_on))
        yield f"a TFJob restarts a replica after exit codes from 128, and has no restart_on: [{codes}]"
    if several and run.restart_on != programs.NEVER and run.restart_scope != programs.TASK:
        scope = run.restart_scope or programs.CLUSTER
        yield f"a TFJob restarts a failed replica alone, and has no restart_scope: {scope}"
    if kinds.success_tasks(job_file) != _success(job_file):
        deciding = ", ".join(map(str, _success(job_file)))
        yield f"a TFJob succeeds when {deciding} ends with exit code 0, whatever run.success says"
    for key in ("max_duration", "idle"):
        if getattr(job_file, key) is not None:
            yield f"a TFJob has no {key}"
    if job_file.drain != BLOCK:
        yield "a TFJob has no drain: no disruption budget protects its pods"
    for volume in claims.claims_to_make(job_file):
        yield f'a TFJob makes no claim: make "{volume.claim}" first'
    for job in job_file.jobs:
        if not job.program and job.preload:
            yield f'the servers of job "{job.name}" in a TFJob do not preload {", ".join(job.preload)}'


def _lost_services(job_file: JobFile) -> Iterator[str]:
    yield "a TFJob has no NetworkPolicy: each pod that reaches its pods can connect to them"
    yield "a TFJob sets TF_CONFIG alone, and none of the variables TFK8S_…"
    if sum(job.tasks for job in job_file.jobs) == 1:
        yield "a TFJob with one replica gets no TF_CONFIG"
    elif any(job.name == EVALUATOR for job in job_file.jobs):
        yield "the TF_CONFIG of all replicas of a TFJob names the evaluator"
