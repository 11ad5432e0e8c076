"""The parts of backends: further verbs, each part a protocol. `protocol.Absent` stands for what a backend lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # commands that need no backend import this module too
    from pathlib import Path

    from tfk8s.backends.history.files import EntryFiles
    from tfk8s.backends.history.merging import Pulled
    from tfk8s.backends.stacks import Stacks
    from tfk8s.backends.usage import Usage
    from tfk8s.core.spec import JobFile, Task
    from tfk8s.core.storage.volumes import KeptClaim
from tfk8s.core.script import WHOLE_LOG, Download, LogOptions, Outcome, Script


class TensorBoard(Protocol):
    """A process or a pod that serves TensorBoard.

    Attributes:
        folder: the folder of event files.
    """

    folder: str

    def require_running(self) -> None:
        """Raise a Tfk8sError if the server has ended."""
        ...

    def show_messages(self) -> None:
        """Write what the server has written elsewhere."""
        ...


class Scripts(Protocol):
    """Runs scripts beside the tasks of clusters, and TensorBoard where the scripts write.

    Attributes:
        in_pods: whether scripts run in pods, with a file system of their own.
    """

    in_pods: bool

    def check(self, script: Script) -> None:
        """Raise an InvalidInput, before anything is started, if a script's options or its folder do not fit."""
        ...

    def run(self, name: str, script: Script) -> Outcome:
        """Run a session script with this process' standard streams; return how it ended.

        SIGINT and SIGTERM of this process reach the script.

        Raises:
            TaskError: a task was lost, and the script could not continue.
        """
        ...

    def tensorboard(
        self, name: str, *, folder: str | None, requirements: Path | None, token: str, port: int
    ) -> AbstractContextManager[TensorBoard]:
        """Serve TensorBoard in a `with`; at its end, no process and no pod is left.

        Args:
            name: the cluster's.
            folder: the folder of event files; None is the backend's default.
            requirements: a file for `pip install -r` in a pod.
            token: the page's path.
            port: a free port of this machine.

        Raises:
            InvalidInput: TensorBoard is missing, or there is no such folder.
            ClusterError: the pod can't start.
        """
        ...


class Detached(Protocol):
    """Runs scripts that outlive the process that starts them."""

    def start(self, name: str, script: Script) -> str:
        """Start a session script that runs without this process; return its name."""
        ...

    def show(self, name: str, script: str, options: LogOptions) -> int:
        """Write a script's output to this process' standard streams; return 0.

        With `follow`, continue until the script's end, and return its exit code.

        Raises:
            InvalidInput: the options ask for the log before a restart: scripts never restart.
        """
        ...

    def log(self, name: str, script: str, options: LogOptions = WHOLE_LOG) -> Iterator[str]:
        """Return the lines of a script's output and errors so far; with `follow`, until the script's end."""
        ...

    def stop(self, name: str, script: str) -> None:
        """Stop a script, and delete it and its output."""
        ...


class Inside(Protocol):
    """Reaches into the processes of tasks."""

    def execute(self, name: str, task: Task, command: Sequence[str]) -> int:
        """Run a command beside a task's server, with this process' standard streams; return its exit code.

        The command gets a terminal if this process has one.

        Raises:
            TaskUnreachable: the task does not run.
        """
        ...

    def stacks(self, name: str, chosen: Sequence[str]) -> list[Stacks]:
        """Return what tasks and scripts do now, in the order of their names, in bounded time.

        Args:
            name: the cluster's.
            chosen: the names of tasks ("worker/1"), and of scripts as the status has them.
        """
        ...

    def usage(self, name: str, chosen: Sequence[str]) -> list[Usage]:
        """Return what tasks and scripts use, over a second, in the order of their names; arguments as `stacks`."""
        ...

    def end_programs(self, name: str, jobs: Sequence[str], *, succeeded: bool) -> None:
        """End the programs that still run after the end of their run, if the backend has not. Does not wait.

        Args:
            name: the cluster's.
            jobs: the jobs of the programs.
            succeeded: whether the run has succeeded.
        """
        ...


class RunFiles(Protocol):
    """The files that programs leave.

    Attributes:
        environment: the variables that the programs' jobs need for that, by job.
    """

    environment: Mapping[str, Mapping[str, str]]

    def finish(self) -> list[str]:
        """Return what was not copied, with the reasons, after the end of the run."""
        ...


