"""Hints about TensorFlow's and Keras' errors that end programs. Standard library only: this file also runs in pods."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable

from tfk8s.task.programs import custom_operations

IsTf1Name = Callable[[str, str], bool]

KERAS_2 = "install tf_keras, and set TF_USE_LEGACY_KERAS=1 (`env` in the job file)"

NO_DATA_SERVICE = (
    "the cluster has no job of kind: data, which runs tf.data's service; add input: {kind: data, tasks: 3} to `jobs`"
)
# TensorFlow 2's words about a name that only TensorFlow 1 has, and about TensorFlow 1's calls with eager execution.
_MISSING_NAME = re.compile(r"module '(?P<module>tensorflow[\w.]*)' has no attribute '(?P<name>\w+)'")
_MISSING_IMPORT = re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<module>tensorflow[\w.]*)'")
_MISSING_MODULE = re.compile(r"No module named '(?P<module>tensorflow)\.(?P<name>\w+)")
_EAGER = re.compile(r"is not compatible with eager execution|^The Session graph is empty\.|^/job:\S+ unknown device\.$")
_DUPLICATE_FLAG = re.compile(r"The flag 'log_dir' is defined twice")
_ADD_TF1 = "write tf1: true beside `program` in the job file"
# The parts of TensorFlow 1 that `tensorflow.compat.v1` has not, and what has their contents today.
_REMOVED = {
    "contrib": "packages such as tf-slim and tensorflow-probability have parts of it",
    "estimator": "TensorFlow 2.15 has it, the last version that does",
    "examples": "tf.keras.datasets has its MNIST",
}
_LEFTOVER = re.compile(r"FIFOQueue '\w*sync_token_q\w*' is closed")  # of SyncReplicasOptimizer
_ON_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)")
_KERAS = f"{os.sep}keras{os.sep}src{os.sep}"
_KERAS_2_ONLY = re.compile(r"object has no attribute 'reset_states'|`keras\.optimizers\.legacy` is not supported")
_TOO_LATE = "Collective ops must be configured at program startup"


def hint(error: BaseException) -> str | None:
    """Return what the user may do about an error that ended a program, or None."""
    message = str(error)
    if text := custom_operations.hint(error):
        return text
    if "PerReplica" in message and is_of_keras_3(error):
        return (
            f"Keras 3 does not train with MultiWorkerMirroredStrategy, Keras 2 does: {KERAS_2}; or call "
            "tfk8s.correct_keras() before compile"
        )
    if _TOO_LATE in message:
        return "create MultiWorkerMirroredStrategy once, before any other operation of TensorFlow"
    if needs_data_service(error):
        return NO_DATA_SERVICE
    if needs_keras_2(error):
        return f"TF_USE_LEGACY_KERAS needs the package tf_keras for {sys.executable}"
    if cause := None if os.environ.get("TFK8S_TF1") else tf1_cause(error, is_tf1_name):
        return f"{cause}; {_ADD_TF1}"
    return removed_part(message) or leftover(message) or for_keras_2(message)


# ---- TensorFlow 1 --------------------------------------------------------------------------------------------------


def removed_part(message: str) -> str | None:
    """Return what has the contents of a part that TensorFlow 2 lacks, from the message of an error, or None."""
    match = _MISSING_NAME.search(message) or _MISSING_IMPORT.search(message) or _MISSING_MODULE.search(message)
    if match is None or match["name"] not in _REMOVED:
        return None
    part = match["name"]
    return f"TensorFlow 2 has no tensorflow.{part}, and --tf1 does not bring it back; {_REMOVED[part]}"


def leftover(message: str) -> str | None:
    """Return what to do about a queue that an earlier synchronous training has closed; None for other errors."""
    if not _LEFTOVER.search(message):
        return None
    match = _ON_TASK.search(message)
    task = f"{match[1]}/{match[2]}" if match else "ps/0"
    return (
        f"the queues and accumulators of an earlier synchronous training are left on {task}; remove them: "
        f"tfk8s restart NAME {task}"
    )


def tf1_cause(error: BaseException, is_tf1_name: IsTf1Name) -> str | None:
    """Return why a script needs TensorFlow 1, from its error; None if it does not.

    Args:
        error: the error that ended the script.
        is_tf1_name: returns whether TensorFlow 1 has a name in a module, such as "tensorflow._api.v2.train".
    """
    message = str(error)
    if _EAGER.search(message):
        return "this is TensorFlow 1's code, which TensorFlow 2 runs eagerly"
    if _DUPLICATE_FLAG.search(message):
        return "absl has a flag log_dir, which TensorFlow 1's programs replace; give the flag another name"
    match = _MISSING_NAME.search(message) or _MISSING_IMPORT.search(message)
    if match is None or not is_tf1_name(match["module"], match["name"]):
        return None
    return f"only TensorFlow 1 has {match['name']}"


def is_tf1_name(module: str, name: str) -> bool:
    """Return whether the TensorFlow 1 API of the imported TensorFlow has a name in a module."""
    found: object = getattr(getattr(sys.modules.get("tensorflow"), "compat", None), "v1", None)
    for part in (*module.removeprefix("tensorflow").removeprefix("._api.v2").split(".")[1:], name):
        found = getattr(found, part, None)
    return found is not None


# ---- Keras, tf.data ------------------------------------------------------------------------------------------------


def for_keras_2(message: str) -> str | None:
    """Return what to do about the error of a program that uses what only Keras 2 has; None for other errors."""
    return f"the program is for Keras 2: {KERAS_2}" if _KERAS_2_ONLY.search(message) else None


def is_of_keras_3(error: BaseException) -> bool:
    """Return whether an error comes from code of Keras 3."""
    return any(_KERAS in frame.filename for frame in traceback.extract_tb(error.__traceback__))


def needs_data_service(error: BaseException) -> bool:
    """Return whether a program looked for tf.data's service in a cluster without the service."""
    return isinstance(error, KeyError) and error.args == ("TFK8S_DATA_SERVICE",)


def needs_keras_2(error: BaseException) -> bool:
    """Return whether a program asked for Keras 2, and its package is not installed."""
    return "Keras cannot be imported" in str(error) and bool(os.environ.get("TF_USE_LEGACY_KERAS"))
