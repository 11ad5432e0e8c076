"""Hints about TensorFlow's and Keras' errors that end programs. Standard library only: this file also runs in pods."""

from __future__ import annotations

import os
import re
import sys
import traceback

from tfk8s.task.programs import custom_operations

KERAS_2 = "install tf_keras, and set TF_USE_LEGACY_KERAS=1 (`env` in the job file)"

NO_DATA_SERVICE = (
    "the cluster has no job of kind: data, which runs tf.data's service; add input: {kind: data, tasks: 3} to `jobs`"
)
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
    return for_keras_2(message)


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
