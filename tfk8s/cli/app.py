"""The command line: all commands as one Typer program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
import typer.main

from tfk8s.cli import inspect, job_file, lifecycle, pages, programs, scripts, tasks
from tfk8s.cli.command import Command, Group, ScriptCommand
from tfk8s.cli.completion import keep_quick, one_of
from tfk8s.cli.doctor import doctor
from tfk8s.cli.groups import images, kind
from tfk8s.cli.inspect import events
from tfk8s.cli.output import say
from tfk8s.version import __version__


def _version(requested: bool) -> None:
    if requested:
        say(f"tfk8s {__version__}")
        raise typer.Exit


def tfk8s(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Distributed TensorFlow on this machine or on Kubernetes, from one job file."""
    del version  # `_version` has printed it
    from tfk8s.cli import log_handler  # here, since `--help` does without: to import logging takes 5 ms

    log_handler.install()


def version() -> None:
    """Print the version of tfk8s.

    Examples:
        tfk8s version
    """
    _version(requested=True)


_SHELLS = ("bash", "zsh", "fish")


def completion(
    context: typer.Context,
    shell: Annotated[
        str,
        typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False, autocompletion=one_of(*_SHELLS)),
    ],
) -> None:
    """Print a script that completes commands in your shell.

    Examples:
        source <(tfk8s completion bash)
        tfk8s completion fish > ~/.config/fish/completions/tfk8s.fish
    """
    from typer.completion import show_callback

    from tfk8s.errors import InvalidInput

    if shell not in _SHELLS:
        raise InvalidInput(f'no completion for shell "{shell}"', help=f"use {', '.join(_SHELLS)}")
    show_callback(context, context.command.params[0], shell)


def server(context: typer.Context) -> None:
    """Run one task's server by hand, in the foreground."""
    from tfk8s import platforms

    platforms.require_linux("servers")
    raise AssertionError(f"tfk8s.__main__ runs the server: {context.args}")


# In the order of the help.
COMMANDS: dict[str, Callable[..., object]] = {
    function.__name__: function
    for function in (
        job_file.init, job_file.validate, job_file.explain, job_file.schema, job_file.render,
        lifecycle.diff, lifecycle.up, scripts.submit, scripts.run, programs.wait, scripts.stop, scripts.connect,
        pages.notebook, pages.tensorboard, inspect.status, inspect.ls, inspect.devices, tasks.logs, tasks.exec,
        tasks.stacks, events,
        lifecycle.scale, lifecycle.restart, lifecycle.down, job_file.roles,
        doctor, images.image, kind.kind, completion, version, server,
    )
}  # fmt: skip

# The commands that are groups of commands.
GROUPS: dict[str, dict[str, Callable[..., object]]] = {
    "image": {"build": images.build, "load": images.load, "push": images.push},
    "kind": {"up": kind.up, "down": kind.down},
}

_EXIT_CODES = "Exit codes: 0 success; 1 the cluster failed; 2 bad input; 3 a task failed; 124 timeout; 130 Ctrl-C."


class CommandLine(Group):
    """The group of all commands. Builds a command on demand, because Typer takes a millisecond for each."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command. For an unknown name, build all commands: Typer suggests similar names."""
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            self.add_command(_command(name), name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with the first line of its docstring. Builds no command: all would take 40 ms."""
        del ctx
        lines = ((name, (function.__doc__ or "").partition("\n")[0]) for name, function in COMMANDS.items())
        with formatter.section("Commands"):
            formatter.write_dl(list(lines))


@functools.cache
def program() -> CommandLine:
    """Return the command line."""
    group = typer.main.get_command(_app(tfk8s, CommandLine, add_completion=True, epilog=_EXIT_CODES))
    assert isinstance(group, CommandLine)
    group.params = [param for param in group.params if param.name == "version"]  # `completion` replaces the others
    return group


@functools.cache
def _command(name: str) -> Any:
    if name in GROUPS:
        app = _app(COMMANDS[name], Group)
        for function in GROUPS[name].values():
            app.command(cls=Command)(function)
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name, cls=ScriptCommand if name in ("submit", "run", "exec") else Command)(COMMANDS[name])
    return typer.main.get_command(app)


def _app(
    function: Callable[..., object], cls: type[Group], *, add_completion: bool = False, **settings: Any
) -> typer.Typer:
    app = typer.Typer(
        cls=cls,
        add_completion=add_completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(**settings)(function)
    return app


def main(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name; return its exit code.

    Raises:
        Tfk8sError: the command failed; the caller prints the error.
    """
    if not arguments or list(arguments) in [[group] for group in GROUPS]:
        arguments = [*arguments, "--help"]
    keep_quick()
    try:
        result = program().main(arguments, prog_name="tfk8s", standalone_mode=False)
    except Exception as error:
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        from tfk8s.errors import InvalidInput

        path = getattr(getattr(error, "ctx", None), "command_path", "tfk8s")
        raise InvalidInput(format_message(), help=f"{path} --help") from None
    return int(result or 0)
