"""Callbacks for Typer that offer words to complete a command line: names of clusters, tasks and scripts."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from tfk8s.backends.options import BackendOptions
    from tfk8s.core.status import ClusterStatus

_Answer = TypeVar("_Answer")

API_TIMEOUT = 2.0  # a TAB must not hang if the API server does not respond


def keep_quick() -> None:
    """If a shell asks for words, keep Typer from importing rich: 70 ms, to remove markup that no help text has."""
    if os.environ.get("_TFK8S_COMPLETE"):
        sys.modules["rich"] = None  # type: ignore[assignment]  # Python's way to say that it is not installed


def one_of(*words: str) -> Callable[[], list[str]]:
    """Return a callback that offers these words."""
    return lambda: list(words)


def clusters(context: typer.Context) -> list[str]:
    """Return the names of the clusters on this machine and in the Kubernetes context."""
    names = set(_local_clusters()) if _allows_local(context) else set()
    if not _is_local(context):
        from tfk8s.api import list_clusters

        names |= {status.name for status in _ask(lambda: list_clusters(_where(context))) or ()}
    return sorted(names)


def tasks(context: typer.Context) -> list[str]:
    """Return the tasks of the cluster that the command line names."""
    if _allows_local(context) and (names := _local_tasks(_first_argument(context, "name"))):
        return names
    status = _status(context)
    return [str(task.task) for task in status.tasks] if status else []


def tasks_to_leave_out(context: typer.Context) -> list[str]:
    """Return the tasks of the cluster that the command line names; before the name, those of this machine's clusters.

    The option may stand before the cluster's name.
    """
    if _first_argument(context, "name") or not _allows_local(context):
        return tasks(context)
    return sorted({task for cluster in _local_clusters() for task in _local_tasks(cluster)})


def task_counts(context: typer.Context) -> list[str]:
    """Return the beginning of `JOB=TASKS` for each job of the cluster that the command line names."""
    return list(dict.fromkeys(f"{task.partition('/')[0]}=" for task in tasks(context)))


def tasks_of_job_file(context: typer.Context) -> list[str]:
    """Return the tasks of the job file that the command line names."""
    with contextlib.suppress(Exception):  # the file is not valid
        from tfk8s.jobfile.loader import load

        return [str(task) for task in load(_first_argument(context, "file") or "")]
    return []


def fields() -> list[str]:
    """Return the fields of a job file, and those of a job."""
    from tfk8s.jobfile.schema import JOB, JOB_FILE

    return [*JOB_FILE.keys, *(f"worker.{name}" for name in JOB.keys)]


def contexts() -> list[str]:
    """Return the contexts of the kubeconfig."""
    with contextlib.suppress(Exception):  # a kubeconfig is not valid
        import yaml

        paths = os.environ.get("KUBECONFIG") or "~/.kube/config"
        files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
        configs = [yaml.safe_load(file.read_bytes()) for file in files if file.exists()]
        return [entry["name"] for config in configs for entry in config.get("contexts") or ()]
    return []


def scripts(context: typer.Context) -> list[str]:
    """Return the scripts of the cluster that the command line names; scripts on this machine have no names."""
    status = None if _is_local(context) else _status(context)
    return [script.name for script in status.scripts] if status else []


def tasks_and_scripts(context: typer.Context) -> list[str]:
    """Return the tasks and the scripts of the cluster that the command line names."""
    return [*tasks(context), *scripts(context)]


def _first_argument(context: typer.Context, name: str) -> str | None:
    """Return the first argument of the command line, which click leaves aside at an option without its value."""
    value: str | None = context.params[name] or next(iter(context.args), None)
    return value


def _status(context: typer.Context) -> ClusterStatus | None:
    from tfk8s.api import find

    name = _first_argument(context, "name")
    return _ask(lambda: find(name, _where(context)).status()) if name else None


def _ask(question: Callable[[], _Answer]) -> _Answer | None:
    """Return what a backend answers, or None if the backend fails or takes longer than `API_TIMEOUT`."""
    answers: list[_Answer] = []

    def ask() -> None:
        with contextlib.suppress(Exception):
            answers.append(question())

    with open(os.devnull, "r+") as nowhere, contextlib.redirect_stderr(nowhere):
        os.dup2(nowhere.fileno(), 0)  # a credential plugin must not read from the terminal
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(API_TIMEOUT)
    return answers[0] if answers else None


def _where(context: typer.Context) -> BackendOptions:
    from tfk8s.backends.options import BackendOptions

    return BackendOptions(context.params["local"] or None, context.params["context"], context.params["namespace"])


def _is_local(context: typer.Context) -> bool:
    """Return whether the command line means this machine; contradictory options mean it too."""
    from tfk8s.errors import InvalidInput

    try:
        return _where(context).is_local(os.environ)
    except InvalidInput:
        return True


def _allows_local(context: typer.Context) -> bool:
    """Return whether the command line can mean this machine: `--local` may still follow."""
    return context.params["context"] is None and context.params["namespace"] is None


# The files of tfk8s.backends.local.state. Importing that module takes too long for a TAB.


def _local_clusters() -> list[str]:
    with contextlib.suppress(Exception):  # nothing that can be read
        return [path.parent.name for path in _state().glob("*/cluster.json")]
    return []


def _local_tasks(cluster: str | None) -> list[str]:
    import json

    from tfk8s.backends.own_folder import read_file

    with contextlib.suppress(Exception):  # no cluster, or a damaged one
        record = json.loads(read_file(_state() / str(cluster) / "cluster.json"))
        return [f"{task['job']}/{task['index']}" for task in record["tasks"]]
    return []


def _state() -> Path:
    from tfk8s.backends.own_folder import unchecked_root

    return unchecked_root()
