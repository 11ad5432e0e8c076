"""Runs a script as a program of a task: as `python FILE` does, with an exit code for the loss of another task.

A program of `MultiWorkerMirroredStrategy` ends with a TensorFlow error if another task is lost. The script itself is
not at fault, so the process ends with `PEER_LOST`, after which tfk8s runs the program again. Standard library only:
this file also runs in pods.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from tfk8s.core.programs import INTERRUPTED, NO_GPUS, PEER_LOST, grace
from tfk8s.task import process_end
from tfk8s.task.peers import dispatchers
from tfk8s.task.programs import (
    hints,
    imports,
    main_script,
    moved_ports,
    own_interpreter,
    seen_gpus,
    stacks,
    strategies,
    tensorflow_1,
    unreachable,
)

# TensorFlow's classes of errors for a task that is gone, and for a task that is there again as another process.
_LOST = ("UnavailableError", "AbortedError")

# The words of TensorFlow's other errors that follow from a lost task: of its coordination service, its collective
# operations, and gRPC. With GPUs, collective operations fail with NCCL's text for an ncclRemoteError or an ncclTimeout
# (ncclGetErrorString in src/init.cc of NCCL; "NCCL: …" of tensorflow/core/nccl/nccl_manager.cc, "NCCL operation …
# failed: …" of XLA), or after the `timeout_seconds` of tf.distribute.experimental.CommunicationOptions
# (tensorflow/core/common_runtime/base_collective_executor.cc). XLA's watchdog ends the process by SIGABRT instead.
_WORDS = re.compile(
    r"heartbeat|coordination service|CoordinationService|Connection reset by peer|Connection refused|Socket closed"
    r"|failed to connect to all addresses|Collective ops is aborted|recv'd connection error|Broken pipe"
    r"|remote process exited or there was a network error|NCCL\b.*: timeout|Collective has timed out|Barrier timed out",
    re.IGNORECASE,
)


def is_lost_task(error: BaseException) -> bool:
    """Return whether an error, or a cause of it, is TensorFlow's for a lost task."""
    return any(
        type(cause).__module__.startswith("tensorflow.")
        and (type(cause).__name__ in _LOST or _WORDS.search(str(cause)) is not None)
        for cause in main_script.causes(error)
    )


def main(arguments: Sequence[str]) -> int:
    """Run a script as `run` does, in a process that answers `tfk8s stacks`, if TensorFlow sees the task's GPUs."""
    if seen_gpus.are_missing(os.environ):
        return NO_GPUS
    stacks.serve()
    return run(arguments)


def run(arguments: Sequence[str]) -> int:
    """Run a script with its arguments; return the exit code of the process."""
    script, *rest = arguments
    own_interpreter.check_source(arguments)
    imports.while_imported("tensorflow", imports.without_garbage_collection)
    if os.environ.get("TFK8S_TF1"):
        tensorflow_1.give()
    moved_ports.lead(os.environ)
    dispatchers.watch(_say, _end_without)
    strategies.watch(os.environ, _say)
    strategies.watch_preemption(os.environ, grace(os.environ), _say)
    unreachable.explain(os.environ, _say)
    try:
        main_script.run(script, rest)
    except SystemExit as end:
        return main_script.exit_code(end.code)
    except BaseException as error:
        main_script.print_traceback(error)
        if is_lost_task(error):
            _say(f"another task was lost; exit code {PEER_LOST}")
            return PEER_LOST
        if text := hints.hint(error):
            print(f"hint: {text}", file=sys.stderr, flush=True)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _end_without(task: str, reason: str) -> None:
    """End this process because of a lost task."""
    _say(f"{task} was lost: {reason}; exit code {PEER_LOST}")
    process_end.end(PEER_LOST)


def _say(text: str) -> None:
    print(f"tfk8s: {text}", file=sys.stderr, flush=True)


exit_process = process_end.exit_process


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
