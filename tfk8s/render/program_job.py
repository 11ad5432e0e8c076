"""The Indexed Job of a job with a program, and the parts of its pods that differ from those of servers.

The Job controller creates the pod of each task, and creates another pod if a node or a user removes it. Restarts of the
program itself happen in the pod: see `task/programs/pod.py`.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator, Sequence
from typing import Any

from tfk8s.core import addresses, job_kinds, naming, programs
from tfk8s.core.environment import PROGRAM_DEFAULTS, grace_variables
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job, JobFile
from tfk8s.render import kueue

Object = dict[str, Any]

POD_INDEX = "batch.kubernetes.io/job-completion-index"  # the label of an Indexed Job's pods since Kubernetes 1.28
COMMAND = ("python3", "-P", "-m", "tfk8s.task.programs.pod")  # -P: no module of the working folder
WORK_FOLDER = "/work"
ARCHIVE = "program.tar.gz"
PROGRAM_VOLUME = "program"
MAX_ARCHIVE = 16 << 20  # bytes: kubelet keeps them in the memory of the node
MAX_PARTS = 32  # of the archive, a Secret each
ARCHIVE_FOLDER = "/opt/tfk8s/program"
# The codes of containers that Kubernetes ends, 128 + SIGKILL and 128 + SIGTERM. Any other code is the program's last.
_RETRIED_CODES = (137, 143)
# The labels and annotations that the Job controller adds.
CONTROLLER_PREFIX = "batch.kubernetes.io/"
_CONTROLLER_LABELS = ("controller-uid", "job-name")


# ---- the pods ------------------------------------------------------------------------------------------------------


def command(job_file: JobFile, job: Job, program: Program, restarts_port: int | None) -> list[str]:
    """Return the command of a program's container.

    Args:
        restarts_port: of the pod that decides about restarts; None if each program runs again alone.
    """
    run = job_file.run
    words = [word.replace("$", "$$") for word in program.words]  # Kubernetes expands $(NAME), and reads $$ as $
    rules = programs.restart_word(run.restart_on), str(run.max_restarts)
    return [*COMMAND, *rules, _coordinator(job_file, job, restarts_port), *words]


def has_coordinator(job_file: JobFile) -> bool:
    """Return whether programs of several pods run again together."""
    run, is_program = job_file.run, bool(job_kinds.program_jobs(job_file))
    return is_program and run.restart_scope in (programs.JOB, programs.CLUSTER) and run.restart_on != programs.NEVER


def _coordinator(job_file: JobFile, job: Job, port: int | None) -> str:
    """Return the task and the port of the pod that decides about restarts, as a word of the command."""
    if port is None:
        return programs.NO_COORDINATOR
    names = sorted(one.name for one in job_kinds.program_jobs(job_file))
    first = job_file.master if job_file.master in names else names[0]
    return f"{naming.task(job.name if job_file.run.restart_scope == programs.JOB else first, 0)}:{port}"


def variables(job_file: JobFile, job: Job) -> Iterator[tuple[str, str]]:
    """Yield the variables of a program's container besides those of each task."""
    if job_kinds.has_target(job_file):
        address = addresses.pod_address(job_file, addresses.POD_NAMESPACE)
        yield "TFK8S_TARGET", f"grpc://{address(job_file.master_task)}"
    yield "TFK8S_VERDICT", naming.TERMINATION_MESSAGE
    yield from grace_variables(job_file).items()
    if job.tf1:
        yield "TFK8S_TF1", "1"
    if job.program and job.program.is_script:
        yield "TFK8S_ARCHIVE", ARCHIVE_FOLDER


DEFAULTS = {"PYTHONUNBUFFERED": "1", **PROGRAM_DEFAULTS}


def mounts() -> Iterator[Object]:
    """Yield the mounts of a script's container."""
    yield {"name": PROGRAM_VOLUME, "mountPath": ARCHIVE_FOLDER, "readOnly": True}
    yield {"name": "work", "mountPath": WORK_FOLDER}


