"""Programs, which tasks run to their end, and the rules of a run.

A task of a job with `program` runs this program instead of a TensorFlow server. The program finds the cluster in
`TF_CONFIG`. The meaning of exit codes is that of `restartPolicy: ExitCode` of Kubeflow's TFJob: a program that ends
with 128 or more is run again, as signals end programs so; another code except 0 is the program's own failure. There is
one more code for a program that has saved and wants to run again, `SAVED`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from tfk8s.core import naming
from tfk8s.core.backoff import Backoff
from tfk8s.core.job_file.keys import key

EXIT_CODE, FAILURE, NEVER = RESTART_ON = "exit-code", "failure", "never"
TASK, JOB, CLUSTER = RESTART_SCOPES = "task", "job", "cluster"

FIRST_RETRYABLE = 128
NO_COORDINATOR = "-"  # the word of a program in a pod that runs again alone: see `task/programs/restarts/`
# TensorFlow's PreemptionCheckpointHandler ends a program so after SIGTERM, and on Google Cloud with 143
# (BorgTerminationConfig and gce_exit_fn in tensorflow/python/distribute/failure_handling/).
SAVED = 42
WANTS_RESTART = f"exited with {SAVED}, to run again"  # the reason of such an end
PEER_LOST = 138  # a program ends so if another task was lost; 128 + SIGUSR1 is TFJob's code for programs' own retries
INTERRUPTED = 130  # by Ctrl-C, as a shell shows it
NO_GPUS = 2  # a program does not begin, because TensorFlow does not see the GPUs of its task
LOST_TASK = "another task was lost"  # the reason of such an end
TIMED_OUT = 124
END_TIMEOUT = 2.0  # between SIGTERM and SIGKILL for a program that has to end, without `grace`
# A program that a signal has stopped for longer is killed: TensorFlow's coordination service gives up a silent task
# after as many seconds, so that the others have ended by then.
MAX_STOPPED = 10.0
_SUFFIX = ".py"
_PYTHON = re.compile(r"(.*/)?python(3(\.[0-9]+)?)?")
_FLAG, _FLAGS_WITH_VALUE = re.compile(r"-([bBOqsuv]+|[WX].*)"), ("-W", "-X")  # of Python, which may still run tfk8s
_REFERENCE = re.compile(r"\$\((TFK8S_JOB|TFK8S_INDEX|TFK8S_HOSTS:(\w+))\)")
_END = re.compile(r"exit code (\d+), restarts (\d+)")


@dataclass(frozen=True, slots=True)
class Program:
    """A program.

    Attributes:
        words: a Python file beside the job file, with arguments; or a command of the image.
        folder: the absolute folder of the job file on the machine that read it.
    """

    words: tuple[str, ...]
    folder: str = ""

    @property
    def is_script(self) -> bool:
        """True if the first word is a Python file beside the job file, and not a command of the image."""
        return self.words[0].endswith(_SUFFIX) and not self.words[0].startswith("/")

    @property
    def python_arguments(self) -> tuple[str, ...]:
        """The arguments of Python: a file, or -m and a module, with its arguments; empty for another command."""
        if self.is_script:
            return self.words
        arguments = self.words[1:]
        while arguments and _FLAG.fullmatch(arguments[0]):
            arguments = arguments[2 if arguments[0] in _FLAGS_WITH_VALUE else 1 :]
        runs_code = (arguments[:1] == ("-m",) and arguments[1:]) or (arguments and arguments[0].endswith(_SUFFIX))
        return arguments if _PYTHON.fullmatch(self.words[0]) and runs_code else ()

    @property
    def script(self) -> PurePosixPath:
        """The absolute path of the Python file on the machine that read the job file."""
        return PurePosixPath(self.folder, self.words[0])


def referenced_jobs(word: str) -> list[str]:
    """Return the jobs whose addresses a word of a program refers to, as in `$(TFK8S_HOSTS:ps)`."""
    return [match[2] for match in _REFERENCE.finditer(word) if match[2]]


def expand(words: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Return the words of a task's program, with values in place of references.

    Args:
        words: the program of the job.
        environment: the variables of the task: its job, its index and its ClusterSpec.
    """

    def value(match: re.Match[str]) -> str:
        if job := match[2]:
            return ",".join(json.loads(environment["TFK8S_CLUSTER"]).get(job, ()))
        return environment[match[1]]

    return [_REFERENCE.sub(value, word) for word in words]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """The rules of a run, which jobs with programs make: its success, its restarts and its limit."""

    success: str = key(
        "TEXT",
        "The job or the task whose programs' end with exit code 0 is the run's success. If absent: chief, else all "
        "programs except an evaluator.",
        "worker/0",
        default="",
    )
    restart_on: str | tuple[int, ...] = key(
        "ENDS",
        "The ends after which programs run again: exit-code for 42 and codes from 128, which signals give; failure "
        "for each code except 0; never; or a list of exit codes.",
        FAILURE,
        [42, 143],
        default=EXIT_CODE,
    )
    max_restarts: int = key("RESTARTS", "The greatest number of restarts.", 10, default=3)
    restart_scope: str = key(
        "RESTART_SCOPE",
        "The programs that run again together: the failed task's, its job's, or all of the cluster.",
        JOB,
        default=TASK,
    )
    timeout: int | None = key("DURATION", "The time after which the run fails.", "2h", 7200)

    def restarts_after(self, code: int, restarts: int) -> bool:
        """Return whether a program is run again.

        Args:
            code: the exit code of the program, 128 + N for signal N.
            restarts: the restarts so far.
        """
        if code == 0 or restarts >= self.max_restarts or self.restart_on == NEVER:
            return False
        if isinstance(self.restart_on, tuple):
            return code in self.restart_on
        return self.restart_on == FAILURE or code >= FIRST_RETRYABLE or code == SAVED


