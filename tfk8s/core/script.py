"""Session scripts, their resources, their outcomes, and lines of logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfk8s.core.job_file.keys import key
from tfk8s.core.output.tensorflow_log import TensorFlowLines
from tfk8s.core.quantity import Quantity

if TYPE_CHECKING:
    from tfk8s.core.spec import Task

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # a shell's exit codes for commands that can't run


@dataclass(frozen=True, slots=True)
class Download:
    """A file or a folder that is copied when a script ends.

    Attributes:
        path: where the script leaves it; relative to the script's working folder.
        local: where it is copied to, on this machine.
    """

    path: str
    local: Path

    def __str__(self) -> str:
        return f"{self.path}:{self.local}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptResources:
    """The resources of a session script's pod. Only Kubernetes uses them."""

    cpu: Quantity | None = key(
        "CPU", "The CPU cores of a script: request and limit. Default: a request of 50m.", 2, "500m"
    )
    memory: Quantity | None = key(
        "SIZE", "The memory of a script: request and limit. Default: a request of 512Mi.", "4Gi"
    )
    shm: Quantity | None = key("SIZE", "The size of /dev/shm, in memory that the script gets besides `memory`.", "2Gi")
    ephemeral_storage: Quantity | None = key(
        "SIZE", "The storage for a script's own folders and its log. Default: up to 4Gi.", "20Gi"
    )
    gpus: int | None = key("GPUS", "The number of GPUs. A script with GPUs has a pod of its own.", 1)

    def over(self, defaults: ScriptResources) -> ScriptResources:
        """Return these resources, and the defaults for what they leave out."""
        return ScriptResources(**{**_named(defaults), **_named(self)})

    def __str__(self) -> str:
        """Return the compact form, in the order of the names: "cpu=2,memory=4Gi"; "" for none."""
        return ",".join(f"{name}={value}" for name, value in sorted(_named(self).items()))

    def __bool__(self) -> bool:
        """True if anything is named."""
        return bool(_named(self))


_NAMES = tuple(field.name for field in fields(ScriptResources))


def _named(resources: ScriptResources) -> dict[str, Any]:
    values = {name: getattr(resources, name) for name in _NAMES}
    return {name: value for name, value in values.items() if value is not None}


def parse_resources(text: str) -> ScriptResources:
    """Return the resources of a compact form. Names that another version of tfk8s has written are left out.

    Raises:
        ValueError: a value is not a quantity.
    """
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    values: dict[str, Any] = {
        name: int(value) if name == "gpus" else Quantity.parse(value) for name, _, value in pairs if name in _NAMES
    }
    return ScriptResources(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A session script, with the options to run it.

    Attributes:
        path: the file. Its folder is importable, as with `python FILE`.
        arguments: the script's arguments.
        tf1: make `import tensorflow` give `tensorflow.compat.v1`, without eager execution.
        fresh: start a new interpreter, even if the fork server has imported TensorFlow.
        isolate: share no variables with other sessions (`isolate_session_state`).
        on_master: run sessions without a target on the master.
        environment: variables besides the caller's.
        requirements: a file for `pip install -r` before the script starts; on Kubernetes only.
        resources: what the script gets besides, or instead of, the job file's `script`; on Kubernetes only.
        start_timeout: the seconds to wait for the script's start on Kubernetes; None is a default.
        downloads: what is copied when the script ends, whatever its exit code.
    """

    path: Path
    arguments: Sequence[str] = ()
    tf1: bool = False
    fresh: bool = False
    isolate: bool = False
    on_master: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    requirements: Path | None = None
    resources: ScriptResources = field(default_factory=ScriptResources)
    start_timeout: float | None = None
    downloads: Sequence[Download] = ()

    def runner_arguments(self, path: str = "") -> list[str]:
        """Return the arguments with which `tfk8s.sessions.runner` runs the script; `path` overrides its path."""
        flags = [f"--{flag.replace('_', '-')}" for flag in ("tf1", "isolate", "on_master") if getattr(self, flag)]
        return [*flags, path or str(self.path), *self.arguments]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a session script.

    Attributes:
        code: the exit code.
        task_failed: whether the runner ended the script because a task failed. A script may exit with the same code.
    """

    code: int
    task_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of a task's log, which begins with its time if `LogOptions.timestamps` asked for that."""

    task: Task
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The part of a log to read, as `kubectl logs` has it.

    Attributes:
        follow: continue with each new line.
        tail: the number of last lines; None is all.
        previous: the log of the run before the last restart.
        since: only lines of the last so many seconds; None is all.
        timestamps: begin each line with its time, in RFC 3339.
        brief: leave out the lines that `TensorFlowLines` include.
    """

    follow: bool = False
    tail: int | None = None
    previous: bool = False
    since: float | None = None
    timestamps: bool = False
    brief: bool = False


WHOLE_LOG = LogOptions()


def shown(lines: Iterable[LogLine], options: LogOptions) -> Iterator[LogLine]:
    """Yield the lines without those that `options.brief` leaves out."""
    own: defaultdict[Task, TensorFlowLines] = defaultdict(TensorFlowLines)
    return (line for line in lines if not (options.brief and own[line.task].include(line.text)))


class Logs:
    """The output of tasks. Iterating reads the lines; printing, and a notebook, shows them.

    Args:
        read: returns the lines, from the first on.

    Attributes:
        tasks: the tasks.
        options: the part of the output.
    """

    def __init__(self, tasks: Sequence[Task], options: LogOptions, read: Callable[[], Iterator[LogLine]]) -> None:
        self.tasks, self.options, self._read = tuple(tasks), options, read

    def __iter__(self) -> Iterator[LogLine]:
        return self._read()

    def __repr__(self) -> str:
        return f"<output of {', '.join(map(str, self.tasks))}>"

    def __str__(self) -> str:
        if self.options.follow:  # this output has no end
            return repr(self)
        width = max(len(str(task)) for task in self.tasks) if len(self.tasks) > 1 else 0
        return "\n".join(f"{str(line.task).ljust(width)} | {line.text}" if width else line.text for line in self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        del cycle
        printer.text(str(self))
