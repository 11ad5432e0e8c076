"""The variables of the scripts and commands of a local cluster, and the request that runs a script."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from tfk8s.backends.local import state
from tfk8s.backends.local.record import Record
from tfk8s.backends.local.supervision import history, requests
from tfk8s.backends.local.supervisor_client import gone_error
from tfk8s.core.environment import script_environment
from tfk8s.core.naming import CLUSTER_ID_VARIABLE
from tfk8s.core.script import Script
from tfk8s.errors import InvalidInput
from tfk8s.sessions.forks import processes, recorded_output


def variables(folder: state.Folder) -> dict[str, str]:
    """Return the variables with which the supervisor was started, those of `tfk8s up`.

    Raises:
        SupervisorGone: the cluster has ended.
    """
    pid = folder.supervisor()
    if pid is None:
        raise gone_error(folder)
    try:
        lines = os.fsdecode(Path(f"/proc/{pid}/environ").read_bytes()).split("\0")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise gone_error(folder) from error
    return {name: value for name, is_set, value in (line.partition("=") for line in lines) if is_set}


def script_variables(folder: state.Folder, record: Record) -> dict[str, str]:
    """Return the variables of the master, for scripts; those from Secrets and ConfigMaps as `tfk8s up` had them."""
    sourced = record.job_file.master_env.keys() - record.variables.keys()
    started = variables(folder) if sourced else {}
    return {**record.variables, **{name: started[name] for name in sourced if name in started}}


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise InvalidInput("the current folder does not exist any more", help="cd to one that does") from error


def script_request(
    folder: state.Folder, record: Record, script: Script, more: Mapping[str, str], python: str | None = None
) -> requests.RunScript:
    """Return the request that runs a script.

    Args:
        record: the cluster.
        more: more variables for the script.
        python: the interpreter that the user names for the script.
    """
    base = {**os.environ, **script_variables(folder, record)}
    without = [*filter(None, script.environment.get("TFK8S_WITHOUT", "").split(",")), *record.programs]
    name = f"script-{secrets.token_hex(3)}"  # the name of no task
    progress, log = folder.progress(name), history.script_log(folder, name)
    more = {CLUSTER_ID_VARIABLE: record.id, "TFK8S_PROGRESS": str(progress), **more}
    more |= {recorded_output.VARIABLE: str(log)} if log else {}
    more |= {"TFK8S_WITHOUT": ",".join(without)} if without else {}
    return requests.RunScript(
        fresh=script.fresh, python=record.script_python(python), folder=_current_folder(),
        umask=processes.umask(), arguments=list(script.runner_arguments()), progress=str(progress),
        environment=dict(script_environment(script, record.cluster, record.target, base, more)),
    )  # fmt: skip
