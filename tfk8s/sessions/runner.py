"""Runs a session script: prepares its environment, guards its session calls, and explains its failures.

A script gets all that `python FILE` would give it (arguments, folder, standard streams, exit code). It also gets
`TFK8S_TARGET` and `TFK8S_CLUSTER`, with `--tf1` TensorFlow 1's `import tensorflow`, and named failures on standard
error. A script that would wait for ever is ended (call_guard.py). Standard library and TensorFlow only: this file also
runs in pods.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import logging
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from tfk8s.core.addresses import host_and_port
from tfk8s.core.naming import FORWARDED
from tfk8s.core.programs import INTERRUPTED
from tfk8s.errors import Tfk8sError
from tfk8s.log import log
from tfk8s.sessions import active_calls, adopted_server, error_names, failures, patch, timing
from tfk8s.sessions.call_guard import TASK_FAILED, ExitScript
from tfk8s.sessions.cluster.cluster_view import ClusterView
from tfk8s.sessions.diagnosis import ClusterProbe
from tfk8s.sessions.eager import coordinator, remote_context
from tfk8s.sessions.failures import ScriptRun
from tfk8s.sessions.forks import recorded_output
from tfk8s.sessions.forks.script_guard import ScriptGuard
from tfk8s.sessions.guard_thread import GuardThread
from tfk8s.sessions.lost_tasks import of_script
from tfk8s.sessions.task_events import lost
from tfk8s.task import process_end
from tfk8s.task.peers import dispatchers
from tfk8s.task.programs import (
    imports,
    main_script,
    moved_ports,
    own_interpreter,
    strategies,
    tensorflow_1,
    unreachable,
)
from tfk8s.task.programs.stacks import StackListener

_EARLY_LINES = re.compile(rb"WARNING: All log messages before absl::InitializeLog|I0000 [0-9.: ]+[a-z_]+\.cc:[0-9]+\] ")


def execute(options: argparse.Namespace) -> int:
    """Run the script in this process, as `__main__`; return its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before the script, Ctrl-C just ends this process
    if path := os.environ.pop(recorded_output.VARIABLE, None):
        recorded_output.record(path)
    install_log_handler()
    own_interpreter.check_source([options.script])
    note = FailureNote(os.environ.pop(error_names.VARIABLE, None))
    cluster = ClusterProbe(ClusterView.of(os.environ, in_pod=options.pod), of_script)
    try:
        cluster.check()
    except Tfk8sError as error:
        return failures.report(error, note.write, error_names.A_TASK_FAILED)
    if options.events is not None:
        of_script.expect()
    ending = ExitScript(note.end)
    rule = ScriptGuard(note.end, of_script, cluster.view, ending, timing=timing.with_grace(os.environ))
    guard = GuardThread(rule, options.events, listen(cluster.view))
    guard.take_signals()
    guard.start()
    check = functools.partial(patch.check_target, tasks=cluster.view.addresses, in_pod=options.pod)
    unreachable.explain(os.environ, log.warning)
    if options.pod:
        ports = {host_and_port(address)[1] for address in cluster.view.addresses.values()}
        unreachable.watch(ports, log.warning)
    prepare_import()
    if setting := os.environ.pop("TFK8S_TRACE", None):
        recorder = importlib.import_module("tfk8s.features.timeline.pod").start(setting)  # other scripts do without
        imports.when_imported(patch.SESSION_MODULE, recorder.patch_sessions)
    imports.when_imported(
        patch.SESSION_MODULE,
        functools.partial(
            patch.patch_sessions, cluster.view, check, isolate=options.isolate,
            default=os.environ.get("TFK8S_TARGET", "") if options.on_master else "",
        ),
    )  # fmt: skip
    # In a pod, the first process hands on the end of the pod as SIGINT.
    end_signal = signal.SIGINT if options.pod else signal.SIGTERM
    adopt = functools.partial(adopted_server.patch_servers, cluster.view, of_script, end_signal)
    imports.when_imported(adopted_server.SERVER_MODULE, adopt)
    patch_multi_worker = functools.partial(strategies.patch_multi_worker, coordinator.check_multi_worker)
    imports.when_imported(strategies.MULTI_WORKER_MODULE, patch_multi_worker)
    patch_v1 = functools.partial(strategies.patch_parameter_server_v1, coordinator.check_parameter_server_v1)
    imports.when_imported(strategies.PARAMETER_SERVER_V1_MODULE, patch_v1)
    if options.tf1:
        tensorflow_1.give()
    else:
        coordinate(cluster.view, check, in_pod=options.pod)
    moved_ports.lead(os.environ)  # so late that the other patches see the tasks' own addresses
    forwards = json.loads(os.environ.get(FORWARDED, "null"))  # with them, tasks alone can use the addresses
    dispatchers.watch(log.warning, lambda name, reason: ending.end(lost(name, reason)), forwards)
    requirements = os.environ.get("TFK8S_REQUIREMENTS", "")
    run = ScriptRun(options.script, options.arguments, options.tf1, options.pod, requirements)
    return run_main(run, cluster, note)


