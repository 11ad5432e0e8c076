"""Session scripts of a cluster: the part of the handle that runs them, and a script that runs without this process."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, overload

from tfk8s import polling, spans
from tfk8s.backends.protocol import Backend
from tfk8s.cluster import scripts
from tfk8s.cluster.history_recorder import HistoryRecorder
from tfk8s.cluster.retries import run_with_retries
from tfk8s.core.script import LogOptions, Script
from tfk8s.core.status import ScriptPhase, ScriptStatus
from tfk8s.errors import ClusterError, InvalidInput

_ENDED = (ScriptPhase.SUCCEEDED, ScriptPhase.FAILED)


class Run:
    """A session script that runs without this process, as `Cluster.submit(detach=True)` returns it.

    Attributes:
        name: the script's name, for `tfk8s logs` and `tfk8s stop`.
    """

    def __init__(self, backend: Backend, cluster: str, name: str) -> None:
        self._backend, self._cluster, self.name = backend, cluster, name

    def status(self) -> ScriptStatus:
        """Return the script's state now.

        Raises:
            InvalidInput: the script was stopped, or its state is kept no longer.
            NoSuchCluster: the cluster was removed.
        """
        for script in self._backend.observe(self._cluster).scripts:
            if script.name == self.name:
                return script
        raise InvalidInput(f'cluster "{self._cluster}" has no script "{self.name}"')

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the script has ended; return its exit code.

        Args:
            timeout: in seconds; None waits without a limit.

        Raises:
            WaitTimeout: the script runs after the timeout.
            InvalidInput, NoSuchCluster: as for `status`.
        """
        return self._wait(timeout).exit_code or 0

    def result(self, timeout: float | None = None) -> ScriptStatus:
        """Wait until the script has succeeded; return its last state, with the progress.

        Args:
            timeout: as for `wait`.

        Raises:
            ClusterError: the script has failed; the text has the reason.
            WaitTimeout, InvalidInput, NoSuchCluster: as for `wait`.
        """
        status = self._wait(timeout)
        if status.phase is ScriptPhase.FAILED:
            why = f": {status.reason}" if status.reason else ""
            raise ClusterError(f"script {self.name} failed with exit code {status.exit_code}{why}")
        return status

    def logs(self) -> Iterator[str]:
        """Return the lines of the script's output and errors so far."""
        return self._backend.detached.log(self._cluster, self.name)

    def stop(self) -> None:
        """Stop the script, and delete it and its output."""
        self._backend.detached.stop(self._cluster, self.name)

    def _wait(self, timeout: float | None) -> ScriptStatus:
        def ended() -> ScriptStatus | None:
            status = self.status()
            return status if status.phase in _ENDED else None

        return polling.wait_until(ended, f"script {self.name} to end", math.inf if timeout is None else timeout)

    def __repr__(self) -> str:
        return f"<tfk8s.Run {self.name!r} of cluster {self._cluster!r}>"


class SubmittingCluster:
    """The part of the handle on a cluster that runs session scripts."""

    backend: Backend
    name: str
    recorder: HistoryRecorder
    features: Callable[[str], ModuleType]
    _exit_code: int

    @overload
    def submit(
        self, script: str | Path, *arguments: str, tf1: bool = False, fresh: bool = False, isolate: bool = False,
        environment: Mapping[str, str] | None = None, requirements: str | Path | None = None, gpus: int | None = None,
        cpu: float | str | None = None, memory: int | str | None = None, get: Sequence[str] = (),
        on_master: bool = False, without: Iterable[str] = (), retries: int = 0, here: bool = False,
        trace: str | Path | None = None, trace_every: int | None = None, detach: Literal[False] = False,
    ) -> int: ...  # fmt: skip
    @overload
    def submit(
        self, script: str | Path, *arguments: str, tf1: bool = False, fresh: bool = False, isolate: bool = False,
        environment: Mapping[str, str] | None = None, requirements: str | Path | None = None, gpus: int | None = None,
        cpu: float | str | None = None, memory: int | str | None = None, on_master: bool = False,
        without: Iterable[str] = (), detach: Literal[True],
    ) -> Run: ...  # fmt: skip
    def submit(
        self, script: str | Path, *arguments: str, without: Iterable[str] = (), retries: int = 0, here: bool = False,
        trace: str | Path | None = None, trace_every: int | None = None, detach: bool = False,
        get: Sequence[str] = (), **options: Any,
    ) -> int | Run:  # fmt: skip
        """Run a session script beside the master, with this process' standard streams; return its exit code.

        Args:
            script: a Python file. It can import the other files of its folder.
            *arguments: the script's arguments.
            without: tasks that the script's sessions leave out ("worker/3").
            retries: the maximum number of further runs, if the script fails because of a task.
            here: run the script on this machine, with loopback ports that lead to the tasks; for Kubernetes only.
            trace: the path of a page, which shows what the tasks did in a step.
            trace_every: the interval of recorded steps; default: 100.
            detach: return at once. The script runs without this process, and the result is a `Run`.
            get: "PATH" or "PATH:LOCAL", what to copy when the script ends, as `tfk8s submit --get` does.
            **options: as `make_script` has them: tf1 (`import tensorflow` gives TensorFlow 1's API), fresh (start a new
                interpreter), isolate (share no variables), environment, requirements, gpus, cpu (2 or "500m"), memory
                (bytes or "4Gi"), on_master (sessions without a target run on the master).

        Raises:
            InvalidInput: the script does not exist, or options do not belong together.
            TaskError: a task was lost, and the script could not continue.
        """
        traced = trace is not None or trace_every is not None
        scripts.require_combination(detach=detach, here=here, get=bool(get), trace=traced, retries=bool(retries))
        recording = self.features("timeline").parse(trace and str(trace), trace_every) if traced else None
        prepared = scripts.make_script(script, arguments, without=list(without), get=get, **options)
        if detach:
            return self.start(prepared)
        return self.run(prepared, retries=retries, here=here, recording=recording)

    def run(self, script: Script, *, retries: int = 0, here: bool = False, recording: Any = None) -> int:
        """Run a session script, as `submit` does; return its exit code.

        Args:
            script: the script.
            retries, here: as for `submit`.
            recording: the timeline, from the feature; None records nothing.
        """
        with self._recorded(script, recording, here=here) as recorded, self.recorder.script(recorded) as end:
            if here:
                end.exit_code = scripts.run_here(self.backend, self.name, recorded)
            else:
                end.exit_code = self._exit_code = run_with_retries(self.backend, self.name, recorded, retries)
        return end.exit_code

    def start(self, script: Script) -> Run:
        """Start a session script that outlives this process."""
        with self.recorder.script(script), spans.part("start script"):
            return Run(self.backend, self.name, self.backend.detached.start(self.name, script))

    def show(self, script: str, **options: Any) -> int:
        """Copy a script's output to this process' standard streams; return 0, or its exit code with `follow`.

        Args:
            script: the script's name, as in `Run` and in the status.
            **options: the part of the output, as `LogOptions` has it; default: all so far.
        """
        return self.backend.detached.show(self.name, script, LogOptions(**options))

    def stop(self, script: str) -> None:
        """Stop a script, and delete its output."""
        self.backend.detached.stop(self.name, script)

    @contextlib.contextmanager
    def _recorded(self, script: Script, recording: Any, *, here: bool) -> Iterator[Script]:
        """Yield a script as it is to run; at the end of the `with`, write its timeline."""
        if recording is None:
            yield script
            return
        try:
            with self.features("timeline").recorded(script, recording, self, here=here) as traced:
                yield traced
        finally:
            self.recorder.keep_timeline(recording.page)
