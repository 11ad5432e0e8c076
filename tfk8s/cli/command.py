"""The commands' base classes: how a command reads its arguments and shows its help.

Typer 0.29 checks each argument with pydantic, whose import takes longer than most of tfk8s' commands. Arguments of
tfk8s are words, lists of words and switches. Durations and numbers bring a callback that parses them, so the commands
leave pydantic out.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from typer.core import TyperCommand, TyperGroup


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


class ScriptCommand(Command):
    """A command whose second argument is a script. Everything after it goes to the script, even options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments up to the script."""
        return super().parse_args(ctx, self.split(args))

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
