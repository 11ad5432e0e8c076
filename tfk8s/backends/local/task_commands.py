"""Commands in the network of a cluster: `tfk8s exec` in the user's terminal, and the looks of `tfk8s stacks`."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfk8s.backends import interpreter, local_scripts, stacks, usage
from tfk8s.backends.local import mounts, network_namespace, supervisor_client
from tfk8s.backends.local.record import Record
from tfk8s.backends.local.state import Folder
from tfk8s.backends.local.supervision import script_request
from tfk8s.backends.stacks import Stacks
from tfk8s.backends.usage import Usage
from tfk8s.core.naming import CLUSTER_ID_VARIABLE
from tfk8s.core.programs import exit_code
from tfk8s.core.script import NOT_EXECUTABLE, NOT_FOUND
from tfk8s.core.spec import Task
from tfk8s.core.storage import claims
from tfk8s.errors import ClusterError

_LOOK_TIMEOUT = 30.0  # for two looks at all processes, on a busy machine


def run(folder: Folder, record: Record, task: Task, words: Sequence[str]) -> int:
    """Run a command with this process' standard streams; return its exit code as a shell would.

    Args:
        folder: the cluster's.
        record: the cluster's.
        task: a task of the cluster.

    Raises:
        SupervisorGone: the cluster has ended.
        ClusterError: this machine allows no process to join the cluster's network.
    """
    enter = _entrance(folder, record)
    own = next(other.environment for other in record.tasks if other.task == task)
    own = {**own, "TFK8S_JOB": task.job, "TFK8S_INDEX": str(task.index)}  # a server's process needs neither
    terminal = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
    environment = record.isolation.confined(
        {
            **script_request.variables(folder), **own, **terminal,
            **_proxy(folder, record), CLUSTER_ID_VARIABLE: record.id,
        }
    )  # fmt: skip
    try:
        code = local_scripts.run_program(words, environment, prepare=enter)
    except OSError as error:
        sys.stderr.write(f"tfk8s: can't run {words[0]}: {error.strerror}\n")
        return NOT_FOUND if isinstance(error, (FileNotFoundError, NotADirectoryError)) else NOT_EXECUTABLE
    except subprocess.SubprocessError as error:
        raise _refused(record) from error
    return exit_code(code)


def read_stacks(folder: Folder, record: Record, chosen: Sequence[str]) -> list[Stacks]:
    """Return what tasks and scripts do now; see `Backend.stacks`.

    Raises:
        SupervisorGone: the cluster has ended.
        ClusterError: this machine allows no process to join the cluster's network, or is too slow.
    """
    pids, answers = _ask(folder, record, chosen, "tfk8s.task.programs.inspector")
    found = {document["pid"]: document for document in answers}
    return [
        stacks.parse(name, [found[pids[name]]]) if pids.get(name) else Stacks(name, problem="has no process")
        for name in chosen
    ]


def read_usage(folder: Folder, record: Record, chosen: Sequence[str]) -> list[Usage]:
    """Return what tasks and scripts use; see `Backend.usage`. Errors as of `read_stacks`."""
    pids, answers = _ask(folder, record, chosen, "tfk8s.backends.local.supervision.process_meter")
    return [usage.parse(name, answers, pids.get(name) or -1) for name in chosen]


def _ask(
    folder: Folder, record: Record, chosen: Sequence[str], program: str
) -> tuple[Mapping[str, int | None], list[dict[str, Any]]]:
    """Return the process ids of tasks and scripts, and what a program says of those chosen."""
    observed = supervisor_client.observe(folder)
    pids = {f"{task['job']}/{task['index']}": task["pid"] for task in observed.tasks}
    pids |= {f"pid {script['pid']}": script["pid"] for script in observed.scripts}
    running = [str(pids[name]) for name in chosen if pids.get(name)]
    return pids, _look(folder, record, program, running) if running else []


def _proxy(folder: Folder, record: Record) -> dict[str, str]:
    """Return the variables that lead a command to the supervisor's proxy."""
    return {} if record.isolation.is_shared else supervisor_client.observe(folder).proxy


def _look(folder: Folder, record: Record, program: str, pids: Sequence[str]) -> list[dict[str, Any]]:
    command = interpreter.command(sys.executable, program, *pids)
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=_LOOK_TIMEOUT, check=True,
            preexec_fn=_entrance(folder, record),
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"no answer in {_LOOK_TIMEOUT:g} s: this machine has no CPU to spare") from error
    except subprocess.CalledProcessError as error:
        raise ClusterError(f"the processes can't be looked at: exit code {error.returncode}") from error
    except subprocess.SubprocessError as error:
        raise _refused(record) from error
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


def _entrance(folder: Folder, record: Record) -> Callable[[], None] | None:
    """Return what a process calls to join the cluster's network; None if the network is this machine's."""
    supervisor = folder.supervisor()
    if supervisor is None:
        raise supervisor_client.gone_error(folder)
    is_plain = record.isolation.is_shared and not mounts.needed(claims.volumes(record.job_file))
    return None if is_plain else functools.partial(network_namespace.join, supervisor)


def _refused(record: Record) -> ClusterError:
    return ClusterError(f'this machine lets no process join the network of cluster "{record.name}"')