def volumes(secret_names: Sequence[str], size: str) -> Iterator[Object]:
    """Yield the volumes of a script's pod.

    Args:
        secret_names: of the archive's parts, in their order.
        size: the limit of the working folder.
    """
    items = ([{"key": ARCHIVE, "path": f"{ARCHIVE}.{index:02}"}] for index in range(len(secret_names)))
    parts = [{"secret": {"name": name, "items": item}} for name, item in zip(secret_names, items, strict=True)]
    yield {"name": PROGRAM_VOLUME, "projected": {"sources": parts}}
    yield {"name": "work", "emptyDir": {"sizeLimit": size}}


def secret_name(cluster: str, digest: str = "") -> str:
    """Return the name of the Secret that holds a part of the folder of scripts, or all of it.

    Args:
        digest: of the part. Another content gets another Secret.
    """
    return f"{cluster}-program" + (f"-{digest}" if digest else "")


def secret_names(job: Object) -> set[str]:
    """Return the names of the Secrets that the Job of a program needs."""
    volumes = [one for one in job["spec"]["template"]["spec"]["volumes"] if one["name"] == PROGRAM_VOLUME]
    parts = {part["secret"]["name"] for one in volumes for part in one.get("projected", {}).get("sources", ())}
    return parts | {one["secret"]["secretName"] for one in volumes if "secret" in one}  # one Secret, once


def max_secret_bytes(package: bytes = b"") -> int:
    """Return the size of the largest archive, or part of one, that a Secret holds beside the zip of a package.

    The values of a Secret have at most 1 MiB in all. The API server adds up the decoded bytes, without the keys
    (`ValidateSecret` in pkg/apis/core/validation of Kubernetes; `MaxSecretSize` in k8s.io/api/core/v1). The requests
    that bring a Secret, in base64, and that store it in etcd, as bytes, may have 3 MB and 1.5 MiB.
    """
    return (1 << 20) - len(package)


def secret_data(archive: bytes) -> dict[str, str]:
    """Return the data of the Secret."""
    return {ARCHIVE: base64.b64encode(archive).decode()}


# ---- the Job -------------------------------------------------------------------------------------------------------


def spec(job_file: JobFile, job: Job, template: Object) -> Object:
    """Return the spec of the Job.

    Args:
        job: a job with a program.
        template: the pod template.
    """
    run = job_file.run
    taken_away = ["DisruptionTarget", *([kueue.TAKEN_AWAY] if job_file.queue else ())]
    made: Object = {
        "completionMode": "Indexed",
        "completions": job.tasks,
        "parallelism": job.tasks,
        "backoffLimitPerIndex": 0 if run.restart_on == programs.NEVER else run.max_restarts,
        "maxFailedIndexes": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                *({"action": "Ignore", "onPodConditions": [{"type": kind, "status": "True"}]} for kind in taken_away),
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": naming.SERVER_CONTAINER,
                        "operator": "NotIn",
                        "values": list(_RETRIED_CODES),
                    },
                },
            ]
        },
        "template": template,
    }
    if indexes := _succeeded_indexes(job_file, job):
        made["successPolicy"] = {"rules": [{"succeededIndexes": indexes}]}
    if run.timeout is not None:
        made["activeDeadlineSeconds"] = run.timeout
    return made


def _succeeded_indexes(job_file: JobFile, job: Job) -> str:
    """Return the index whose end with code 0 is the Job's success; "" if all tasks have to end."""
    name, slash, index = job_file.run.success.partition("/")
    return index if slash and name == job.name and job.tasks > 1 else ""


def own_spec(job: Object) -> Object:
    """Return the spec of a Job from the API server, without what belongs to controllers and to `tfk8s wait`."""
    made = {key: copy.deepcopy(value) for key, value in job["spec"].items() if key not in ("selector", "suspend")}
    metadata = made["template"]["metadata"]
    metadata["labels"] = {
        key: value
        for key, value in metadata["labels"].items()
        if key not in _CONTROLLER_LABELS and not key.startswith(CONTROLLER_PREFIX)
    }
    return made


def template_without_program(job: Object) -> Object:
    """Return the pod template of a Job from the API server, without the volumes that `volumes` adds for a script."""
    template: Object = own_spec(job)["template"]
    spec = template["spec"]
    own = {volume["name"] for volume in volumes("", "")}
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] not in own]
    for container in spec["containers"]:
        container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] not in own]
    return template
