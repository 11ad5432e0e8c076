"""The command `tfk8s`, or `python -m tfk8s`: what has to be quick first, then the command line, then its failures."""

from __future__ import annotations

import gc
import os
import sys

from tfk8s.call_stack import roomy
from tfk8s.task import process_end

# A collector of spans is named by one of these; see features/spans.
_COLLECTOR = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_INTERRUPTED = 130
_STANDARD_ERROR = 2  # the last descriptor of a process' own streams


def process() -> None:
    """Run the command as `main` does, and end this process: to free each object before would take 20 ms.

    Files that are still open are not flushed, but for standard output and error.
    """
    code = main()
    try:
        process_end.finish()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:  # None: closed before Python began
                stream.flush()
    except (KeyboardInterrupt, SystemExit):  # the command is over, but for its output
        code = code or _INTERRUPTED
    except BrokenPipeError:  # `| head` has read enough
        from tfk8s.cli import output

        code = code or output.PIPE_CLOSED
    except OSError as error:  # the disk is full; a command that fails has said so
        from tfk8s.cli import error_report

        code = code or error_report.report(error)
    os._exit(code)


@roomy
def main() -> int:
    """Run the command that `sys.argv` names; return its exit code."""
    try:
        return _main(sys.argv[1:])
    except KeyboardInterrupt:
        return _INTERRUPTED


def _main(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        from tfk8s.version import __version__

        print(f"tfk8s {__version__}")  # noqa: T201
        return 0
    if arguments[:1] == ["server"] and sys.platform == "linux":
        from tfk8s.task import server

        return server.main(arguments[1:])
    return _command(arguments)


def _command(arguments: list[str]) -> int:
    from tfk8s.cli import signals

    gc.set_threshold(100_000)  # looking for garbage in what is imported takes a tenth of a short command's time
    _prepare_streams()
    signals.prepare()
    if not _may_start_here(arguments):
        return _run(arguments)
    from tfk8s.backends.local.supervision import supervisor_process

    with supervisor_process.started_early():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    if not _makes_span():
        return _report_errors(arguments)
    from tfk8s import api
    from tfk8s.cli.app import command_names

    with api.feature("spans").of_command(command_names(arguments)) as end:
        end(code := _report_errors(arguments))
    return code


def _may_start_here(arguments: list[str]) -> bool:
    """Return whether a command may start a cluster on this machine."""
    own = set(arguments[: arguments.index("--")] if "--" in arguments else arguments)  # the others are a script's
    is_start = arguments[:1] in (["up"], ["run"]) and not {"--help", "--dry-run", "--context"} & own
    is_here = "--local" in own or os.environ.get("TFK8S_LOCAL") == "1"
    return is_start and is_here and sys.platform == "linux"


def _makes_span() -> bool:
    if os.environ.get("_TFK8S_COMPLETE") or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False  # a shell asks for words at each TAB
    return any(os.environ.get(name) for name in _COLLECTOR)


def _report_errors(arguments: list[str]) -> int:
    from tfk8s.cli import signals

    try:
        from tfk8s.cli.app import main

        return main(arguments)
    except Exception as error:
        if (code := signals.exit_code()) is not None:
            return code
        from tfk8s.cli import error_report

        return error_report.report(error)


def _prepare_streams() -> None:
    """Have standard output and error take whatever is printed, and standard input end, even where they are closed.

    A file that this process opens would become the input or output of a script, else.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives
        else:
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    process()
