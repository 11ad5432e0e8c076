"""Process 1 of a program's pod: it runs the program, and runs it again in place after a failure that allows this.

A new pod takes ten seconds and more, because the Job controller waits before it creates one. Process 1 starts the
program again at once, in the same pod, with the same address and the same files. It kills a program that is stopped:
the other tasks see no heartbeats from the program, and have ended. With `restart_scope` in the job file, the programs
of other pods run again together with this one: see `restart_coordinator`.

A script runs in a fork of this process, where `TF_CONFIG` may have any size. The kernel limits each variable of a
command to 128 KiB (MAX_ARG_STRLEN, execve(2)). Standard library only: this file runs in pods.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tfk8s.core import naming
from tfk8s.core.backoff import Backoff
from tfk8s.core.cluster_spec import cluster_spec, tf_config
from tfk8s.core.programs import (
    MAX_STOPPED,
    Program,
    RunPolicy,
    end_message,
    exit_code,
    expand,
    grace,
    may_save,
    parse_restart_word,
)
from tfk8s.task import process_end
from tfk8s.task.config import derive_cluster, lists
from tfk8s.task.programs import archive, command, runner, seen_gpus
from tfk8s.task.programs.restarts import linked_restarts
from tfk8s.task.programs.restarts.linked_restarts import LinkedRestarts
from tfk8s.task.programs.restarts.restart_coordinator import ASKED, ENDED, FAILED, START, STOP, STOPPED
from tfk8s.task.programs.unreachable import LOOK_INTERVAL, Unanswered
from tfk8s.task.stream import left_files

_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, linked_restarts.SIGNAL)
_GROUP_INTERVAL = 0.05

# The codes of a container that Kubernetes ends: SIGKILL and SIGTERM. The Job controller makes another pod after them.
ENDED_BY_KUBERNETES = (128 + signal.SIGKILL, 128 + signal.SIGTERM)


def container_code(code: int) -> int:
    """Return the exit code of process 1 for the last exit code of the program.

    Kubernetes would take a program that was killed for a pod that was deleted, and make another pod.
    """
    return 1 if code in ENDED_BY_KUBERNETES else code


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which a program finds its cluster, from the variables of its pod."""
    cluster = lists(derive_cluster(environment))
    job, index = environment["TFK8S_JOB"], int(environment["TFK8S_INDEX"])
    return {"TF_CONFIG": tf_config(cluster, job, index), "TFK8S_CLUSTER": cluster_spec(cluster)}


