"""Runs the example of between-graph replication, one command for each task, here as on Kubernetes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

Submit = Callable[..., "subprocess.Popen[str]"]  # of replica.py, with these arguments


def start(submit: Submit, job: str, index: int, *options: str) -> subprocess.Popen[str]:
    """Start the program of a task."""
    return submit(f"--job_name={job}", f"--task_index={index}", *options)


def train(submit: Submit, *options: str) -> tuple[int, int]:
    """Run both workers; return the number of steps that each made."""
    chief = start(submit, "worker", 0, *options)
    assert chief.stdout is not None
    if chief.stdout.readline() != "worker 0: training begins\n":  # a worker that is too early waits for 30 s
        raise AssertionError(chief.communicate()[1])
    other = start(submit, "worker", 1, *options)
    return _steps(chief, 0), _steps(other, 1)


def _steps(worker: subprocess.Popen[str], index: int) -> int:
    out, err = worker.communicate(timeout=120)
    assert worker.returncode == 0, err
    match = re.search(rf"^worker {index}: (\d+) steps, accuracy [01]\.\d\d\n\Z", out, re.MULTILINE)
    assert match, out
    return int(match[1])


def ended(ps: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code and the output of the program of a ps, whose cluster was removed."""
    out, _ = ps.communicate(timeout=60)
    return ps.returncode, out
