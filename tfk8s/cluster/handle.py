"""A handle on one cluster, whichever backend it lives in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from tfk8s import polling
from tfk8s.backends import devices, foreground_scripts, local_scripts
from tfk8s.backends.devices import TaskDevices
from tfk8s.backends.protocol import Backend
from tfk8s.cluster import readiness
from tfk8s.cluster import retries as again
from tfk8s.cluster.connection import ClusterConnection, require_access
from tfk8s.cluster.scripts import make_script
from tfk8s.core.events import Event
from tfk8s.core.script import LogLine, Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.core.status import ClusterStatus, ScriptPhase, TaskStatus
from tfk8s.core.task_names import parse_excluded, parse_task, require_counts, select
from tfk8s.errors import InvalidInput, NoSuchCluster, Tfk8sError, WaitTimeout
from tfk8s.log import log

TIMEOUT = 120.0
_SCRIPT_END_TIMEOUT = 5.0  # kubelet reports a container's end up to two seconds late


class Cluster(ClusterConnection):
    """A cluster that is there, as `tfk8s.up` and `tfk8s.connect` return it.

    In a `with`, it is removed at the end if `up` has made it, unless that was asked to keep it; any other is left as
    it is.

    Attributes:
        name: the cluster's.
        backend: where it lives.
        made: whether `up` made it, rather than finding it.
        changed: whether `up` changed anything.
    """

    def __init__(self, backend: Backend, name: str, *, keep: bool = True) -> None:
        super().__init__(backend, name)
        self.made = self.changed = False
        self._keep = keep
        self._exit_code = 0

    def status(self) -> ClusterStatus:
        """Return what is there now."""
        return self.backend.observe(self.name)

    def tasks(self) -> tuple[TaskStatus, ...]:
        """Return the tasks as they are now, in the job file's order."""
        return self.status().tasks

    def devices(self) -> list[TaskDevices]:
        """Return what each task's server has; a task that does not answer has no devices, and an error."""
        return devices.list_devices(self.backend, self.status())

    def apply(self, job_file: JobFile) -> None:
        """Create the cluster, or change it to what its job file says; wait for no task.

        Raises:
            InvalidInput: the job file is refused, and nothing was changed.
        """
        try:
            self.status()
        except NoSuchCluster:
            self.made = True  # from now on, so that leaving the `with` early removes what is half made
        try:
            self.changed = self.backend.apply(job_file)
        except InvalidInput:
            self.made = False
            raise
        self.made = self.made and self.changed  # another process may have been quicker

    def wait(
        self,
        timeout: float = TIMEOUT,
        on_change: readiness.OnChange | None = None,
        *,
        without: Iterable[str] = (),
    ) -> ClusterStatus:
        """Wait until every task is ready and answers the master; return what is there then.

        Args:
            timeout: in seconds.
            on_change: called with what is there at first, and whenever it has changed.
            without: tasks that are not waited for ("worker/3"); the others are asked themselves, not by the master.

        Raises:
            InvalidInput: there is no such task, or it is the master.
            WaitTimeout: says which tasks are missing, and why.
            ClusterError: a task ends again and again, or the cluster is lost.
        """
        absent: list[Task] = []
        if words := list(without):
            status = self.status()
            absent = parse_excluded(words, [one.task for one in status.tasks], status.master)
        return readiness.wait_until_ready(self.backend, self.name, timeout, on_change, without=absent)

    def submit(
        self,
        script: str | Path,
        *arguments: str,
        tf1: bool = False,
        fresh: bool = False,
        isolate: bool = False,
        environment: Mapping[str, str] | None = None,
        requirements: str | Path | None = None,
        gpus: int = 0,
    ) -> int:
        """Run a session script beside the master, with this process' standard streams; return its exit code.

        Args:
            script: a Python file; what lies in its folder can be imported.
            *arguments: the script's own.
            tf1: `import tensorflow` gives TensorFlow 1's, without eager execution.
            fresh: in an interpreter of its own, even where one with TensorFlow imported stands ready.
            isolate: its sessions share no variables with others.
            environment: variables besides this process' own.
            requirements: a file for `pip install -r`, before it starts; on Kubernetes only, as what follows.
            gpus: how many it asks for.

        Raises:
            InvalidInput: there is no such script.
            TaskError: a task was lost, and the script could not go on.
        """
        return self.run(
            make_script(
                script, arguments, tf1=tf1, fresh=fresh, isolate=isolate, environment=environment,
                requirements=requirements, gpus=gpus,
            )
        )  # fmt: skip

    def run(self, script: Script, *, retries: int = 0) -> int:
        """Run a session script, as `submit` does.

        Args:
            script: which, and how.
            retries: how often to run it again, at most, when it has failed because of a task.
        """
        self._exit_code = again.run(self.backend, self.name, script, retries)
        return self._exit_code

    def run_here(self, script: Script) -> int:
        """Run a session script on this machine, whose loopback addresses lead to the tasks; return its exit code.

        Args:
            script: what to run.

        Raises:
            InvalidInput: scripts run here anyway, TensorFlow is missing, or a task's loopback address is taken.
            ClusterError: this user has no way to the tasks.
        """
        foreground_scripts.check(script)
        if self.backend.name != "kubernetes":
            raise InvalidInput("--here is for clusters on Kubernetes: for others, scripts run on this machine anyway")
        status = self.status()
        require_access(self.backend, self.name, status.master)
        outcome = local_scripts.run_forwarded(self.backend, status, script)
        if outcome.task_failed:
            for task in self.tasks():
                if task.reason:
                    log.warning("%s: %s", task.task, task.reason)
        return outcome.code

    def start(self, script: Script) -> str:
        """Start a session script that goes on without this process; return its name."""
        return self.backend.start(self.name, script)

    def show(self, script: str, *, follow: bool = False, tail: int | None = None) -> int:
        """Pass what a script wrote on to this process' standard streams; return 0.

        Args:
            script: its name, as `start` and the status have it.
            follow: go on to its end, and return its exit code.
            tail: only so many lines, the last ones.
        """
        return self.backend.show(self.name, script, follow=follow, tail=tail)

    def stop(self, script: str) -> None:
        """End a script, and remove it and what it wrote."""
        self.backend.stop(self.name, script)

    def logs(
        self, tasks: Iterable[str] = (), *, follow: bool = False, tail: int | None = None
    ) -> tuple[list[Task], Iterator[LogLine]]:
        """Return the tasks that are meant, and what they wrote.

        Args:
            tasks: which ("worker/1", or "worker" for all tasks of the job); none means all.
            follow: go on with what is written from now on.
            tail: only so many lines of each task, the last ones.
        """
        chosen = select(tasks, [task.task for task in self.tasks()])
        return chosen, self.backend.logs(self.name, chosen, follow=follow, tail=tail)

    def events(self, *, follow: bool = False) -> Iterator[Event]:
        """Return what happened to the cluster, in the order of time.

        Args:
            follow: go on with what happens from now on, until the cluster is gone.
        """
        return self.backend.events(self.name, follow=follow)

    def restart(
        self, task: str | None = None, *, timeout: float | None = TIMEOUT, on_change: readiness.OnChange | None = None
    ) -> None:
        """Start a task's server anew ("worker/1"), or all; wait until the cluster is ready again.

        Args:
            task: which; None is all.
            timeout: in seconds; None waits for nothing.
            on_change: as for `wait`.
        """
        before = {status.task: status for status in self.tasks()}
        chosen = None if task is None else parse_task(task, before)
        self.backend.restart(self.name, chosen)
        if timeout is not None:
            restarted = before if chosen is None else {chosen: before[chosen]}
            readiness.wait_until_ready(self.backend, self.name, timeout, on_change, restarted)

    def scale(
        self, tasks: Mapping[str, int], *, timeout: float | None = TIMEOUT, on_change: readiness.OnChange | None = None
    ) -> bool:
        """Give jobs so many tasks each (`{"worker": 8}`), and wait until the cluster is ready again.

        All tasks are started anew, with a new ClusterSpec: what they held is lost. The job file stays as it is.

        Args:
            tasks: how many by job, from 1; the other jobs keep theirs.
            timeout: in seconds; None waits for nothing.
            on_change: as for `wait`.

        Returns:
            Whether anything changed.

        Raises:
            InvalidInput: there is no such job, or it can't have so many tasks.
        """
        before = {status.task: status for status in self.tasks()}
        require_counts(tasks, before)
        changed = self.backend.scale(self.name, tasks)
        if timeout is not None:
            readiness.wait_until_ready(self.backend, self.name, timeout, on_change, before if changed else None)
        return changed

    def down(self) -> None:
        """Remove the cluster, and wait until it is gone."""
        self.close()
        self.backend.delete(self.name)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if not self.made or self._keep or (error is None and self._is_in_use()):
            return
        with contextlib.suppress(NoSuchCluster):
            self.backend.delete(self.name)

    def _is_in_use(self) -> bool:
        """Return whether other scripts run. This handle's own may seem to, for a moment after it failed."""

        def none_runs() -> bool:
            return all(script.phase is not ScriptPhase.RUNNING for script in self.status().scripts)

        try:
            polling.wait_until(none_runs, "scripts to end", _SCRIPT_END_TIMEOUT if self._exit_code else 0.0)
        except WaitTimeout:
            down = f"tfk8s down{self.backend.flags} {self.name}"
            log.warning('cluster "%s" is kept, since other scripts run in it: %s', self.name, down)
            return True
        except Tfk8sError:  # the cluster is gone, or its removal fails for the same reason
            return False
        return False

    def __repr__(self) -> str:
        return f"<tfk8s.Cluster {self.name!r} ({self.backend.name})>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        import html

        rows = [(str(task.task), task.phase, task.address, task.reason) for task in self.tasks()]
        cells = ["".join(f"<td>{html.escape(value)}</td>" for value in row) for row in rows]
        head = "<tr><th>task</th><th>phase</th><th>address</th><th>reason</th></tr>"
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><caption>{html.escape(self.name)} ({self.backend.name})</caption>{head}{body}</table>"
