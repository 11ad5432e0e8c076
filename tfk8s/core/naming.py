"""TensorFlow's names and Kubernetes' names, and the addresses that contain them.

TensorFlow names a task `/job:NAME/task:INDEX`, where NAME is `[A-Za-z][A-Za-z0-9_]*`; any other name aborts
the server process ("Invalid device name"). Kubernetes' names are DNS labels (RFC 1123): lower case, digits
and `-`, at most 63 characters.
"""

from __future__ import annotations

import re

# A task as TensorFlow writes it, mostly with a replica, which is always 0.
TASK = re.compile(r"/job:(\w+)(?:/replica:\d+)?/task:(\d+)", re.ASCII)
JOB_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?", re.ASCII)

MAX_JOB_NAME = 63
MAX_DNS_LABEL = 63
# A StatefulSet's pods get a label "NAME-" + 10 characters of a hash, and a label has at most 63 characters.
# Kubernetes accepts a longer name, but its StatefulSet never gets a pod (kubernetes/kubernetes#64023).
MAX_STATEFUL_SET = 52

# The containers of the pods that tfk8s makes. No job file may use these names for other containers.
SERVER_CONTAINER = "server"  # of a task
SCRIPT_CONTAINER = "script"
LIFETIME_CONTAINER = "lifetime"  # of the Job that removes a cluster at its limits
CONTAINERS = (SERVER_CONTAINER, SCRIPT_CONTAINER, LIFETIME_CONTAINER)

RUN_END = "tfk8s.dev/run-end"  # an annotation of a Job whose program was ended after the end of its run

TERMINATION_MESSAGE = "/dev/termination-log"  # becomes part of the status of a pod
SCRIPT_MARK = (
    "\x1e"  # in a script's log, before a line of errors; twice, before what is not the script's. Terminals hide it
)
CLUSTER_ID_VARIABLE = "TFK8S_CLUSTER_ID"  # in the environment of every process of a local cluster
FILES_VARIABLE = "TFK8S_DOWNLOADS"  # the files of `--get`, as JSON; of programs by their indexes
GRACE = "TFK8S_GRACE"  # the variable of programs and scripts with the job file's grace in seconds
SHARED_POD = "TFK8S_SCRIPT"  # the variable of scripts that share a pod, with the script's name
FORWARDED = "TFK8S_FORWARDED"  # for scripts whose addresses of tasks are forwards: those of data tasks, as JSON

SHM_FOLDER = "/dev/shm"  # noqa: S108 - the path is in the pod


def is_job_name(name: str) -> bool:
    """Return whether TensorFlow accepts `name` as the name of a job."""
    return len(name) <= MAX_JOB_NAME and JOB_NAME.fullmatch(name) is not None


def is_dns_label(name: str) -> bool:
    """Return whether Kubernetes accepts `name` for a Service, and so for every object of a cluster (RFC 1035)."""
    return len(name) <= MAX_DNS_LABEL and DNS_LABEL.fullmatch(name) is not None


def dns_label(job: str) -> str:
    """Return the part of Kubernetes names that stands for a job.

    A DNS label stays unchanged. Any other name gets lower case, `-` for `_`, and the first four hex
    digits of its SHA-256, so that `worker`, `Worker` and `worker_` stay apart.
    """
    if is_dns_label(job):
        return job
    import hashlib  # the import takes 6 ms, and few job names need it

    plain = job.lower().replace("_", "-").rstrip("-")
    return f"{plain}-{hashlib.sha256(job.encode()).hexdigest()[:4]}"


def stateful_set(cluster: str, job: str) -> str:
    """Return the name of the StatefulSet that runs a job's tasks."""
    return f"{cluster}-{dns_label(job)}"


def pod(cluster: str, job: str, index: int) -> str:
    """Return the name of a task's pod."""
    return f"{stateful_set(cluster, job)}-{index}"


def master_service(cluster: str) -> str:
    """Return the name of the Service of the master alone."""
    return f"{cluster}-master"


def lifetime(cluster: str) -> str:
    """Return the name of the objects that let a cluster's Job remove the cluster."""
    return f"{cluster}-lifetime"


def pod_address(cluster: str, namespace: str, job: str, index: int, port: int) -> str:
    """Return the address of a task in Kubernetes: its pod's name in the cluster's headless Service."""
    return f"{pod(cluster, job, index)}.{cluster}.{namespace}.svc:{port}"


def task(job: str, index: int) -> str:
    """Return a task's short name, such as `worker/1`, which users read and type."""
    return f"{job}/{index}"


def device(job: str, index: int) -> str:
    """Return a task's name as TensorFlow writes it, such as `/job:worker/task:1`."""
    return f"/job:{job}/task:{index}"
