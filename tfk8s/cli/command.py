"""How every command reads its arguments and shows its help, with Typer.

Typer (0.29) checks each argument with pydantic, whose import takes longer than most of tfk8s' commands. Arguments here
are words, lists of words and switches, and what has a form of its own (a duration, a number) brings its parser: for
these, `_Plain` does the same in a few lines. Where Typer has no such hook, as in older versions, nothing changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

_PLAIN = (str, bool, list[str])


class _CheckedPlainly:
    """What a command and a group have in common: all of their arguments are checked in the plain way."""

    params: list[Any]

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        _check_plainly(self.params)

    def get_help_option(self, ctx: Any) -> Any:
        """Return `--help`, which is made later than the rest."""
        option = super().get_help_option(ctx)  # type: ignore[misc]  # of the other base
        _check_plainly([option])
        return option


class Command(_CheckedPlainly, TyperCommand):
    """A command whose help is its docstring as it is, and speaks of its arguments by their metavars."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what follows the command's name in the usage line."""
        del ctx
        return ["[OPTIONS]", *(_form(param) for param in self.params if _is_argument(param))]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the docstring: its paragraphs, and its examples line by line."""
        del ctx
        with formatter.indentation():
            for paragraph in inspect.cleandoc(self.help or "").split("\n\n"):
                formatter.write_paragraph()
                if "\n    " in paragraph:
                    formatter.write("".join(f"  {line}\n" for line in paragraph.splitlines()))
                else:
                    formatter.write_text(paragraph)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options, each with its line of help."""
        params: list[Any] = self.get_params(ctx)
        arguments = [(str(param.metavar), param.help or "") for param in params if _is_argument(param)]
        options = [param.get_help_record(ctx) for param in params if not _is_argument(param)]
        for title, rows in (("Arguments", arguments), ("Options", list(filter(None, options)))):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Group(_CheckedPlainly, TyperGroup):
    """The program that the commands are of."""


class ScriptCommand(Command):
    """A command whose second argument is a script: what follows that is the script's own, even options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Have the parser stop at the script."""
        return super().parse_args(ctx, self.split(args))

    def split(self, words: list[str]) -> list[str]:
        """Return the words with `--` after the second argument; a `--` that stands there already is that one."""
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


class _Plain:
    """Stands in for Typer's check of one argument."""

    def __init__(self, parser: Callable[[str], object] | None) -> None:
        self._parser = parser

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if self._parser is None:
            return value
        try:
            return self._parser(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from error


def _check_plainly(params: Iterable[Any]) -> None:
    for param in params:
        kind = getattr(param, "type_descriptor", None)
        if kind is not None and (kind.parameter_info.parser or kind.annotation in _PLAIN):
            param._runtime_param = _Plain(kind.parameter_info.parser)


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _form(param: Any) -> str:
    form = f"{param.metavar}..." if param.nargs == -1 else str(param.metavar)
    return form if param.required else f"[{form}]"
