"""Hints about failures of programs for TensorFlow 2's strategies and tf.data's service. Standard library only."""

from __future__ import annotations

import os
import re

from tfk8s.core import naming
from tfk8s.sessions.eager import coordinator
from tfk8s.task.programs import custom_operations
from tfk8s.task.programs import hints as program_hints

_PER_WORKER = "you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset"
_NO_CREATOR = re.compile(r"module 'keras[\w.]*' has no attribute 'experimental'")
_NO_CLUSTER = "Cluster spec must be non-empty"
_NO_ITERATION = "Iteration client id not found"
_MISSING_FILE = re.compile(r"(\S+); No such file or directory|Failed to find any matching files for (\S+)")
_REMOTE_TASK = re.compile(r"from remote target /job:(ps|worker)/replica:\d+/task:(\d+)")

_KERAS_2 = (
    f"Keras 3 does not train with ParameterServerStrategy, Keras 2 does: {program_hints.KERAS_2}; or use "
    "tfk8s.strategy(), which works with Keras 3; or call tfk8s.correct_keras() before compile"
)
_NEW_DISPATCHER = (
    "tf.data's dispatcher has forgotten this iteration, as a new pod of the dispatcher has; run the script again"
)
_FORWARDED = (
    "with --here there is no TF_CONFIG, because the tasks can't reach each other at the addresses of this machine; "
    "leave out --here"
)
_TOO_LARGE = (
    "the cluster is too large for TF_CONFIG: a variable holds 128 KiB; give json.loads(os.environ['TFK8S_CLUSTER']) to "
    "a tf.distribute.cluster_resolver.SimpleClusterResolver"
)


def hint(error: BaseException) -> str | None:
    """Return what the user may do about an error that ended a script, or None."""
    if program_hints.needs_data_service(error):
        return program_hints.NO_DATA_SERVICE
    if text := custom_operations.hint(error):
        return text
    message = str(error)
    if _NO_CREATOR.search(message) or (_PER_WORKER in message and program_hints.is_of_keras_3(error)):
        return _KERAS_2
    if _NO_ITERATION in message:
        return _NEW_DISPATCHER
    if _NO_CLUSTER in message and coordinator.VARIABLE not in os.environ:
        return _FORWARDED if naming.FORWARDED in os.environ else _TOO_LARGE
    return _missing_file(message) or program_hints.for_keras_2(message)


def _missing_file(message: str) -> str | None:
    """Return what to do about a file that a task does not have, such as a checkpoint; None for other errors."""
    file, task = _MISSING_FILE.search(message), _REMOTE_TASK.search(message)
    if file is None or task is None:
        return None
    name = naming.task(task[1], int(task[2]))
    return (
        f"{name} has no {file[1] or file[2]}: the task of a variable reads and writes the variable's file; put the "
        "folder on a volume that the tasks and the script share (`volumes` in the job file)"
    )