@dataclass(eq=False)
class RestartGroup:
    """The restarts of one group.

    Attributes:
        policy: the rules of the run.
        restarts: the restarts that count against `max_restarts`.
        reason: why the group is being restarted; "" while it is not.
        pause: the seconds between the last end of a program and the start, of the restart that is under way.
    """

    policy: RunPolicy
    restarts: int = 0
    reason: str = ""
    pause: float = 0.0
    _started: float = 0.0
    _backoff: Backoff = field(default_factory=Backoff)

    def may_restart(self, code: int) -> bool:
        """Return whether the programs run again after an exit code of one of them."""
        return self.policy.restarts_after(code, self.restarts)

    def restart_after_failure(self, reason: str, now: float) -> None:
        """Begin a restart that counts against `max_restarts`."""
        self.restarts += 1
        self.reason, self.pause = reason, self._backoff.pause(now - self._started)

    def restart_at_once(self, reason: str, *, counts_anew: bool) -> None:
        """Begin a restart that does not count, without a pause.

        Args:
            counts_anew: the limit of restarts begins again, as after a request of the user.
        """
        self.reason, self.pause = reason, 0.0
        if counts_anew:
            self.restarts, self._backoff = 0, Backoff()

    def start(self, now: float) -> None:
        """Note that the programs start."""
        self.reason, self._started = "", now


def restart_word(restart_on: str | tuple[int, ...]) -> str:
    """Return the ends of `RunPolicy.restart_on` as one word of a command."""
    return restart_on if isinstance(restart_on, str) else ",".join(map(str, restart_on))


def parse_restart_word(word: str) -> str | tuple[int, ...]:
    """Return the ends from the word of `restart_word`."""
    return word if word in RESTART_ON else tuple(map(int, word.split(",")))


def grace(environment: Mapping[str, str]) -> float:
    """Return the seconds between SIGTERM and SIGKILL for a program with these variables."""
    return float(environment.get(naming.GRACE) or END_TIMEOUT)


def may_save(is_ending: bool, kill_at: float | None, now: float) -> bool:
    """Return whether processes that a program left behind may go on: they have got SIGTERM, and their time runs.

    A shell ends at once, and leaves the command that it waited for.

    Args:
        is_ending: whether the program has got SIGTERM.
        kill_at: when its time is over; None if nothing will kill the program.
        now: the time by the same clock.
    """
    return is_ending and kill_at is not None and now < kill_at


def exit_code(code: int) -> int:
    """Return a process' exit code as a shell shows it: 128 + N for signal N.

    Args:
        code: from `os.waitstatus_to_exitcode`, -N for signal N.
    """
    return 128 - code if code < 0 else code


def run_result(ended: Mapping[str, int], success: Iterable[str]) -> int | None:
    """Return the exit code of a run, or None while the run goes on.

    Args:
        ended: the exit codes of the tasks that have ended and are not run again, by task ("worker/0").
        success: the tasks whose ends with code 0 are the run's success.
    """
    needed = list(success)
    if all(ended.get(task) == 0 for task in needed):
        return 0
    return next((code for code in ended.values() if code), None)


def end_message(code: int, restarts: int) -> str:
    """Return the termination message of a pod, with the exit code of the program and the number of its restarts."""
    return f"exit code {code}, restarts {restarts}"


def read_end(message: str) -> tuple[int, int] | None:
    """Return the exit code and the number of restarts from a termination message; None if the text is another."""
    match = _END.fullmatch(message.strip())
    return (int(match[1]), int(match[2])) if match else None
