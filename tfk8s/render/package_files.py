"""The files of this package that run in pods, as the keys of a ConfigMap or a Secret, which can name no folder."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]  # importlib.resources takes 5 ms to say the same
_CORE = ("core/__init__.py", "core/compact.py", "core/lifetime.py", "core/naming.py", "core/roles.py")
_TASK = ("__init__.py", "version.py", *_CORE, "task/*.py")
_PROGRAM = (
    "core/backoff.py", "core/cluster_spec.py", "core/programs.py", "core/progress.py", "log.py",
    "training/__init__.py", "training/keras_*.py", "training/paths.py", "training/progress.py", "task/peers/*.py",
    "task/programs/*.py",
)  # fmt: skip
_DATA_SERVICE = ("task/data/*.py",)
_SCRIPT = (
    *_TASK, "core/addresses.py", "core/cluster_spec.py", "core/progress.py", "concurrency.py", "errors.py", "log.py",
    "polling.py", "training/*.py", "training/parallel/*.py", "core/timeline/__init__.py", "core/timeline/steps.py",
    "sessions/*.py", "sessions/cluster/*.py", "sessions/eager/*.py", "sessions/forks/*.py", "sessions/pod/*.py",
    "sessions/trace/*.py", "sessions/warm/*.py", "task/peers/*.py",
    "task/programs/__init__.py", "task/programs/archive.py", "task/programs/custom_operations.py",
    "task/programs/folder_writer.py", "task/programs/hints.py", "task/programs/import_variables.py",
    "task/programs/imports.py", "task/programs/inspector.py", "task/programs/main_script.py",
    "task/programs/moved_ports.py", "task/programs/own_interpreter.py", "task/programs/set_variables.py",
    "task/programs/stacks.py", "task/programs/strategies.py", "task/programs/tensorflow_1.py",
    "task/programs/unreachable.py",
)  # fmt: skip


@functools.cache
def of_tasks() -> dict[str, str]:
    """Return the text of each file that a task's pod needs, by its path in the package."""
    return _read(_TASK)


@functools.cache
def of_programs() -> dict[str, str]:
    """Return the text of each file that a program's pod needs besides those of a task, by its path in the package."""
    return _read(_PROGRAM)


@functools.cache
def of_data_service() -> dict[str, str]:
    """Return the text of each file that a pod of tf.data's service needs besides those of a task, by its path."""
    return _read(_DATA_SERVICE)


@functools.cache
def of_scripts() -> dict[str, str]:
    """Return the text of each file that a session script's pod needs, by its path in the package."""
    return _read(_SCRIPT)


def key(path: str) -> str:
    """Return the key of a file: `task.server.py` for `task/server.py`."""
    return path.replace("/", ".")


def items(paths: Iterable[str]) -> list[dict[str, Any]]:
    """Return what puts each key of a volume where its file belongs (Kubernetes' KeyToPath)."""
    return [{"key": key(path), "path": path} for path in paths]


def _read(patterns: Iterable[str]) -> dict[str, str]:
    found = sorted(path for pattern in patterns for path in _PACKAGE.glob(pattern))
    return {path.relative_to(_PACKAGE).as_posix(): path.read_text() for path in found}
