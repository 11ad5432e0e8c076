"""The command line: all commands as one Typer program."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from tfk8s.cli.command import Command, Group, ScriptCommand
from tfk8s.cli.completion import keep_quick, one_of
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


# The module of each command, which is imported when chosen, and the first line of its help; in the order of the help.
COMMANDS = {
    "init": ("features.init.command", "Write a commented job file, cluster.yaml."),
    "validate": ("cli.job_file", "Check a job file, and print every problem."),
    "explain": ("features.explain.command", "Describe a field of job files."),
    "schema": ("features.explain.command", "Print the JSON Schema of job files."),
    "render": ("features.render.command", "Print Kubernetes objects, or a task's configuration."),
    "diff": ("cli.diff", "Show what `up` would change, without changing anything."),
    "up": ("cli.lifecycle", "Start a cluster, and wait until every task is ready."),
    "submit": ("cli.scripts", "Run a session script next to the master."),
    "run": ("cli.scripts", "Start a cluster, run its programs or a script, and remove it."),
    "wait": ("cli.programs", "Wait until the programs of a cluster have ended."),
    "stop": ("cli.scripts", "Stop a script that `tfk8s submit` started, and delete its log."),
    "connect": ("cli.scripts", "Forward a local port to the master, until Ctrl-C."),
    "notebook": ("features.notebook.command", "Open JupyterLab with the cluster's sessions, until Ctrl-C."),
    "tensorboard": ("features.tensorboard.command", "Open TensorBoard with what scripts write, until Ctrl-C."),
    "status": ("cli.inspect", "Show a cluster and its tasks."),
    "ls": ("cli.inspect", "List your clusters, of all namespaces without -n."),
    "history": ("features.history.command", "List the clusters that ran, the newest first."),
    "devices": ("cli.inspect", "Show the devices of each task: CPUs, GPUs, their memory."),
    "logs": ("cli.tasks", "Print the output of tasks, or of a script."),
    "exec": ("cli.tasks", "Run a command beside a task's server."),
    "cp": ("features.file_copies.command", "Copy a file or a folder from a task's container, or to it."),
    "stacks": ("features.stacks.command", "Show where tasks and scripts are, if nothing moves."),
    "top": ("features.top.command", "Show what tasks and scripts use: CPU, memory, network, GPUs."),
    "dashboard": ("features.dashboard.command", "Open a live page of your clusters, until Ctrl-C."),
    "events": ("cli.inspect", "List the events of a cluster, oldest first."),
    "scale": ("cli.lifecycle", "Change the number of tasks of jobs."),
    "restart": ("cli.lifecycle", "Restart a task, or all tasks."),
    "suspend": ("features.suspension.command", "End all tasks of a cluster, and keep the rest until `resume`."),
    "resume": ("features.suspension.command", "Start a suspended cluster again, and wait until all is ready."),
    "down": ("cli.lifecycle", "Remove a cluster: all that `tfk8s up` created, but claims."),
    "roles": ("features.render.command", "Print the Roles that users of a shared namespace need."),
    "doctor": ("features.doctor.command", "Check what is missing here, and say how to fix it."),
    "image": ("features.images.command", "Build images with TensorFlow, load them into kind, push them."),
    "kind": ("features.images.kind_command", "Create and delete kind clusters for trying tfk8s."),
    "completion": ("cli.app", "Print a script that completes commands in your shell."),
    "version": ("cli.app", "Print the version of tfk8s."),
    "server": ("cli.app", "Run one task's server by hand, in the foreground."),
}

# The commands that are groups of commands.
GROUPS = {"image": ("build", "load", "push"), "kind": ("up", "down")}


def command_names(arguments: Sequence[str]) -> list[str]:
    """Return the command that the arguments name, without the rest of them; [] for an unknown command."""
    group, *rest = [*arguments[:2]] or [""]
    members = GROUPS.get(group, ())
    return [name for name in (group, *rest) if name in COMMANDS or name in members][: 1 + bool(members)]


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

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the commands and options that complete a word. Builds commands without their parameters."""
        del ctx
        commands: Any = {name: TyperCommand(name, help=line) for name, (_, line) in COMMANDS.items()}
        names = TyperGroup(name=self.name, commands=commands, params=self.params)
        return list(names.shell_complete(typer.Context(names), incomplete))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with the first line of its docstring. Builds no command: all would take 40 ms."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@functools.cache
def program() -> CommandLine:
    """Return the command line."""
    group = typer.main.get_command(_app(tfk8s, CommandLine, add_completion=True, epilog=_EXIT_CODES))
    assert isinstance(group, CommandLine)
    group.params = [param for param in group.params if param.name == "version"]  # `completion` replaces the others
    return group


@functools.cache
def _command(name: str) -> Any:
    module = importlib.import_module(f"tfk8s.{COMMANDS[name][0]}")
    if name in GROUPS:
        app = _app(getattr(module, name), Group)
        for member in GROUPS[name]:
            app.command(cls=Command)(getattr(module, member))
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        kind = ScriptCommand if name in ("submit", "run", "exec") else Command
        app.command(name, cls=kind)(getattr(module, name))
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
