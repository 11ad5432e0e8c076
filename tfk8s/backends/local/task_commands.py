"""Commands of `tfk8s exec`: with a task's network and variables, in the user's terminal."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Sequence

from tfk8s.backends import local_scripts
from tfk8s.backends.local import network_namespace, supervisor_client
from tfk8s.backends.local.record import CLUSTER_ID_VARIABLE, Record
from tfk8s.backends.local.state import Folder
from tfk8s.core.script import NOT_EXECUTABLE, NOT_FOUND
from tfk8s.core.spec import Task
from tfk8s.errors import ClusterError


def run(folder: Folder, record: Record, task: Task, words: Sequence[str]) -> int:
    """Run a command with this process' standard streams; return its exit code as a shell would.

    Args:
        folder: the cluster's.
        record: the cluster's.
        task: a task of the cluster.
        words: the command.

    Raises:
        SupervisorGone: the cluster has ended.
        ClusterError: this machine allows no process to join the cluster's network.
    """
    supervisor = folder.supervisor()
    if supervisor is None:
        raise supervisor_client.gone_error(folder)
    own = next(other.environment for other in record.tasks if other.task == task)
    terminal = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
    environment = {**supervisor_client.variables(folder), **own, **terminal, CLUSTER_ID_VARIABLE: record.id}
    enter = None if record.exposed else functools.partial(network_namespace.join, supervisor)
    try:
        code = local_scripts.run_program(words, environment, prepare=enter)
    except OSError as error:
        sys.stderr.write(f"tfk8s: can't run {words[0]}: {error.strerror}\n")
        return NOT_FOUND if isinstance(error, (FileNotFoundError, NotADirectoryError)) else NOT_EXECUTABLE
    except subprocess.SubprocessError as error:
        raise ClusterError(f'this machine lets no process join the network of cluster "{record.name}"') from error
    return code if code >= 0 else 128 - code
