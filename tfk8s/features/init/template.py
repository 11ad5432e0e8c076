"""Template of a first job file."""

from __future__ import annotations

import re

from tfk8s.core import naming
from tfk8s.core.roles import default_master
from tfk8s.core.spec import DEFAULT_PORT
from tfk8s.features.init.script_guess import Guess

# Editors with yaml-language-server read the first line.
FOR_EDITORS = """\
# yaml-language-server: $schema=tfk8s.schema.json
# For completion in editors: tfk8s schema >tfk8s.schema.json
"""


def cluster_name(text: str) -> str:
    """Return a name for a cluster that is similar to the name of a folder or file."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].rstrip("-")
    return name if naming.is_dns_label(name) else "my-cluster"


def job_file_text(name: str, guess: Guess) -> str:
    """Return a commented job file."""
    jobs = "".join(
        f"  {job}: {tasks}" + ("  # the script computes the tasks: are these all?\n" if job in guess.unsure else "\n")
        for job, tasks in sorted(guess.jobs.items())
    )
    port = "" if guess.port == DEFAULT_PORT else f"port: {guess.port}  # the script names localhost:{guess.port}\n"
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
# master: {default_master(sorted(guess.jobs)) or "worker"}

# A job in full: worker: {{tasks: 2, cpu: 4, memory: 16Gi}}. Without cpu and memory, a task uses what its node has free.
# A task with GPUs: gpus: 1, and on GKE accelerator: nvidia-l4
"""
