"""The roles of jobs: those that take part in the training, and those beside it.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

from collections.abc import Iterable

EVALUATOR = "evaluator"  # the name of TensorFlow's job that takes no part in the training
DATA = "data"  # the kind of a job that runs tf.data's service: task 0 is the dispatcher, the others are workers
MIN_DATA_TASKS = 2
DRAINS = BLOCK, ALLOW, WHILE_IDLE = ("block", "allow", "idle")  # what drains of nodes may do to tasks that keep state
_KEEP_STATE = ("chief", "master", "ps")


def keeps_state(job: str, master: str) -> bool:
    """Return whether a restart of a job's servers loses variables or sessions.

    Args:
        job: the name of the job.
        master: the job of the master.
    """
    return job in _KEEP_STATE or job == master


def takes_part(job: str, *, is_data: bool = False) -> bool:
    """Return whether sessions and programs see a job's tasks in the ClusterSpec.

    Strategies would count an evaluator as a part of the training cluster (tensorflow#46169). tf.data's service has no
    TensorFlow server to connect to.

    Args:
        job: the name of the job.
        is_data: whether the job runs tf.data's service.
    """
    return job != EVALUATOR and not is_data


def default_master(jobs: Iterable[str]) -> str | None:
    """Return the job of the master if the job file names none, or None if no job can be the master.

    Args:
        jobs: the names of jobs without tf.data's service.
    """
    candidates = sorted(filter(takes_part, jobs))
    for name in ("master", "chief", "worker"):
        if name in candidates:
            return name
    return candidates[0] if candidates else None
