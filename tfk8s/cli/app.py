"""The commands as one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
import typer.main

from tfk8s.cli import images, inspect, job_file, kind, lifecycle, scripts
from tfk8s.cli.command import Command, Group, ScriptCommand
from tfk8s.cli.doctor import doctor
from tfk8s.cli.inspect import events
from tfk8s.cli.output import say
from tfk8s.version import __version__


def _version(wanted: bool) -> None:
    if wanted:
        say(f"tfk8s {__version__}")
        raise typer.Exit


def tfk8s(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Distributed TensorFlow on this machine or on Kubernetes, from one job file."""


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Print a script that completes commands in your shell.

    Examples:
        source <(tfk8s completion bash)
        tfk8s completion fish > ~/.config/fish/completions/tfk8s.fish
    """
    from tfk8s.cli.completion import SCRIPTS
    from tfk8s.errors import InvalidInput

    if shell not in SCRIPTS:
        raise InvalidInput(f'no completion for "{shell}"', help=f"there are {', '.join(SCRIPTS)}")
    say(SCRIPTS[shell])


def server(context: typer.Context) -> None:
    """Run one task's server by hand, in the foreground."""
    raise AssertionError(f"tfk8s.__main__ hands {context.args} over before")


# In the order of the help.
COMMANDS: dict[str, Callable[..., object]] = {
    function.__name__: function
    for function in (
        job_file.init, job_file.validate, job_file.schema, job_file.render,
        lifecycle.diff, lifecycle.up, scripts.submit, scripts.run, scripts.stop, scripts.connect,
        inspect.status, inspect.ls, inspect.devices, inspect.logs, events,
        lifecycle.scale, lifecycle.restart, lifecycle.down, job_file.roles,
        doctor, images.image, kind.kind, completion, server,
    )
}  # fmt: skip

# The commands that are groups of commands.
GROUPS: dict[str, dict[str, Callable[..., object]]] = {
    "image": {"build": images.build, "load": images.load, "push": images.push},
    "kind": {"up": kind.up, "down": kind.down},
}

_EXIT_CODES = "Exit codes: 0; 1 the cluster failed; 2 bad input; 3 a task failed; 124 a timeout; 130 Ctrl-C."


def program(*names: str) -> Any:
    """Return the program with these commands alone: Typer takes a millisecond to make one, and one is what runs."""
    app = _group(tfk8s, epilog=_EXIT_CODES)
    for name in names:
        if name in GROUPS:
            group = _group(COMMANDS[name])
            for function in GROUPS[name].values():
                group.command(cls=Command)(function)
            app.add_typer(group, name=name)
        else:
            app.command(cls=ScriptCommand if name in ("submit", "run") else Command)(COMMANDS[name])
    return typer.main.get_command(app)


def _group(function: Callable[..., object], **settings: Any) -> typer.Typer:
    app = typer.Typer(
        cls=Group,
        add_completion=False,  # `completion` instead
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(**settings)(function)
    return app


def main(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name; return its exit code.

    Raises:
        Tfk8sError: what went wrong, for the caller to print.
    """
    names = arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS
    if not arguments or list(arguments) in [[group] for group in GROUPS]:
        arguments = [*arguments, "--help"]
    try:
        result = program(*names).main(arguments, prog_name="tfk8s", standalone_mode=False)
    except Exception as error:
        say_usage = getattr(error, "format_message", None)
        if say_usage is None:
            raise
        from tfk8s.errors import InvalidInput

        path = getattr(getattr(error, "ctx", None), "command_path", "tfk8s")
        raise InvalidInput(say_usage(), help=f"{path} --help") from None
    return int(result or 0)
