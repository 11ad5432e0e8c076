"""The files of this package that run in pods, as a zip from which Python imports them (zipimport).

There are two contents: one for tasks, programs and tf.data's service, one for session scripts. The same files give the
same zip, except that another version of zlib may compress them otherwise.

The files lack their docstrings, a quarter of the zip. Each statement keeps its line, as tracebacks name it.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

KEY = "tfk8s.zip"  # of a ConfigMap or a Secret
_FOLDER = "tfk8s"  # in the zip
_LEVEL = 9
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can have
_UNIX, _MODE = 3, 0o100644 << 16  # a file that all may read, whatever system packs it

_DOCSTRING = re.compile(r'^([ \t]*)"""(?:[^"\\]|\\.|"(?!""))*"""$', re.MULTILINE)

_PACKAGE = Path(__file__).parents[1]  # importlib.resources takes 5 ms to say the same
_CORE = (
    "core/__init__.py", "core/addresses.py", "core/backoff.py", "core/cluster_spec.py", "core/compact.py",
    "core/job_file/__init__.py", "core/job_file/keys.py", "core/lifetime.py", "core/naming.py",
    "core/output/__init__.py", "core/output/tensorflow_log.py", "core/programs.py", "core/progress.py",
    "core/quantity.py", "core/roles.py", "core/script.py",
)  # fmt: skip
_BOTH = (
    "__init__.py", "call_stack.py", "concurrency.py", "errors.py", "log.py", "polling.py", "version.py", *_CORE,
    "task/*.py", "task/files/*.py", "task/peers/*.py", "task/stream/*.py", "training/*.py", "training/parallel/*.py",
    "sessions/__init__.py",
)  # fmt: skip
_TASK = (
    *_BOTH, "task/data/*.py", "task/programs/*.py", "task/programs/restarts/*.py",
    # the cluster's own Job
    "core/history/__init__.py", "core/history/facts.py", "core/history/redaction.py", "core/history/shared.py",
    "task/lifetime/*.py", "task/lifetime/record/*.py", "task/buckets/*.py",
    "backends/__init__.py", "backends/meter.py", "features/__init__.py", "features/metrics/*.py",  # what measures tasks
    # what `tfk8s.session` needs in a program
    "sessions/cluster/__init__.py", "sessions/cluster/elastic.py", "sessions/cluster/elastic_sessions.py",
    "sessions/cluster/placement.py", "sessions/cluster/questions.py", "sessions/cluster/reset.py",
    "sessions/cluster/cluster_view.py", "sessions/diagnosis.py", "sessions/error_names.py", "sessions/guard_thread.py",
    "sessions/lost_tasks.py", "sessions/patch.py", "sessions/preflight.py", "sessions/session.py",
    "sessions/task_events.py", "sessions/tf_session.py", "sessions/timing.py",
)  # fmt: skip
_SCRIPT = (
    *_BOTH, "features/__init__.py", "features/timeline/__init__.py", "features/timeline/pod.py",
    "features/timeline/step_stats.py", "features/timeline/steps.py",
    "sessions/*.py", "sessions/cluster/*.py", "sessions/eager/*.py", "sessions/forks/*.py", "sessions/pod/*.py",
    "sessions/warm/*.py",
    "task/programs/__init__.py", "task/programs/archive.py", "task/programs/custom_operations.py",
    "task/programs/folder_writer.py", "task/programs/hints.py", "task/programs/import_variables.py",
    "task/programs/imports.py", "task/programs/inspector.py", "task/programs/main_script.py",
    "task/programs/moved_ports.py", "task/programs/own_interpreter.py", "task/programs/set_variables.py",
    "task/programs/stacks.py", "task/programs/strategies.py", "task/programs/tensorflow_1.py",
    "task/programs/unreachable.py",
)  # fmt: skip


@functools.cache
def of_tasks() -> dict[str, str]:
    """Return the text of each file for tasks, programs and tf.data's service, by its path in the package."""
    return _read(_TASK)


@functools.cache
def of_scripts() -> dict[str, str]:
    """Return the text of each file that a session script's pod needs, by its path in the package."""
    return _read(_SCRIPT)


@functools.cache
def zip_of_tasks() -> bytes:
    """Return the zip of `of_tasks`."""
    return pack(of_tasks())


@functools.cache
def zip_of_scripts() -> bytes:
    """Return the zip of `of_scripts`."""
    return pack(of_scripts())


def pack(files: Mapping[str, str]) -> bytes:
    """Return a zip of files, by their paths in the package: sorted, and with a fixed date."""
    import io  # both imports take 20 ms, and few commands need them
    import zipfile

    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, text in sorted(files.items()):
            entry = zipfile.ZipInfo(f"{_FOLDER}/{path}", _DATE)
            entry.create_system, entry.external_attr = _UNIX, _MODE
            packed.writestr(entry, text.encode(), zipfile.ZIP_DEFLATED, _LEVEL)
    return target.getvalue()


def digest_of_scripts() -> str:
    """Return the SHA-256 of the files for session scripts as they are: `of_scripts` takes five times as long."""
    return digest({name: path.read_bytes() for name, path in _find(_SCRIPT).items()})


def digest(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of files, by their paths."""
    found = hashlib.sha256()
    for path, content in sorted(files.items()):
        found.update(f"{path} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def _read(patterns: Iterable[str]) -> dict[str, str]:
    return {name: _DOCSTRING.sub(_empty, path.read_text(encoding="utf-8")) for name, path in _find(patterns).items()}


def _find(patterns: Iterable[str]) -> dict[str, Path]:
    """Return the files, in order, by their paths in the package."""
    found = sorted({path for pattern in patterns for path in _PACKAGE.glob(pattern)})
    return {path.relative_to(_PACKAGE).as_posix(): path for path in found}


def _empty(docstring: re.Match[str]) -> str:
    """Return an empty docstring, which is the body of some classes, of as many lines."""
    return docstring[1] + '""' + "\n" * docstring[0].count("\n")
