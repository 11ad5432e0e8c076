"""Where clusters live: the protocol that every backend fulfils, and the choice of one.

A backend plans, applies, scales, observes, lists, tells of events, reads logs, runs scripts, dials a task, restarts
and deletes. All that users see beyond that (waiting, probing, devices, `connect`, retries, panels) is built on these,
once for all backends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that need no backend import this module all the same
    from tfk8s.core.spec import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A session script and how to run it.

    Attributes:
        path: the file; the folder it stands in is importable, as `python FILE` has it.
        arguments: its own.
        tf1: `import tensorflow` gives `tensorflow.compat.v1`, without eager execution.
        fresh: in a new interpreter, even where one with TensorFlow imported stands ready.
        isolate: its sessions share no variables with others' (`isolate_session_state`).
        environment: variables besides the caller's own.
        requirements: a file for `pip install -r`, before it starts; on Kubernetes only, as what follows.
        gpus: how many it asks for.
    """

    path: Path
    arguments: Sequence[str] = ()
    tf1: bool = False
    fresh: bool = False
    isolate: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    requirements: Path | None = None
    gpus: int = 0

    def runner_arguments(self, path: str = "") -> list[str]:
        """Return the arguments with which `tfk8s.sessions.runner` runs the script; `path` overrides its path."""
        flags = [f"--{flag}" for flag in ("tf1", "isolate") if getattr(self, flag)]
        return [*flags, path or str(self.path), *self.arguments]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session script ended.

    Attributes:
        code: its exit code.
        task_failed: its runner ended it because a task failed; a script may exit with the same code by itself.
    """

    code: int
    task_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line that a task wrote."""

    task: Task
    text: str
