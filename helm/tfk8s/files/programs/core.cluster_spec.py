"""The ClusterSpec in each form that programs read: `TF_CONFIG`, JSON and command-line flags.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfk8s.core.spec import ClusterSpec, Task


def tf_config(cluster: ClusterSpec, job: str, index: int) -> str:
    """Return the value of `TF_CONFIG`, which TensorFlow's strategies read, for one task."""
    return _json({"cluster": cluster, "task": {"type": job, "index": index}})


def cluster_spec(cluster: ClusterSpec) -> str:
    """Return the ClusterSpec as JSON."""
    return _json(cluster)


def flags(cluster: ClusterSpec, task: Task) -> str:
    """Return command-line flags, in two lines.

    The first line is for `grpc_tensorflow_server`. The second follows the convention of TensorFlow 1's scripts.
    The flags have no quotes, because a shell splits the output of `$(tfk8s render …)` at spaces only.
    """
    spec = ",".join(f"{job}|{';'.join(addresses)}" for job, addresses in cluster.items())
    server = [f"--cluster_spec={spec}", f"--job_name={task.job}", f"--task_id={task.index}"]
    hosts = [f"--{job}_hosts={','.join(addresses)}" for job, addresses in cluster.items()]
    script = [*hosts, f"--job_name={task.job}", f"--task_index={task.index}"]
    return f"{' '.join(server)}\n{' '.join(script)}"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