class Files(Protocol):
    """Copies files between this machine and tasks."""

    def left(self, job_file: JobFile, wanted: Mapping[Task, Sequence[Download]]) -> AbstractContextManager[RunFiles]:
        """Copy files of programs when they end, whatever their exit codes, in a `with`.

        Args:
            job_file: the cluster's, which the caller makes then, with the variables of `RunFiles.environment`.
            wanted: the files by task.

        Raises:
            ClusterError: this user may not copy files of programs.
        """
        ...

    def fetch(self, name: str, task: Task, download: Download) -> list[str]:
        """Copy a file or a folder of a task to this machine; return what was not copied, with the reasons.

        Raises:
            TaskUnreachable: the task does not run.
        """
        ...

    def send(self, name: str, task: Task, local: Path, path: str) -> None:
        """Copy a file or a folder of this machine to a path of a task.

        Raises:
            TaskUnreachable: the task does not run.
            ClusterError: not everything was copied; says why.
        """
        ...


class Leases(Protocol):
    """The leases that this process holds: a cluster with a lease is removed when nobody holds the lease any more."""

    def holds(self, name: str) -> bool:
        """Return whether this process holds a cluster's lease."""
        ...

    def release(self, name: str) -> bool:
        """Give back this process' hold of a cluster's lease if other processes hold the lease; return whether they do.

        Raises:
            Tfk8sError: the cluster can't be asked.
        """
        ...


class Suspending(Protocol):
    """Suspends clusters, and resumes them.

    Each method records first what the user wants, and repeats what an earlier one that was killed has left half-done.
    """

    def suspend(self, name: str, by: str) -> bool:
        """End all tasks and running scripts, and wait for their ends; return whether the cluster was not suspended.

        Names, addresses, claims, files, logs that are kept elsewhere than in pods, and limits stay.

        Args:
            name: the cluster's.
            by: the person's name, for the status.

        Raises:
            ClusterError: the cluster can't be suspended, or a task does not end.
        """
        ...

    def resume(self, name: str) -> bool:
        """Start the tasks of a suspended cluster at their addresses; return whether the cluster was suspended.

        Does not wait for tasks.

        Raises:
            ClusterError: the cluster can't start.
        """
        ...


class Shared(Protocol):
    """Shows what the clusters of a Kubernetes namespace share."""

    def free_gpus(self) -> str:
        """Return the free GPUs by node, as a text; "" if this user may not list nodes."""
        ...

    def only_namespace(self) -> str:
        """Return the namespace to which a list of all is limited, as this user may list no others; else ""."""
        ...

    def claims(self) -> list[KeptClaim]:
        """Return the claims that `apply` made, also those of clusters that were removed."""
        ...

    def note_bad_places(self, name: str, pods: Sequence[str]) -> bool:
        """Note which pods of a cluster lack the GPUs of their nodes, for the next starts of their tasks.

        The result is False if this user may not note that.
        """
        ...

    def pull_history(self, claim: str | None, *, cluster: str | None, last: int, image: str | None) -> Pulled:
        """Bring the newest records of a shared history into the history of this user.

        Args:
            claim: the claim with the history; None is what the namespace names, a claim or a bucket.
            cluster: only records of clusters of this name; None for all.
            last: the number of records.
            image: of the pod that reads the claim; None is the backend's choice.

        Raises:
            InvalidInput: there is no such claim, or the namespace names none.
            ClusterError: the claim or bucket can't be read.
            WaitTimeout: the pod that reads the claim does not start in time, or the bucket does not answer.
        """
        ...


class History(Protocol):
    """Finds the entries of clusters in the history."""

    def find(self, name: str) -> EntryFiles | None:
        """Return the entry of a cluster that has not ended; None if there is none."""
        ...

    def join(self, name: str, job_file: JobFile | None = None, *, is_new: bool = False) -> EntryFiles | None:
        """Return the entry of a cluster that exists; it may begin now.

        Args:
            name: the cluster's.
            job_file: the cluster's, if the caller knows it.
            is_new: whether the caller has just made the cluster.
        """
        ...

    def seen(self, name: str) -> None:
        """Add the tasks as they are now, unless somebody else sees them."""
        ...

    def share(self, name: str) -> None:
        """Bring what this process has added to the shared history, if the cluster has a record there."""
        ...
