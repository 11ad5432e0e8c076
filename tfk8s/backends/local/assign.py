"""What each task of a job file gets on this machine: its address, its variables, its GPUs."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence

from tfk8s import plain, views
from tfk8s.backends.local import capacity, launch
from tfk8s.backends.local.records import Record, TaskRecord
from tfk8s.spec import Job, JobFile


def record(job_file: JobFile, *, exposed: bool) -> Record:
    """Return what a job file's cluster is started with, on this machine as it is now."""
    python = launch.script_python(os.environ)
    address = views.local_address(job_file)
    gpus = capacity.assign_gpus(job_file, capacity.gpus())
    tasks = [
        TaskRecord(
            job=job.name,
            index=task.index,
            address=address(task),
            environment={**job_file.env, **job.env, **_gpu_environment(gpus[task])},
            preload=list(job.preload),
            note=_missing_gpus(job, len(gpus[task])),
        )
        for job in job_file.jobs
        for task in job
    ]
    return Record(
        name=job_file.name, id=secrets.token_hex(16), created=time.time(), spec=plain.from_job_file(job_file),
        master=job_file.master, tasks=tasks, cluster=job_file.cluster_spec(address), python=python,
        tensorflow=str(launch.tensorflow_folder(python)), exposed=exposed,
    )  # fmt: skip


def _missing_gpus(job: Job, found: int) -> str:
    return f"asks for {job.gpus} GPUs, has {found} on this machine" if found < job.gpus else ""


def _gpu_environment(gpus: Sequence[int]) -> dict[str, str]:
    """Return the variables that show a task its own GPUs and no others."""
    if not gpus:
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
