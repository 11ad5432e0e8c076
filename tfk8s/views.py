"""What a task is told of its cluster, in each of the forms that programs read.

Three ways to say where tasks listen: `local_address` on this machine, `pod_address` in Kubernetes,
`given_address` where the job file itself says.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping

from tfk8s import naming
from tfk8s.spec import ClusterSpec, JobFile, Task

Address = Callable[[Task], str]


def local_address(job_file: JobFile) -> Address:
    """Return where tasks listen on this machine: `localhost:PORT+i`, counting tasks in the job file's order.

    The tasks of a job with a port of its own count from that port instead.
    """
    ports: dict[Task, int] = {}
    following = job_file.port
    for job in job_file.jobs:
        first = following if job.port is None else job.port
        ports.update({task: first + task.index for task in job})
        if job.port is None:
            following += job.tasks
    return lambda task: f"localhost:{ports[task]}"


def loopback_ports(addresses: Mapping[Task, str]) -> dict[Task, int]:
    """Return the ports that tasks would have on a single machine, from where they listen on machines of their own.

    As in `local_address`, jobs that listen on the same port count on from each other.
    """
    following: dict[int, int] = {}
    ports = {}
    for task, address in addresses.items():
        own = int(address.rpartition(":")[2])
        ports[task] = following.get(own, own)
        following[own] = ports[task] + 1
    return ports


def pod_address(job_file: JobFile, namespace: str) -> Address:
    """Return where tasks listen in Kubernetes."""
    ports = {job.name: job.port or job_file.port for job in job_file.jobs}
    return lambda task: naming.pod_address(job_file.name, namespace, task.job, task.index, ports[task.job])


def given_address(job_file: JobFile) -> Address:
    """Return where tasks listen according to the job file's explicit addresses."""
    addresses = {job.name: job.addresses for job in job_file.jobs}
    return lambda task: addresses[task.job][task.index]


def tf_config(cluster: ClusterSpec, task: Task) -> str:
    """Return the value of `TF_CONFIG`, which TensorFlow's own strategies read."""
    return _json({"cluster": cluster, "task": {"type": task.job, "index": task.index}})


def cluster_spec(cluster: ClusterSpec) -> str:
    """Return the ClusterSpec as JSON."""
    return _json(cluster)


def flags(cluster: ClusterSpec, task: Task) -> str:
    """Return command-line flags, in two lines.

    The first is what `grpc_tensorflow_server` took; the second is the convention of TensorFlow 1's user scripts.
    They are not quoted: a shell splits the output of `$(tfk8s render …)` at spaces and reads nothing else into it.
    """
    spec = ",".join(f"{job}|{';'.join(addresses)}" for job, addresses in cluster.items())
    server = [f"--cluster_spec={spec}", f"--job_name={task.job}", f"--task_id={task.index}"]
    hosts = [f"--{job}_hosts={','.join(addresses)}" for job, addresses in cluster.items()]
    script = [*hosts, f"--job_name={task.job}", f"--task_index={task.index}"]
    return f"{' '.join(server)}\n{' '.join(script)}"


def script_environment(cluster: ClusterSpec, target: str) -> dict[str, str]:
    """Return the variables that tell a session script where its cluster is."""
    return {"TFK8S_CLUSTER": cluster_spec(cluster), "TFK8S_TARGET": target}


def environment_lines(environment: Mapping[str, str]) -> str:
    """Return variables as lines that a POSIX shell reads."""
    return "\n".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
