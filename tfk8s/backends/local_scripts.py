"""Session scripts that run on this machine, for clusters that run elsewhere."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from tfk8s import platforms
from tfk8s.backends import downloads, foreground_scripts
from tfk8s.backends.elastic_forward import forward_to_task
from tfk8s.backends.protocol import Backend
from tfk8s.core.addresses import host_and_port, loopback_ports
from tfk8s.core.environment import DATA_SERVICE, script_environment
from tfk8s.core.script import Outcome, Script
from tfk8s.core.spec import ClusterSpec, Task
from tfk8s.core.status import ClusterStatus
from tfk8s.errors import InvalidInput
from tfk8s.log import log
from tfk8s.sessions.forward import Forward
from tfk8s.sessions.task_monitor import TaskMonitor
from tfk8s.sessions.timing import FAR

MAX_TASKS = 256  # each task needs a port here, and a connection


def run(
    script: Script, cluster: ClusterSpec, target: str, monitor: TaskMonitor, variables: Mapping[str, str],
    *, forwards: Mapping[str, str] | None = None,
) -> Outcome:  # fmt: skip
    """Run a script with this process' standard streams and signals.

    Args:
        cluster: the ClusterSpec for its sessions.
        target: the master, "grpc://host:port".
        monitor: the monitor of the tasks. The runner ends the script if it waits for a lost task.
        variables: the variables of the cluster's master, which override those of this process.
        forwards: if the tasks have these addresses on this machine only, the forwards to those of tf.data's service,
            by the addresses there.

    Returns:
        The end of the script.

    Raises:
        InvalidInput: this machine has no TensorFlow, or Windows.
    """
    platforms.require_pipes("scripts on this machine")
    from tfk8s.backends import interpreter

    python = interpreter.script_python(os.environ)
    interpreter.require_tensorflow(python)
    with monitor, foreground_scripts.FailureFile(script) as failure_file:
        arguments = [f"--events={monitor.events}", *script.runner_arguments()]
        command = interpreter.command(python, "tfk8s.sessions.runner", *arguments)
        environment = script_environment(
            script, cluster, target, {**os.environ, **variables}, failure_file.environment(), forwards=forwards
        )
        outcome = failure_file.outcome(run_program(command, environment, [monitor.events, *failure_file.descriptors]))
    return downloads.copy_here(script.downloads, outcome)


def run_forwarded(backend: Backend, status: ClusterStatus, script: Script) -> Outcome:
    """Run a script with each task at its loopback address on a single machine.

    Returns:
        The end of the script.

    Raises:
        InvalidInput: another program uses a port of a task, or this machine has no TensorFlow, or Windows.
    """
    platforms.require_pipes("scripts on this machine", "leave out --here to run the script beside the tasks")
    if len(status.tasks) > MAX_TASKS:
        raise InvalidInput(
            f'"{status.name}" has {len(status.tasks)} tasks; --here is for at most {MAX_TASKS}',
            help="leave out --here to run the script beside the tasks",
        )
    ports = loopback_ports({task.task: host_and_port(task.address)[1] for task in status.tasks})
    seen = {str(task.task): task.task for task in status.tasks if task.takes_part}
    cluster: dict[str, list[str]] = {}
    for task in seen.values():
        cluster.setdefault(task.job, []).append(f"localhost:{ports[task]}")
    dials = {task: functools.partial(backend.dial, status.name, task) for task in ports}
    if DATA_SERVICE in status.variables:
        log.warning("with --here, only datasets on the tasks can use tf.data's service; others wait until Ctrl-C")
    with contextlib.ExitStack() as stack:
        observer = stack.enter_context(backend.observer(status.name))
        for task, port in ports.items():
            stack.enter_context(_forward(backend, status, task, port))
        target = f"grpc://localhost:{ports[status.master]}"
        monitored = {name: dials[task] for name, task in seen.items()}
        monitor = TaskMonitor(monitored, lambda name, symptom: observer.why_lost(seen[name], symptom), FAR)
        data = {task.address: f"localhost:{ports[task.task]}" for task in status.tasks if task.is_data}
        return run(script, cluster, target, monitor, status.variables, forwards=data)


@contextlib.contextmanager
def _forward(backend: Backend, status: ClusterStatus, task: Task, port: int) -> Iterator[Forward]:
    try:
        forward = forward_to_task(backend, status, lambda text: log.warning("%s: %s", task, text), task, port)
    except InvalidInput as error:
        raise InvalidInput(
            f"{error}: with --here, {task} is at localhost:{port}, its address on a single machine",
            help=f"end the program that listens there (`ss -ltnp 'sport = :{port}'` shows it), or leave out --here",
        ) from error
    with forward:
        yield forward


def run_program(
    command: Sequence[str],
    environment: Mapping[str, str],
    descriptors: Sequence[int] = (),
    prepare: Callable[[], object] | None = None,
) -> int:
    """Run a program with this process' standard streams and signals; return its code, as in `subprocess`.

    Args:
        command: the program and its arguments.
        environment: its whole environment.
        descriptors: other open files for it.
        prepare: called in the new process before the program starts.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals that came before `process` was known

    def forward(number: int, _: object) -> None:
        if number == signal.SIGINT and _in_foreground():  # the terminal sends Ctrl-C to all its processes
            return
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process = subprocess.Popen(command, env=environment, pass_fds=descriptors, preexec_fn=prepare)
        for number in early:
            process.send_signal(number)
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ else 0) == os.getpgrp()
    except (OSError, ValueError):  # no terminal
        return False
