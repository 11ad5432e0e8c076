"""The checks of `tfk8s doctor`, for clusters on this machine or on Kubernetes."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from tfk8s import platforms
from tfk8s.backends.interpreter import tensorflow_version
from tfk8s.backends.options import BackendOptions
from tfk8s.core.spec import JobFile
from tfk8s.errors import InvalidInput
from tfk8s.features.doctor.check import Check, State
from tfk8s.task.server import find_tensorflow
from tfk8s.version import __version__


def examine(where: BackendOptions, image: str | None = None, job_file: JobFile | None = None) -> Iterator[Check]:
    """Yield the checks of a backend, each when it is done.

    Args:
        where: the options that select the backend.
        image: on Kubernetes, an image with Python for two pods that test NetworkPolicy.
        job_file: a job file whose tasks need room.

    Raises:
        InvalidInput: the options contradict each other.
    """
    is_local = where.is_local(os.environ)
    yield Check("versions", State.OK, _versions())
    if is_local:
        yield (system := _system())
        if system.state is State.OK:
            from tfk8s.features.doctor import local

            yield from local.checks(os.environ, job_file, where.python)
    else:
        from tfk8s.features.doctor import kubernetes

        yield from kubernetes.checks(where.context, where.namespace, image, job_file)


def _system() -> Check:
    try:
        platforms.require_linux("clusters on this machine")
    except InvalidInput as error:
        return Check("system", State.MISSING, str(error), error.help or "")
    return Check("system", State.OK, platforms.name())


def _versions() -> str:
    folder = find_tensorflow()
    tensorflow = tensorflow_version(Path(folder)) if folder else "is not installed here"
    return f"tfk8s {__version__}, Python {platform.python_version()}, TensorFlow {tensorflow}"