class ProgramRuns:
    """Runs a program until its last end. The signals of `_SIGNALS` must be blocked.

    SIGTERM ends the program and this process, as for a deleted pod. SIGHUP runs the program again. Both send SIGTERM to
    the processes of the program, and SIGKILL after the time that the job file's `grace` gives them.

    Args:
        name: the task's name, for messages.
        words: the program.
        policy: the restarts.
        environment: variables for the program, besides those of this process.
        unanswered: the servers that do not answer, which get a line each.
        note: takes whether the program runs, at its starts and its ends.
        link: to the programs that run again together with this one.
    """

    def __init__(
        self, name: str, words: Sequence[str], policy: RunPolicy, environment: Mapping[str, str],
        unanswered: Unanswered, note: Callable[[bool], None], link: LinkedRestarts,
    ) -> None:  # fmt: skip
        self._name, self._words, self._policy, self._environment = name, words, policy, environment
        self._unanswered, self._note, self._link = unanswered, note, link
        self.terminated = False
        self._child = 0
        self._wanted_again = self._is_stopped = False
        self._backoff, self._started = Backoff(), 0.0
        self._kill_at: float | None = None

    def run(self) -> int:
        """Run the program; return the exit code of its last run."""
        while True:
            code = self._run_once()
            if self.terminated:
                return code
            kind = self._kind_of_end(code)
            self._link.tell(kind, code)
            if kind == ENDED or not self._wait_for_start(kind, code):
                return code

    def _kind_of_end(self, code: int) -> str:
        if self._wanted_again:
            return ASKED
        if self._is_stopped:
            return STOPPED
        return FAILED if self._policy.restarts_after(code, self._link.restarts) else ENDED

    def _wait_for_start(self, kind: str, code: int) -> bool:
        """Wait until the program may run again; return False if SIGTERM ended the wait."""
        if kind == FAILED and not self._link.is_alone:
            _say(f"{self._name} ended with exit code {code}, and waits for the others")
        while not self._link.is_alone:
            number = signal.sigtimedwait(_SIGNALS, LOOK_INTERVAL)
            if number and number.si_signo == signal.SIGTERM:
                self.terminated = True
                return False
            self._reap()
            order = self._link.take_order()
            while order and order.kind != START:
                order = self._link.take_order()
            if order and order.reason:
                _say(f"{self._name} runs again: {order.reason}")
                return True
            if order:  # which counts the restart
                return self._pause_alone(kind, code)
        self._link.restarts += kind == FAILED
        return self._pause_alone(kind, code)

    def _pause_alone(self, kind: str, code: int) -> bool:
        """Wait before a restart that no other program takes part in; return False if SIGTERM ended the wait."""
        if kind != FAILED:
            _say(f"{self._name} is restarted")
            return True
        _say(
            f"{self._name} ended with exit code {code} and runs again, restart {self._link.restarts} of "
            f"{self._policy.max_restarts}"
        )
        return not self._pause(self._backoff.pause(time.monotonic() - self._started))

    def _run_once(self) -> int:
        """Start the program, and return its exit code when it has ended."""
        self._wanted_again = self._is_stopped = False
        self._kill_at, self._started = None, time.monotonic()
        self._note(True)
        self._child = os.fork()
        if not self._child:
            _become(self._words, self._environment)
        while True:
            number = signal.sigtimedwait(_SIGNALS, self._wait())
            self._take(number.si_signo if number else 0)  # even if the program has ended: it is not to run again
            if (code := self._reap()) is not None:
                self._end_group()
                self._note(False)
                return code
            for line in self._unanswered.look():
                _say(line)
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                os.kill(self._child, signal.SIGKILL)

    def _end_group(self) -> None:
        """Kill what the program left behind, unless that may save."""
        with contextlib.suppress(ProcessLookupError):  # the group has ended
            while may_save(self._is_ending, self._kill_at, time.monotonic()):
                os.killpg(self._child, 0)
                signal.sigtimedwait((signal.SIGCHLD,), _GROUP_INTERVAL)
                self._reap()
            os.killpg(self._child, signal.SIGKILL)

    @property
    def _is_ending(self) -> bool:
        return self.terminated or self._wanted_again or self._is_stopped

    def _wait(self) -> float:
        """Return the seconds until the next check."""
        return LOOK_INTERVAL if self._kill_at is None else max(0.01, self._kill_at - time.monotonic())

    def _take(self, number: int) -> None:
        """Act on a signal of this process."""
        if number == signal.SIGTERM:
            self.terminated = True
        elif number == signal.SIGHUP:
            self._wanted_again = True
        elif (order := self._link.take_order()) and order.kind == STOP:
            self._is_stopped = True
            _say(f"{self._name} is stopped: {order.reason}")
        else:
            return
        try:
            os.killpg(self._child, signal.SIGTERM)  # a shell does not pass the signal on
        except ProcessLookupError:  # the child has no group of its own yet
            os.kill(self._child, signal.SIGTERM)
        end = time.monotonic() + grace(os.environ)
        self._kill_at = end if self._kill_at is None else min(end, self._kill_at)

    def _reap(self) -> int | None:
        """Take the ends and stops of all children; return the program's exit code, or None before its end."""
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return None
            if not child:
                return None
            if child != self._child:
                continue  # an orphan of the program
            if os.WIFSTOPPED(status) and not self._is_ending:
                _say(f"{self._name} is stopped; it is killed unless it continues within {MAX_STOPPED:g} s")
                self._kill_at = time.monotonic() + MAX_STOPPED
            elif os.WIFCONTINUED(status) and not self._is_ending:
                self._kill_at = None
            elif os.WIFEXITED(status) or os.WIFSIGNALED(status):
                return exit_code(os.waitstatus_to_exitcode(status))

    def _pause(self, seconds: float) -> bool:
        """Wait before a restart; return whether SIGTERM ended the wait."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            number = signal.sigtimedwait((signal.SIGTERM, signal.SIGHUP), left)
            if number is not None:
                self.terminated = number.si_signo == signal.SIGTERM
                return self.terminated
        return False


def _become(words: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Become the program, in a child of this process."""
    os.setsid()  # a group of processes, which ends together
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    os.environ.update(environment)
    program = Program(tuple(words))
    if program.is_script:
        process_end.exit_process(runner.main(words))
    if program.python_arguments:
        words = command.through_runner(program)
    elif "TFK8S_GPUS" in os.environ:
        words = (sys.executable, "-P", "-m", seen_gpus.__name__, *words)
    command.become(words)


def _forget(_runs: bool) -> None:
    """Note nothing: nobody reads metrics."""


def _say(text: str) -> None:
    print(f"tfk8s: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run a program.

    Args:
        arguments: the ends after which the program runs again, the greatest number of restarts, the coordinator of
            restarts as of `linked_restarts.start`, and the program.
    """
    restart_on, max_restarts, coordinator, *words = arguments
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    environment = os.environ
    if path := environment.get("TFK8S_ARCHIVE"):
        archive.unpack(Path(path))
    name = naming.task(environment["TFK8S_JOB"], int(environment["TFK8S_INDEX"]))
    policy = RunPolicy(restart_on=parse_restart_word(restart_on), max_restarts=int(max_restarts))
    ports = {
        naming.task(job, index): int(address.rpartition(":")[2])
        for job, addresses in derive_cluster(environment).items()
        for index, address in addresses.items()
    }
    unanswered = Unanswered(set(ports.values()))
    own, note = variables(environment), _forget
    if "TFK8S_METRICS_PORT" in environment:
        notes = importlib.import_module("tfk8s.features.metrics.pod").start(ports[name], "program")
        own["TFK8S_PROGRESS"], note = str(notes.progress), notes.write
    files = left_files.start(environment)
    link = linked_restarts.start(name, coordinator, [restart_on, max_restarts], environment)
    runs = ProgramRuns(name, expand(words, {**environment, **own}), policy, own, unanswered, note, link)
    code = runs.run()
    if runs.terminated:
        return 128 + signal.SIGTERM
    if path := environment.get("TFK8S_VERDICT"):
        with contextlib.suppress(OSError):
            Path(path).write_text(end_message(code, link.restarts))
    files.send(code, _SIGNALS)
    return container_code(code)


if __name__ == "__main__":
    process_end.end(main(sys.argv[1:]))
