"""The client of a local cluster's supervisor: starts it, and sends it requests."""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfk8s import polling
from tfk8s.backends import interpreter
from tfk8s.backends.local import state
from tfk8s.backends.local.record import CLUSTER_ID_VARIABLE, Record
from tfk8s.core.environment import script_environment, without_proxy
from tfk8s.core.output.reason import telling_line
from tfk8s.core.script import Script
from tfk8s.errors import ClusterError, InvalidInput
from tfk8s.log import log
from tfk8s.sessions.forks import ipc, processes
from tfk8s.sessions.forks.escalation import forwarded_signals

_ANSWER_TIMEOUT = 60.0  # a supervisor that loads TensorFlow from a slow disk answers late
_START_TIMEOUT = 10.0
_ERROR_LINES = 50
_STOPPED_INTERVAL = 1.0  # between two polls for a stopped supervisor


class SupervisorGone(ClusterError):
    """The supervisor of a cluster has ended, and all tasks with it."""


def send_request(
    folder: state.Folder,
    request: ipc.Message,
    timeout: float = _ANSWER_TIMEOUT,
    awaited: str = "the supervisor of {} to respond",
) -> tuple[ipc.Message, list[int]]:
    """Return the supervisor's answer and its descriptors.

    Args:
        folder: the cluster's folder.
        request: the request, as `supervisor` describes it.
        timeout: for the answer, in seconds.
        awaited: the condition of the answer, for users who wait; `{}` stands for the cluster.

    Raises:
        SupervisorGone: the supervisor has ended.
        ClusterError: the supervisor does not respond.
    """
    try:
        with ipc.connect(folder.control, timeout) as connection:
            ipc.send(connection, request)
            _wait_for_answer(folder, connection, timeout, awaited)
            answer = ipc.receive(connection)
    except OSError as error:
        raise gone_error(folder) from error
    if answer is None:
        raise gone_error(folder)
    return answer


def _wait_for_answer(folder: state.Folder, connection: socket.socket, seconds: float, awaited: str = "") -> None:
    """Wait for a message of the supervisor.

    Raises:
        ClusterError: the supervisor is stopped, or does not respond in time.
    """
    name, pid = folder.path.name, folder.supervisor()
    start = time.monotonic()
    was_stopped = is_announced = False
    while not polling.readable(connection.fileno(), _STOPPED_INTERVAL):
        is_stopped = pid is not None and state.is_stopped(pid)
        waited = time.monotonic() - start
        if (is_stopped and was_stopped) or waited > seconds:
            raise ClusterError(
                f'the supervisor of cluster "{name}" {"is stopped by a signal" if is_stopped else "does not respond"}',
                help=f"kill -CONT {pid} continues it; tfk8s down --local {name} removes the cluster",
            )
        was_stopped = is_stopped
        if awaited and not is_announced and waited > polling.TELL_SECONDS:
            is_announced = True
            log.warning("waiting for %s", awaited.format(f'cluster "{name}"'))


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


def gone_error(folder: state.Folder) -> SupervisorGone:
    """Return the error for a cluster whose supervisor has ended."""
    name = folder.path.name
    if reason := folder.end():
        return SupervisorGone(
            f'cluster "{name}" has ended {reason}',
            help=f"tfk8s up --local FILE starts it again, tfk8s down --local {name} removes its logs",
        )
    return SupervisorGone(
        f'cluster "{name}" has ended: its supervisor is gone, and all tasks with it',
        help=f"tfk8s up --local FILE starts it again, tfk8s down --local {name} removes what is left; "
        f"{folder.supervisor_log} may say why",
    )


def _error_line(folder: state.Folder) -> str:
    """Return the line of the supervisor's log that says why the supervisor ended."""
    try:
        return telling_line(folder.supervisor_log.read_text(errors="replace").splitlines()[-_ERROR_LINES:])
    except OSError:
        return ""


