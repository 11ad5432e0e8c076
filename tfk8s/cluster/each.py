"""Runs a script once for each task of a job, at the same time.

A process for each script calls `Backend.run`, which gives the script the standard streams of its process and takes
signals in its main thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from tfk8s import platforms, polling
from tfk8s.backends import interpreter
from tfk8s.backends.protocol import Backend
from tfk8s.backends.select import choose
from tfk8s.cluster.scripts import require_servers, wait_for_ends
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.task_names import require_job
from tfk8s.errors import InvalidInput, Tfk8sError, WaitTimeout
from tfk8s.log import log
from tfk8s.sessions.timing import TIMING, end_timeout

_REACTION_TIMEOUT = 10.0  # for the process of a script that has ended, or got SIGKILL
_POLL_INTERVAL = 0.5  # a process may end while its children hold its output open
_SIGNALS = platforms.ENDING_SIGNALS

OnLine = Callable[[Task, str, bool], None]  # a task, a line of its script, and whether it is an error line


def tasks_of(job_file: JobFile, job: str) -> list[Task]:
    """Return the tasks of a job, so that a script can run for each of them.

    Raises:
        InvalidInput: the job does not exist or has no servers, the job file gives the servers' addresses, or this
            system is not Linux.
    """
    platforms.require_linux("the processes of --each")
    require_job(job, [job.name for job in job_file.jobs])
    if job_file.has_addresses:
        raise InvalidInput(
            "--each needs a cluster that tfk8s has started: this job file gives the servers' addresses",
            help="start the script once for each task: tfk8s submit FILE SCRIPT",
        )
    require_servers(job_file)
    servers = [job.name for job in job_file.jobs if job.has_server]
    if job not in servers:
        raise InvalidInput(f'job "{job}" has no servers for scripts', help=f"jobs with servers: {', '.join(servers)}")
    return list(job_file.job(job))


def run_each(
    backend: Backend, name: str, tasks: Sequence[Task], script: Script, on_line: OnLine, grace: int | None = None
) -> int:
    """Run a script once for each task; return 0, or the exit code of the first failure, which ends the others.

    Args:
        backend: the cluster's backend.
        name: the cluster's name.
        tasks: the tasks.
        script: the script.
        on_line: called with each line.
        grace: the job file's.
    """
    options = backend.locator(name)
    module = interpreter.command(sys.executable, "tfk8s.cluster.each", str(os.getpid()))
    work = {task: pickle.dumps((options, name, script_of(task, script))).hex() for task in tasks}
    limit = end_timeout(grace) + _REACTION_TIMEOUT
    code = run_together({task: [*module, text] for task, text in work.items()}, on_line, limit)
    if code:  # the status may still say that a script runs
        with contextlib.suppress(Tfk8sError):
            wait_for_ends(backend, name, TIMING.script_end_timeout)
    return code


def script_of(task: Task, script: Script) -> Script:
    """Return the script of a task, which has the variables `TFK8S_JOB` and `TFK8S_INDEX`.

    They replace `$(TFK8S_JOB)` and `$(TFK8S_INDEX)` in the arguments, as Kubernetes does in those of containers.
    """
    values = {"TFK8S_JOB": task.job, "TFK8S_INDEX": str(task.index)}
    arguments = (
        re.sub(r"\$\((TFK8S_JOB|TFK8S_INDEX)\)", lambda match: values[match[1]], text) for text in script.arguments
    )
    return dataclasses.replace(script, arguments=tuple(arguments), environment={**script.environment, **values})


def run_together(commands: Mapping[Task, Sequence[str]], on_line: OnLine, limit: float) -> int:
    """Run commands at the same time; return 0, or the exit code of the first failure.

    The first failure ends the other commands by SIGTERM, Ctrl-C ends all by SIGINT; both after `limit` by
    SIGKILL. Commands start with these signals blocked, because an import may drop the exception of a signal.

    Args:
        commands: the commands by their tasks.
        on_line: called with each line of their output.
        limit: the seconds between the signal to end and SIGKILL.
    """
    running: list[_Process] = []
    try:
        for task, command in commands.items():
            running.append(_Process(task, command, on_line))
        failed = _first_failure(running)
    except BaseException as error:
        _end(running, signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM, limit)
        raise
    if failed is None:
        return 0
    if running:
        log.warning("the script of %s has ended with exit code %d, which ends the others", failed.task, failed.code)
        _end(running, signal.SIGTERM, limit)
    return failed.code


def _first_failure(running: list[_Process]) -> _Process | None:
    """Pass on output until a process fails, or all have ended. Processes that have ended leave the list."""
    while running:
        polling.ready([stream.fileno() for process in running for stream in process.streams], _POLL_INTERVAL)
        for process in [process for process in running if process.has_ended()]:
            running.remove(process)
            if process.code:
                return process
    return None


def _end(running: list[_Process], number: signal.Signals, limit: float) -> None:
    """End processes by a signal, later by SIGKILL, and pass on their last output."""

    def have_ended() -> bool:
        for process in [process for process in running if process.has_ended()]:  # each passes on its output
            running.remove(process)
        return not running

    for process in running:
        process.popen.send_signal(number)

    def awaited() -> str:
        return f"the scripts of {', '.join(str(process.task) for process in running)} to end, at most {limit:g} s"

    try:
        polling.wait_until(have_ended, awaited, limit, announce=True)
    except WaitTimeout:
        for process in running:
            process.popen.kill()
            process.popen.wait()
            process.has_ended()


class _Process:
    """The process of a task's script.

    Attributes:
        task: the task.
        popen: the process.
        streams: its open streams, each with the line that has no end yet.
    """

    def __init__(self, task: Task, command: Sequence[str], on_line: OnLine) -> None:
        self.task, self._on_line = task, on_line
        from tfk8s.sessions.forks import processes  # for Linux alone

        with processes.signals_blocked():
            # Each process leads another process session, which Ctrl-C of this terminal does not reach.
            self.popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        self.streams: dict[IO[bytes], bytes] = {}
        for stream in filter(None, (self.popen.stdout, self.popen.stderr)):
            os.set_blocking(stream.fileno(), False)
            self.streams[stream] = b""

    @property
    def code(self) -> int:
        """The exit code of a process that has ended, 128 + N for signal N."""
        code = self.popen.returncode
        return code if code >= 0 else 128 - code

    def has_ended(self) -> bool:
        """Pass on what the process has written; return whether it has ended."""
        has_ended = self.popen.poll() is not None
        for stream in list(self.streams):
            self._pass_on(stream, is_last=has_ended)
        return has_ended

    def _pass_on(self, stream: IO[bytes], *, is_last: bool) -> None:
        block = stream.read()  # all that there is; None if there is nothing yet
        *lines, rest = (self.streams[stream] + (block or b"")).split(b"\n")
        self.streams[stream] = rest
        is_closed = is_last or block == b""
        lines += [rest] if is_closed and rest else []
        try:
            for line in lines:
                self._on_line(self.task, line.decode(errors="replace"), stream is self.popen.stderr)
        except OSError:  # the user's terminal is gone: the script can't write any more either
            is_closed = True
        if is_closed:
            del self.streams[stream]
            stream.close()


def main(parent: str, work: str) -> int:
    """Run a script to its end; return its exit code. On this machine, the script ends with the parent."""
    from tfk8s.sessions.forks import processes  # Linux only

    processes.die_with_parent(int(parent))
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        options, name, script = pickle.loads(bytes.fromhex(work))  # noqa: S301 - of `run_each`
        backend = choose(options)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return backend.scripts.run(name, script).code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Tfk8sError as error:
        sys.stderr.write(f"error: {error}\n" + (f"  = help: {error.help}\n" if error.help else ""))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
