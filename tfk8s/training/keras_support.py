"""`tfk8s.correct_keras()`: Keras 3 under two strategies of TensorFlow.

Standard library and Keras only: this file also runs in pods.
"""

from __future__ import annotations

from tfk8s.log import log

_SERIES = ("3.15",)  # the corrections replace private functions, which other versions may have in another form


def correct_keras() -> None:
    """Correct Keras 3.15 in this process for MultiWorkerMirroredStrategy and ParameterServerStrategy.

    Call this function before `compile` and `fit`. `tfk8s.strategy()` does not need it, and neither does Keras 2.

    - MultiWorkerMirroredStrategy: `fit` and `evaluate` work. Without the correction, they take values of one replica
      for tensors (https://github.com/keras-team/keras/issues/20585). BackupAndRestore and ModelCheckpoint write on the
      chief only, so that workers can share a folder.
    - ParameterServerStrategy: `fit` and `evaluate` schedule each step on a worker, as Keras 2 does. Variables change
      by `assign_add` in one operation, so that no worker loses the update of another.

    Another version of Keras stays as it is, and a warning says so.
    """
    import keras

    version = str(keras.__version__)
    if ".".join(version.split(".")[:2]) not in _SERIES:
        log.warning(
            "Keras %s stays as it is: tfk8s.correct_keras() has corrections for Keras %s", version, ", ".join(_SERIES)
        )
    elif keras.config.backend() == "tensorflow":
        from tfk8s.training import keras_corrections

        keras_corrections.apply()
