"""Session scripts of a cluster: how users describe them, and where they run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfk8s import polling, spans
from tfk8s.backends import downloads, foreground_scripts
from tfk8s.backends.protocol import Backend
from tfk8s.cluster.connection import require_access
from tfk8s.core.quantity import Quantity
from tfk8s.core.script import Script, ScriptResources
from tfk8s.core.spec import JobFile
from tfk8s.core.status import ClusterStatus, ScriptPhase
from tfk8s.errors import InvalidInput, Tfk8sError, WaitTimeout
from tfk8s.jobfile import values
from tfk8s.log import log
from tfk8s.sessions.timing import TIMING


def make_script(
    path: str | Path,
    arguments: Sequence[str] = (),
    *,
    tf1: bool = False,
    fresh: bool = False,
    isolate: bool = False,
    environment: Mapping[str, str] | None = None,
    requirements: str | Path | None = None,
    gpus: int | None = None,
    cpu: float | str | None = None,
    memory: int | str | None = None,
    without: Sequence[str] = (),
    get: Sequence[str] = (),
    start_timeout: float | None = None,
    on_master: bool = False,
) -> Script:
    """Return a script and its settings, as `Cluster.submit` takes them.

    Raises:
        InvalidInput: the script or the file of requirements does not exist, nothing can be copied as `get` says, or an
            amount is none.
    """
    requirements = find_requirements(requirements)
    excluded = {"TFK8S_WITHOUT": ",".join(without)} if without else {}
    return Script(
        path=require_script(path), arguments=tuple(arguments), tf1=tf1, fresh=fresh, isolate=isolate,
        environment={**_trace(), **(environment or {}), **excluded},
        requirements=requirements, start_timeout=start_timeout,
        resources=ScriptResources(
            cpu=_amount("cpu", values.cpu, cpu), memory=_amount("memory", values.size, memory), gpus=gpus
        ),
        downloads=downloads.parse(get), on_master=on_master,
    )  # fmt: skip


def _trace() -> dict[str, str]:
    """Return the variables by which a script continues the trace of OpenTelemetry that it is started in."""
    return {name: os.environ[name] for name in ("TRACEPARENT", "TRACESTATE") if name in os.environ}


def _amount(name: str, parse: Callable[[Any], Quantity], value: float | str | None) -> Quantity | None:
    """Return an amount, parsed as in a job file."""
    try:
        return None if value is None else parse(value)
    except values.Invalid as error:
        raise InvalidInput(f"--{name}: {error}: {error.label}", help=error.advice) from error


def find_requirements(path: str | Path | None) -> Path | None:
    """Return the path of a file for `pip install -r`, or None for None.

    Raises:
        InvalidInput: there is no such file.
    """
    if path is not None and not Path(path).is_file():
        raise InvalidInput(f'there is no file of requirements "{path}"')
    return None if path is None else Path(path)


def require_combination(*, detach: bool, here: bool, get: bool, trace: bool, retries: bool) -> None:
    """Raise an InvalidInput if options of a script, as `Cluster.submit` has them, do not belong together."""
    if here and detach:
        raise InvalidInput("--here can't be combined with --detach: a script on this machine ends with its command")
    if get and detach:
        raise InvalidInput(
            "--get can't be combined with --detach: files are copied when the script ends, and nobody waits for that",
            help="leave out --detach; or let the script write to a volume of the job file",
        )
    if trace and detach:
        raise InvalidInput("--trace can't be combined with --detach: the page is written when the script ends")
    if retries and (here or detach):
        raise InvalidInput("--retries can't be combined with --here or --detach")


def require_servers(job_file: JobFile) -> None:
    """Raise an InvalidInput if no job of a job file has servers, which session scripts need."""
    if job_file.job(job_file.master).program is not None:
        raise InvalidInput(
            f'the job file "{job_file.name}" has no servers for a session script: its jobs run programs',
            help="leave out SCRIPT: tfk8s run FILE",
        )


def require_script(path: str | Path) -> Path:
    """Return the path of a script.

    Raises:
        InvalidInput: the path does not exist, is not a file, or is not readable.
    """
    path = Path(path)
    if path.is_dir():
        raise InvalidInput(f'"{path}" is a folder, not a script', help="name the Python file in it")
    if not path.exists():
        raise InvalidInput(f'there is no script "{path}"')
    if not path.is_file():
        raise InvalidInput(f'"{path}" is a pipe or a device, not a script', help="write the script to a file")
    if not os.access(path, os.R_OK):
        raise InvalidInput(f'script "{path}" can\'t be read: permission denied')
    return path


def require_order(command: str, cluster: str | Path, script: str | Path) -> None:
    """Check that the cluster comes before the script; neither names nor job files of clusters end with `.py`.

    Args:
        command: "submit" or "run".
        cluster: the command's first argument.
        script: the second one.

    Raises:
        InvalidInput: the cluster is a Python file.
    """
    if Path(cluster).suffix == ".py":
        raise InvalidInput(
            f'"{cluster}" is a Python file, and the cluster comes before the script',
            help=f"write `tfk8s {command} … {script} {cluster}`",
        )


def describe_use(status: ClusterStatus, *, changed: bool) -> str:
    """Return the line about a cluster that `run` has found, and what becomes of the cluster.

    Args:
        status: the cluster's.
        changed: whether `run` has changed the cluster.
    """
    state = "was updated to the job file" if changed else "already runs"
    rest = ", and the last `run` removes it" if status.limits.lease is not None else " and keeps it"
    return f'cluster "{status.name}" {state}: run uses it{rest}'


def run_here(backend: Backend, name: str, script: Script) -> int:
    """Run a script on this machine, with loopback ports that lead to the tasks; return its exit code.

    Raises:
        InvalidInput: scripts run here anyway, TensorFlow is missing, or a port is in use.
        ClusterError: this user may not connect to the tasks.
    """
    from tfk8s.backends import local_scripts

    foreground_scripts.check(script)
    if not backend.scripts.in_pods:
        raise InvalidInput("--here is for clusters on Kubernetes: for others, scripts run on this machine anyway")
    status = backend.observe(name)
    require_access(backend, name, status.master)
    with spans.part("run script") as part:
        outcome = local_scripts.run_forwarded(backend, status, script)
        part[spans.EXIT_CODE] = outcome.code
    if outcome.task_failed:
        for task in backend.observe(name).tasks:
            if task.reason:
                log.warning("%s: %s", task.task, task.reason)
    return outcome.code


def any_runs(backend: Backend, name: str, *, has_failed: bool) -> bool:
    """Return whether scripts still run in a cluster, and log that the cluster is kept for them.

    Args:
        has_failed: a script of this process has just failed. Its status may still say that it runs.
    """
    try:
        wait_for_ends(backend, name, TIMING.script_end_timeout if has_failed else 0.0)
    except WaitTimeout:
        down = f"tfk8s down{backend.flags} {name}"
        log.warning('cluster "%s" is kept because other scripts run in it; remove it: %s', name, down)
        return True
    except Tfk8sError:  # the cluster is gone, or its removal will report the error
        return False
    return False


def wait_for_ends(backend: Backend, name: str, timeout: float) -> None:
    """Wait until no script runs in a cluster.

    Raises:
        WaitTimeout: a script runs after the timeout.
        Tfk8sError: the backend can't observe the cluster.
    """

    def none_runs() -> bool:
        return all(script.phase is not ScriptPhase.RUNNING for script in backend.observe(name).scripts)

    polling.wait_until(none_runs, "scripts to end", timeout)