def start(folder: state.Folder, record: Record) -> None:
    """Start the supervisor of a cluster, and return when it listens.

    Args:
        folder: the cluster's folder, which exists.
        record: the cluster's record.

    Raises:
        ClusterError: the supervisor can't start.
    """
    reader, ready = os.pipe()
    environment = {**os.environ, **without_proxy(os.environ), CLUSTER_ID_VARIABLE: record.id}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    with folder.supervisor_log.open("ab") as log:
        command = interpreter.command(sys.executable, "tfk8s.backends.local.supervise", str(folder.path), str(ready))
        process = subprocess.Popen(  # in a session of its own, so that Ctrl-C at a terminal reaches this command alone
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=[ready],
            start_new_session=True,
        )  # fmt: skip
    os.close(ready)
    with open(reader, "rb") as pipe:
        in_time = polling.readable(pipe.fileno(), _START_TIMEOUT)
        text = os.read(pipe.fileno(), 4096) if in_time else b""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)  # the supervisor is a child of this process
    silence = _error_line(folder) if in_time else f"no response in {_START_TIMEOUT:g} s"
    answer = json.loads(text) if text else {"error": silence}
    if "error" in answer:
        raise ClusterError(f'cluster "{record.name}" can\'t start: {answer["error"]}', help=answer.get("help"))


def run(folder: state.Folder, request: ipc.Message, descriptors: Sequence[int]) -> ipc.Message:
    """Run a script with descriptors of this process; return the supervisor's answers until its end.

    The first SIGINT or SIGTERM goes to the script as it is, the second as SIGTERM, the third as SIGKILL.

    Args:
        folder: the cluster's folder.
        request: the request `run`.
        descriptors: become the script's descriptors 0, 1, 2, ….

    Raises:
        SupervisorGone: the supervisor has ended, and nobody asked for that.
        ClusterError: the supervisor is stopped.
    """
    answers: ipc.Message = {}
    try:
        connection = ipc.connect(folder.control, _ANSWER_TIMEOUT)
    except OSError as error:
        raise gone_error(folder) from error

    def send(number: int) -> bool:
        with contextlib.suppress(OSError):  # the script has ended
            ipc.send(connection, {"signal": number})
        return True

    with connection, forwarded_signals(send):
        connection.settimeout(None)
        try:
            ipc.send(connection, request, descriptors)
            while answers.keys() <= {"cluster"}:
                _wait_for_answer(folder, connection, math.inf)
                if (received := ipc.receive(connection)) is None:
                    break
                answers |= received[0]
        except OSError:
            pass
    if not answers:
        raise gone_error(folder)
    return answers


def observe(folder: state.Folder) -> dict[str, Any]:
    """Return the supervisor's data on its tasks and scripts."""
    return send_request(folder, {"do": "observe"})[0]


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise InvalidInput("the current folder does not exist any more", help="cd to one that does") from error


def script_request(
    folder: state.Folder, record: Record, script: Script, more: Mapping[str, str], python: str | None = None
) -> ipc.Message:
    """Return the request that runs a script.

    Args:
        folder: the cluster's folder.
        record: the cluster.
        script: the script.
        more: more variables for the script.
        python: the interpreter that the user names for the script.
    """
    base = {**os.environ, **script_variables(folder, record)}
    without = [*filter(None, script.environment.get("TFK8S_WITHOUT", "").split(",")), *record.programs]
    progress = folder.progress(f"script.{secrets.token_hex(4)}")  # the name of no task
    more = {CLUSTER_ID_VARIABLE: record.id, "TFK8S_PROGRESS": str(progress), **more}
    more |= {"TFK8S_WITHOUT": ",".join(without)} if without else {}
    return {
        "do": "run", "fresh": script.fresh, "python": record.script_python(python),
        "folder": _current_folder(), "umask": processes.umask(), "arguments": script.runner_arguments(),
        "progress": str(progress),
        "environment": script_environment(script, record.cluster, record.target, base, more),
    }  # fmt: skip
