"""Template of a first job file, with the jobs that a script names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfk8s.core import naming
from tfk8s.core.spec import DEFAULT_PORT

# "/job:worker/task:1", or "/job:worker/task:{i}" if the script computes the index.
_TASK = re.compile(r"/job:([A-Za-z][A-Za-z0-9_]*)(?:/replica:\d+)?(?:/task:(\d+|[{%]))?", re.ASCII)
_TARGET = re.compile(r"grpc://(?:localhost|127\.0\.0\.1):(\d{1,5})\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class Guess:
    """The cluster that a script seems to need.

    Attributes:
        jobs: the number of tasks of each job, as the script's text shows them.
        unsure: the jobs with indices that the script computes, so that there may be more tasks.
        port: the master's port.
    """

    jobs: Mapping[str, int] = field(default_factory=lambda: {"worker": 2})
    unsure: frozenset[str] = frozenset()
    port: int = DEFAULT_PORT


def guess(script: str) -> Guess:
    """Return the cluster that a script's text names."""
    jobs: dict[str, int] = {}
    unsure = set()
    for job, index in _TASK.findall(script):
        known = index.isdecimal()
        jobs[job] = max(jobs.get(job, 1), int(index) + 1 if known else 2 if index else 1)
        if index and not known:
            unsure.add(job)
    ports = [int(port) for port in _TARGET.findall(script) if 0 < int(port) < 65536]
    return Guess(jobs or {"worker": 1}, frozenset(unsure), min(ports, default=DEFAULT_PORT))


def cluster_name(text: str) -> str:
    """Return a name for a cluster that is similar to the name of a folder or file."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].rstrip("-")
    return name if naming.is_dns_label(name) else "my-cluster"


def job_file_text(name: str, guess: Guess) -> str:
    """Return a commented job file."""
    jobs = "".join(
        f"  {job}: {tasks}" + ("  # the script computes the index: are these all?\n" if job in guess.unsure else "\n")
        for job, tasks in sorted(guess.jobs.items())
    )
    port = (
        "" if guess.port == DEFAULT_PORT else f"port: {guess.port}  # the script connects to localhost:{guess.port}\n"
    )
    return f"""\
# A cluster of TensorFlow servers. `tfk8s validate` checks this file; `tfk8s schema` describes all keys.
apiVersion: tfk8s.dev/v1
name: {name}
image: tensorflow/tensorflow:2.21.0  # used on Kubernetes only
{port}
# The ClusterSpec: the jobs and their tasks. Scripts name the tasks /job:NAME/task:0, /job:NAME/task:1, …
jobs:
{jobs}
# Sessions connect to task 0 of the master's job. Without this line, that is `master`, else `chief`, else `worker`,
# else the first job by name.
# master: worker

# A job in full: worker: {{tasks: 2, cpu: 4, memory: 16Gi}}. Without cpu and memory, a task uses what its node has free.
# A task with GPUs: gpus: 1, and on GKE accelerator: nvidia-l4
"""
