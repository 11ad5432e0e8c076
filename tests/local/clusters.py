"""Helpers of the tests of clusters on this machine."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tfk8s import polling
from tfk8s.backends.local import state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.script import LogOptions
from tfk8s.core.spec import Task
from tfk8s.core.status import ClusterStatus, Phase
from tfk8s.jobfile.loader import load

REPOSITORY = Path(__file__).parents[2]

_TEXT = {"capture_output": True, "text": True, "timeout": 180, "cwd": REPOSITORY, "stdin": subprocess.DEVNULL}


def wait_for(backend: LocalBackend, name: str, condition: Callable[[ClusterStatus], bool]) -> ClusterStatus:
    """Return the cluster's status as soon as it meets the condition; fail after 120 s."""

    def look() -> ClusterStatus | None:
        status = backend.observe(name)
        return status if condition(status) else None

    return polling.wait_until(look, f"cluster {name} to come to that", 120)  # TensorFlow is slow on a busy machine


def is_ready(status: ClusterStatus) -> bool:
    return status.phase is Phase.READY


def addresses(backend: LocalBackend, name: str) -> list[str]:
    """Return the addresses of the tasks, which depend on this machine's other clusters where all share its network."""
    return [task.address for task in backend.observe(name).tasks]


def pids(status: ClusterStatus) -> dict[Task, int]:
    return {task.task: int(task.runs_on.removeprefix("pid ")) for task in status.tasks if task.runs_on}


def gone(pid: int) -> bool:
    return state.start_time(pid) is None


def wait_until_gone(pid: int) -> None:
    polling.wait_until(lambda: gone(pid), f"process {pid} to end", 60)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def tfk8s(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run([sys.executable, "-m", "tfk8s", *arguments], **{**_TEXT, **options})


def start_tfk8s(*arguments: str, prefix: Sequence[str] = (), **options: object) -> subprocess.Popen[str]:
    """Start the command line in a process of its own."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*prefix, sys.executable, "-m", "tfk8s", *arguments], **{**streams, **options})


def may_mount() -> bool:
    """Return whether this user may have namespaces for mounts on this machine."""
    flags = "0x20000 if os.geteuid() == 0 else 0x10020000"  # CLONE_NEWNS, and CLONE_NEWUSER
    program = f"import ctypes, os, sys; sys.exit(ctypes.CDLL(None).unshare({flags}))"
    return subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@contextlib.contextmanager
def running(file: Path) -> Iterator[None]:
    """Start the cluster of a job file, and remove the cluster at the end."""
    up = tfk8s("up", "--local", file)
    assert up.returncode == 0, up.stderr
    try:
        yield
    finally:
        assert tfk8s("down", "--local", load(file).name).returncode == 0


def write_programs(folder: Path, name: str, jobs: object, *, grace: object = None, **rules: object) -> Path:
    """Write a job file of programs; return its path."""
    path = folder / f"{name}.yaml"
    more = {**({"run": rules} if rules else {}), **({"grace": grace} if grace else {})}
    path.write_text(json.dumps({"apiVersion": "tfk8s.dev/v1", "name": name, "jobs": jobs, **more}))
    return path


def output(backend: LocalBackend, name: str, task: Task) -> str:
    """Return what a task has written."""
    return "\n".join(line.text for line in backend.logs(name, [task], LogOptions()))
