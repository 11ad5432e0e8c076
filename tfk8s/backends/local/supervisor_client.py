"""The client of a local cluster's supervisor: starts it, and sends it requests."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence

from tfk8s import polling
from tfk8s.backends import suspended
from tfk8s.backends.local import state
from tfk8s.backends.local.record import Record
from tfk8s.backends.local.supervision import requests, suspended_file
from tfk8s.backends.local.supervision.supervisor_process import SupervisorProcess
from tfk8s.backends.own_folder import open_file, read_file
from tfk8s.core.output.reason import telling_line
from tfk8s.errors import ClusterError
from tfk8s.log import log
from tfk8s.sessions.forks.escalation import forwarded_signals
from tfk8s.sessions.forks.forked_scripts import END_TIMEOUT
from tfk8s.task import ipc

_ANSWER_TIMEOUT = 60.0  # a supervisor that loads TensorFlow from a slow disk answers late
_TO_RESPOND = "the supervisor of {} to respond"
_START_TIMEOUT = 10.0
_ERROR_LINES = 50
_REACTION_TIMEOUT = 10.0  # for the end of a script that got SIGKILL
_STOPPED_INTERVAL = 1.0  # between two polls for a stopped supervisor


class SupervisorGone(ClusterError):
    """The supervisor of a cluster has ended, and all tasks with it."""


def send_request(
    folder: state.Folder,
    request: requests.Request,
    timeout: float = _ANSWER_TIMEOUT,
    awaited: str = _TO_RESPOND,
) -> tuple[ipc.Message, list[int]]:
    """Return the supervisor's answer and its descriptors.

    Args:
        timeout: for the answer, in seconds.
        awaited: the condition of the answer, for users who wait; `{}` stands for the cluster.

    Raises:
        SupervisorGone: the supervisor has ended.
        ClusterError: the supervisor does not respond, or refuses the request.
    """
    try:
        with ipc.connect(folder.control, timeout) as connection:
            return _ask(folder, connection, request, timeout, awaited)
    except OSError as error:
        raise gone_error(folder) from error


def hold_lease(folder: state.Folder) -> socket.socket | None:
    """Return a connection that holds the lease of a cluster until its end; None if the cluster has no lease.

    Raises:
        SupervisorGone, ClusterError: as `send_request`.
    """
    with contextlib.ExitStack() as on_error:
        try:
            connection = on_error.enter_context(ipc.connect(folder.control, _ANSWER_TIMEOUT))
            answer, _ = _ask(folder, connection, requests.Hold(), _ANSWER_TIMEOUT, _TO_RESPOND)
        except OSError as error:
            raise gone_error(folder) from error
        if not answer.get("held"):
            return None
        on_error.pop_all()
    return connection


def _ask(
    folder: state.Folder, connection: socket.socket, request: requests.Request, timeout: float, awaited: str
) -> tuple[ipc.Message, list[int]]:
    ipc.send(connection, requests.to_message(request))
    deadline = time.monotonic() + timeout
    _wait_for_answer(folder, connection, lambda: deadline, awaited)
    answer = ipc.receive(connection)
    if answer is None:
        raise gone_error(folder)
    if "refused" in answer[0]:
        raise _misunderstood(folder, answer[0]["refused"])
    if "error" in answer[0] and not isinstance(request, requests.Dial):  # the caller knows what `Dial` was for
        raise ClusterError(f'cluster "{folder.path.name}": {answer[0]["error"]}')
    return answer


def _misunderstood(folder: state.Folder, reason: object) -> ClusterError:
    """Return the error for a supervisor that does not know a request, or whose answer this process does not know."""
    name = folder.path.name
    return ClusterError(
        f'this tfk8s and the supervisor of cluster "{name}" do not understand each other: {reason}',
        help=f"another version of tfk8s may have started it: tfk8s down --local {name}, then tfk8s up --local FILE",
    )


def _wait_for_answer(
    folder: state.Folder, connection: socket.socket, deadline: Callable[[], float], awaited: str = ""
) -> None:
    """Wait for a message of the supervisor, until a deadline that may change.

    Raises:
        ClusterError: the supervisor is stopped, or does not respond in time.
    """
    name, pid = folder.path.name, folder.supervisor()
    start = time.monotonic()
    was_stopped = is_announced = False
    while not polling.readable(connection.fileno(), _STOPPED_INTERVAL):
        is_stopped = pid is not None and state.is_stopped(pid)
        now = time.monotonic()
        if (is_stopped and was_stopped) or now > deadline():
            raise ClusterError(
                f'the supervisor of cluster "{name}" {"is stopped by a signal" if is_stopped else "does not respond"}',
                help=f"kill -CONT {pid} continues it; tfk8s down --local {name} removes the cluster",
            )
        was_stopped = is_stopped
        if awaited and not is_announced and now - start > polling.TELL_SECONDS:
            is_announced = True
            log.warning("waiting for %s", awaited.format(f'cluster "{name}"'))


def gone_error(folder: state.Folder) -> SupervisorGone:
    """Return the error for a cluster whose supervisor has ended."""
    name = folder.path.name
    if suspension := suspended_file.read(folder):
        return SupervisorGone(suspended.why_unusable(name, suspension), help=f"tfk8s resume --local {name}")
    ended = suspended_file.end(folder)
    if reason := ended.reason if ended else folder.end():
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
        return telling_line(read_file(folder.supervisor_log).decode(errors="replace").splitlines()[-_ERROR_LINES:])
    except OSError:
        return ""


def _begin(process: SupervisorProcess, folder: state.Folder, log: int) -> tuple[socket.socket, bytes | None]:
    """Have a process supervise a cluster.

    Returns:
        The connection to the process; and its answer: "" if the process has ended, None without an answer in time.
    """
    own = process.supervise(folder.path, log)
    if not polling.readable(own.fileno(), _START_TIMEOUT):
        return own, None
    with contextlib.suppress(ConnectionResetError):  # the process has ended before it could read its orders
        return own, own.recv(4096)
    return own, b""


def start(folder: state.Folder, record: Record, process: SupervisorProcess) -> socket.socket | None:
    """Have a process supervise a cluster, and return when the supervisor listens.

    Args:
        folder: the cluster's folder, which exists.
        record: the cluster's record.
        process: a process that waits, with the record's id.

    Returns:
        The connection that holds the cluster's lease; None without a lease.

    Raises:
        ClusterError: the supervisor can't start.
    """
    log_file = open_file(folder.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with open(log_file, "ab") as log:
        own, text = _begin(process, folder, log.fileno())
        if text == b"":  # it was killed, waited too long, or is broken: then the log gets the reason of another process
            own.close()
            process.reap()
            process = SupervisorProcess(record.id, log.fileno())
            own, text = _begin(process, folder, log.fileno())
    process.reap()
    if text:
        answer = json.loads(text)
    elif text is None:
        answer = {"error": f"no response in {_START_TIMEOUT:g} s"}
    else:
        answer = {"error": _error_line(folder) or "its supervisor has ended"}
    if record.is_leased and "error" not in answer:
        return own
    own.close()
    if "error" in answer:
        raise ClusterError(f'cluster "{record.name}" can\'t start: {answer["error"]}', help=answer.get("help"))
    return None


def run(
    folder: state.Folder, request: requests.RunScript, descriptors: Sequence[int], grace: float = 0.0
) -> ipc.Message:
    """Run a script with descriptors of this process; return the supervisor's answers until its end.

    The first SIGINT or SIGTERM goes to the script as it is, the second as SIGTERM, the third as SIGKILL. The supervisor
    ends a script some time after SIGTERM; a supervisor that does not gets no more time.

    Args:
        request: the request `run`.
        descriptors: become the script's descriptors 0, 1, 2, ….
        grace: the seconds that the script has after SIGTERM, if the job file says so.

    Raises:
        SupervisorGone: the supervisor has ended, and nobody asked for that.
        ClusterError: the supervisor is stopped, or does not end the script after SIGTERM.
    """
    answers: ipc.Message = {}
    deadline = math.inf
    try:
        connection = ipc.connect(folder.control, _ANSWER_TIMEOUT)
    except OSError as error:
        raise gone_error(folder) from error

    def send(number: int) -> bool:
        nonlocal deadline
        if number != signal.SIGINT:
            deadline = time.monotonic() + max(END_TIMEOUT, grace) + _REACTION_TIMEOUT
        with contextlib.suppress(OSError):  # the script has ended
            ipc.send(connection, {"signal": number})
        return True

    with connection, forwarded_signals(send):
        connection.settimeout(None)
        try:
            ipc.send(connection, requests.to_message(request), descriptors)
            while answers.keys() <= {"cluster"}:
                _wait_for_answer(folder, connection, lambda: deadline)
                if (received := ipc.receive(connection)) is None:
                    break
                answers |= received[0]
        except OSError:
            pass
    if not answers:
        raise gone_error(folder)
    if "refused" in answers:
        raise _misunderstood(folder, answers["refused"])
    return answers


def observe(folder: state.Folder) -> requests.Snapshot:
    """Return the supervisor's view of the cluster at one moment.

    Raises:
        SupervisorGone, ClusterError: as `send_request`.
    """
    answer = send_request(folder, requests.Observe())[0]
    try:
        return requests.parse_snapshot(answer)
    except requests.BadRequest as error:
        raise _misunderstood(folder, error) from error