def listen(view: ClusterView) -> StackListener | None:
    """Return a listener for `tfk8s stacks`, or None if this system has none."""
    with contextlib.suppress(OSError):
        return StackListener(functools.partial(active_calls.describe_calls, view))
    return None


def install_log_handler() -> None:
    """Print messages for users on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("tfk8s: %(message)s"))
    log.addHandler(handler)
    log.propagate = False  # a script's own handlers would print messages again


# ---- the script's environment --------------------------------------------------------------------------------------


def coordinate(view: ClusterView, check: Callable[[object], None], *, in_pod: bool) -> None:
    """Make the script the coordinator of TensorFlow 2's strategies, which need eager execution.

    Args:
        view: the tasks.
        check: is called with the address of a server, and raises an error if no server answers.
        in_pod: whether this process runs in a pod.
    """
    if FORWARDED not in os.environ:  # the functions of a strategy need addresses that the tasks can use
        address = coordinator.own_address(os.environ.get("TFK8S_TARGET", ""), in_pod=in_pod)
        coordinator.become_coordinator(view.cluster, address)
    imports.when_imported(strategies.PARAMETER_SERVER_MODULE, strategies.patch_parameter_server)
    imports.when_imported(remote_context.MODULE, functools.partial(coordinator.patch_connecting, view, check))


def prepare_import() -> None:
    """Let the coming import of TensorFlow be quick, and print nothing that the log level excludes."""
    imports.while_imported("tensorflow", imports.without_garbage_collection)
    imports.while_imported("tensorflow", without_early_lines)


@contextlib.contextmanager
def without_early_lines() -> Iterator[None]:
    """Hold standard error back, and drop the log lines of TensorFlow's libraries that do not know the log level yet.

    Until its log is set up, TensorFlow 2.21 writes lines of the level INFO and ignores TF_CPP_MIN_LOG_LEVEL.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "0") == "0":
        yield
        return
    with open(os.dup(2), "wb") as errors, tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(errors.fileno(), 2)
            held.seek(0)
            with contextlib.suppress(OSError):  # its reader is gone
                errors.writelines(line for line in held if not _EARLY_LINES.match(line))
                errors.flush()


def run_main(run: ScriptRun, cluster: ClusterProbe, note: FailureNote) -> int:
    """Run a file as `python FILE` does; return Python's exit code."""
    try:
        main_script.run(run.script, run.arguments)
    except SystemExit as end:
        code = main_script.exit_code(end.code)
        failures.print_hint(end, run)
    except BaseException as error:
        return failures.fail(error, run, cluster, note.write)
    else:
        code = 0
    if not code and (text := patch.unused_cluster()) and not remote_context.connected_tasks():
        log.warning(text)
    return code


# ---- the end -------------------------------------------------------------------------------------------------------


class FailureNote:
    """A note that a script ended because of a task. The exit code alone may be the script's own.

    Args:
        path: a file; None if nobody reads the note.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path

    def write(self, text: str) -> None:
        """Write `error_names.A_TASK_FAILED` or `A_TASK_FAILED_JUST_NOW`, unless the disk is full."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                Path(self._path).write_text(text)

    def end(self, code: int) -> NoReturn:
        """End this process at once, for the script's guard."""
        if code == TASK_FAILED:
            self.write(error_names.A_TASK_FAILED)  # seconds ago
        _end(code)


def _end(code: int) -> NoReturn:
    """End this process at once, with all its threads, and free what it has made on tasks."""
    with contextlib.suppress(Exception):  # tasks free it themselves after some minutes
        if remote_context.connected_tasks():
            _silence()
            remote_context.close()
    process_end.end(code)


def _silence() -> None:
    """Drop what this process writes on standard error from now on.

    TensorFlow's threads free tensors on tasks until the process is gone. Once their contexts are closed, each such
    request ends with "Unable to find a context_id", which no script can do anything about.
    """
    with contextlib.suppress(Exception):  # its reader is gone, or it is closed
        sys.stderr.flush()
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)


def exit_process(code: int) -> NoReturn:
    """End this process as Python does, and free what it has made on tasks."""
    try:
        process_end.finish()
    except KeyboardInterrupt:  # while a thread goes on
        _end(INTERRUPTED)
    _end(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script that the command line names; return its exit code."""
    parser = argparse.ArgumentParser(prog="tfk8s.sessions.runner", description="Run a session script.")
    parser.add_argument("--tf1", action="store_true", help="`import tensorflow` gives TensorFlow 1's")
    parser.add_argument("--isolate", action="store_true", help="sessions keep their variables to themselves")
    parser.add_argument("--on-master", action="store_true", help="sessions without a target run on the master")
    parser.add_argument("--events", type=int, metavar="FD", help="the pipe with changes of tasks")
    parser.add_argument("--pod", action="store_true", help="the script runs in a pod of the cluster")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return execute(parser.parse_args(arguments))


if __name__ == "__main__":
    exit_process(main())
