"""The run of a cluster's programs: the command wait, and the part of run without a script."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Annotated

import typer

from tfk8s import polling
from tfk8s.api import find
from tfk8s.backends.options import BackendOptions
from tfk8s.cli import json_output, options
from tfk8s.cli.output import document, note
from tfk8s.cli.signals import Once
from tfk8s.cli.start_progress import Progress
from tfk8s.cli.tasks import ShownLines, print_lines
from tfk8s.cluster.handle import Cluster
from tfk8s.cluster.program_run import failure, wait_for_programs
from tfk8s.core.status import ClusterStatus
from tfk8s.errors import InvalidInput, Tfk8sError

_QUIET_TIME = 0.5  # after which the output of programs that have ended is complete

_MAX_REST_TIME = 5.0


def wait(
    name: options.Name,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="TIME", callback=options.seconds, help="Wait up to TIME; default: no limit."),
    ] = None,
    output: options.Output = None,
    local: options.Local = False,
    context: options.Context = None,
    namespace: options.Namespace = None,
) -> int:
    """Wait until the programs of a cluster have ended.

    Returns the exit code of the run: 0, or that of the program that failed; 124 after a timeout. Ends the programs that
    still run after the end of the run. Removes nothing.

    Examples:
        tfk8s wait mnist
        tfk8s wait --local --timeout 2h mnist

    JSON: the fields of `status`.
    """
    cluster = find(name, BackendOptions(local or None, context, namespace))
    with Progress() as progress:
        status = cluster.wait_for_programs(timeout, progress.update)
    if output is not None:
        document(json_output.cluster(status))
        return status.exit_code or 0
    return report(status, f"tfk8s logs{cluster.backend.flags} {cluster.name} shows the output of the programs")


def follow(cluster: Cluster, signals: Once, on_end: Callable[[], None], *, all_lines: bool) -> int:
    """Print the output of a cluster's programs until the run has ended; return the exit code of the run.

    Args:
        signals: end the run.
        on_end: called at the end of the run, before the other programs are ended.
        all_lines: also print the lines of TensorFlow's own log.

    Raises:
        InvalidInput: the run had ended before.
    """
    status = cluster.status()
    if status.exit_code is not None and not cluster.changed:
        raise InvalidInput(
            f'the run of cluster "{cluster.name}" has ended before, with exit code {status.exit_code}',
            help=f"tfk8s restart{cluster.backend.flags} {cluster.name} runs the programs again",
        )
    output = _Output(cluster, [str(task.task) for task in status.tasks if task.is_program], all_lines)
    output.start()
    with Progress(in_place=False) as progress:

        def changed(status: ClusterStatus) -> None:
            signals.check()
            progress.update(status)

        status = wait_for_programs(cluster.backend, cluster.name, None, changed, on_end)
    output.finish()
    return report(status)


def report(status: ClusterStatus, advice: str = "") -> int:
    """Print why a run has failed; return the exit code of the run."""
    if text := failure(status):
        note(f"error: {text}" + (f"\n  = help: {advice}" if advice else ""))
    else:
        note(f'the run of cluster "{status.name}" has succeeded')
    return status.exit_code or 0


class _Output(threading.Thread):
    """Prints the lines of programs as they come."""

    def __init__(self, cluster: Cluster, programs: list[str], all_lines: bool) -> None:
        super().__init__(daemon=True)
        self._cluster, self._programs, self._all_lines = cluster, programs, all_lines
        self._shown: ShownLines | None = None
        self._latest = time.monotonic()

    def run(self) -> None:
        try:
            logs = self._cluster.logs(self._programs, follow=True)
            self._shown = ShownLines(logs, all_lines=self._all_lines)
            print_lines(logs.tasks, self._shown, self._note_line)
        except Tfk8sError as error:  # such as a user who may not read logs
            note(f"the output of the programs is not shown: {error}")

    def _note_line(self) -> None:
        self._latest = time.monotonic()

    def finish(self) -> None:
        """Wait for the lines that were written before the run's end, and say how many are left out."""
        end = time.monotonic()
        for _ in polling.poll(_MAX_REST_TIME):
            if not self.is_alive() or time.monotonic() - max(self._latest, end) > _QUIET_TIME:
                break
        if self._shown:
            self._shown.note_left_out()
