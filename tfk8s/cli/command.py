"""The commands' base classes: how a command reads its arguments and shows its help.

Typer 0.29 checks each argument with pydantic, whose import takes longer than most of tfk8s' commands. Arguments of
tfk8s are words, lists of words and switches. Durations and numbers bring a callback that parses them, so the commands
leave pydantic out.

What users of kubectl write by habit works, or the error has the command to write.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# Options of kubectl that a command needs no option for: `exec` gives a terminal to what has one, and `ls` lists all
# namespaces.
_NEEDLESS = {"exec": {"-i", "-t", "-it", "-ti", "--stdin", "--tty"}, "ls": {"-A", "--all-namespaces"}}
_FILE_OPTIONS = ("-f", "--filename")  # before the job file
_NAMES = {"delete": "down", "describe": "status", "apply": "up", "create": "up"}  # commands of kubectl, and tfk8s' own


class _Unchecked:
    """Part of a command or a group: `process_value` of each parameter calls the parameter's callback and no more."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with `--help`."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of the other base
        for param in params:
            param.process_value = functools.partial(_process_value, param)
        return params


def _process_value(param: Any, context: Any, value: Any) -> Any:
    if value is None and (param.multiple or param.nargs == -1):
        value = ()
    if param.required and param.value_is_missing(value) and not context.resilient_parsing:
        return type(param).process_value(param, context, value)  # Typer's own error
    return value if value is None or param.callback is None else param.callback(context, param, value)


class Command(_Unchecked, TyperCommand):
    """A command that prints its docstring as its help, and names its arguments by their metavars."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, without kubectl's options that are needless here."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*self._without_habits(args[:end]), *args[end:]])

    def _without_habits(self, words: list[str]) -> list[str]:
        params: list[Any] = self.params
        own = {name for param in params for name in param.opts}
        takes_file = any(_is_argument(param) and str(param.metavar).endswith("FILE") for param in params)
        needless = _NEEDLESS.get(str(self.name), set()) | (set(_FILE_OPTIONS) - own if takes_file else set())
        return [word for word in words if word not in needless]

    def invoke(self, ctx: Any) -> Any:
        """Run the command; with `-o json`, an error is a document, and with `--result`, the end is written."""
        if ctx.params.get("result") is None:
            return self._invoke(ctx)
        from tfk8s.cli import result_file

        with result_file.written(ctx.params["result"], str(self.name)) as ending:
            ending.exit_code = int(self._invoke(ctx) or 0)
        return ending.exit_code

    def _invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            from tfk8s.cli import error_report, signals

            is_usage = hasattr(error, "format_message")  # `app.main` knows the command's path
            if ctx.params.get("output") is None or is_usage or signals.exit_code() is not None:
                raise
            return error_report.report(error, as_json=True)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line after the command's name."""
        del ctx
        return ["[OPTIONS]", *(_form(param) for param in self.params if _is_argument(param))]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the docstring: wrapped paragraphs, and examples line by line."""
        del ctx
        with formatter.indentation():
            for paragraph in inspect.cleandoc(self.help or "").split("\n\n"):
                formatter.write_paragraph()
                if "\n    " in paragraph:
                    formatter.write("".join(f"  {line}\n" for line in paragraph.splitlines()))
                else:
                    formatter.write_text(paragraph)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options, each with its help."""
        params: list[Any] = self.get_params(ctx)
        arguments = [(str(param.metavar), param.help or "") for param in params if _is_argument(param)]
        options = [param.get_help_record(ctx) for param in params if not _is_argument(param)]
        for title, rows in (("Arguments", arguments), ("Options", list(filter(None, options)))):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Group(_Unchecked, TyperGroup):
    """A group of commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names.

        Raises:
            InvalidInput: the word names a command of kubectl.
        """
        if not ctx.resilient_parsing and args[0] not in self.list_commands(ctx) and (advice := _in_tfk8s(*args)):
            from tfk8s.errors import InvalidInput

            raise InvalidInput(f'tfk8s has no command "{args[0]}"', help=advice)
        return super().resolve_command(ctx, args)


def _in_tfk8s(command: str, *arguments: str) -> str:
    """Return what to write instead of a command of kubectl; "" for another word."""
    if command not in _NAMES:
        return ""
    import shlex

    return shlex.join(["tfk8s", _NAMES[command], *arguments])


class ScriptCommand(Command):
    """A command whose second argument is a script. Everything after it goes to the script, even options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments up to the script."""
        words = self.split(args)
        end = words.index("--") + 1 if "--" in words else len(words)
        command = words[end:]
        if "--" in command and not self._without_habits(command[: command.index("--")]):  # `NAME TASK -it -- COMMAND`
            command = command[command.index("--") + 1 :]
        return super().parse_args(ctx, [*words[:end], *command])

    def split(self, words: list[str]) -> list[str]:
        """Return the words with one `--` after the second argument."""
        params: list[Any] = self.params
        take_value = {name for param in params if not _is_argument(param) and not param.is_flag for name in param.opts}
        position = seen = 0
        while position < len(words) and words[position] != "--":
            if not words[position].startswith("-"):
                seen += 1
            elif words[position] in take_value:
                position += 1
            position += 1
            if seen == 2:
                rest = words[position:]
                return [*words[:position], "--", *(rest[1:] if rest[:1] == ["--"] else rest)]
        return words

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return the options that complete a word. After the script there are none."""
        return [] if ctx.params.get("script") else super().shell_complete(ctx, incomplete)


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _form(param: Any) -> str:
    form = f"{param.metavar}..." if param.nargs == -1 else str(param.metavar)
    return form if param.required else f"[{form}]"
