"""Writes the pages of reference that come from the code: the commands and the job file. Sphinx fills python.md."""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfk8s.cli.app import COMMANDS, program
from tfk8s.features.explain.here import type_name
from tfk8s.jobfile.schema import json_schema


def write_pages(folder: Path) -> None:
    """Write all pages into a folder."""
    folder.mkdir(exist_ok=True)
    for name, lines in (("commands", commands()), ("job-file", job_file())):
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n")
    shutil.copy(Path(__file__).with_name("python.md"), folder)


def commands() -> Iterator[str]:
    """Yield the lines of the page of all commands, as `--help` has them."""
    yield "# All commands and options\n"
    yield "This page has the text of `tfk8s COMMAND --help`. [Commands](../commands.md) has an overview.\n"
    for name in COMMANDS:
        command = program().get_command(None, name)
        yield from _command(f"tfk8s {name}", command)
        for child, inner in getattr(command, "commands", {}).items():
            yield from _command(f"tfk8s {name} {child}", inner)


def _command(name: str, command: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=name)
    yield f"## {name}\n\n```text\n{context.get_usage().removeprefix('Usage: ')}\n```\n"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        first, *examples = paragraph.splitlines()
        if first == "Examples:":
            yield "```console\n" + "\n".join(f"$ {line.strip()}" for line in examples) + "\n```\n"
        else:
            yield f"{_prose(paragraph)}\n"
    rows = [(parameter.metavar, parameter.help) for parameter in command.params if _is_argument(parameter)]
    yield from _table("argument", rows)
    options = (parameter for parameter in command.params if not _is_argument(parameter))
    yield from _table("option", list(filter(None, (option.get_help_record(context) for option in options))))


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def job_file() -> Iterator[str]:
    """Yield the lines of the page of all keys of a job file, as the JSON Schema has them."""
    schema = json_schema()
    yield "# All keys of a job file\n"
    yield "This page has the JSON Schema of job files as tables. [The job file](../job-file.md) describes their use.\n"
    yield from _struct("The job file", schema)
    definitions = schema["$defs"]
    for name in sorted(definitions, key=lambda name: (name != "Job", name)):
        yield from _struct(name, definitions[name])


def _struct(title: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"## {title}\n\n{_prose(schema.get('description', ''))}\n"
    rows = schema.get("properties", {})
    if not rows:
        return
    required = schema.get("required", [])
    yield "| key | value | meaning |\n| --- | --- | --- |"
    for name, value in rows.items():
        meaning = [value.get("description", "")]
        meaning += ["Required."] if name in required else []
        meaning += [f"Default: `{value['default']}`."] if value.get("default") not in (None, [], {}) else []
        meaning += [f"Example: `{json.dumps(value['examples'][0])}`."] if value.get("examples") else []
        yield f"| `{name}` | {_cell(_type(value))} | {_cell(' '.join(meaning))} |"
    yield ""


def _type(schema: Any) -> str:
    """Return the type of a value in words, with a link to a type that has a section."""
    return type_name(schema, lambda name: f"[{name}](#{name.lower()})", lambda value: f"`{json.dumps(value)}`")


def _table(title: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    if rows:
        yield f"| {title} | meaning |\n| --- | --- |"
        yield from (f"| `{_cell(name)}` | {_cell(_prose(text))} |" for name, text in rows)
        yield ""


def _prose(text: str) -> str:
    """Return a text as Markdown: what looks like HTML is shown as it is, and options are code."""
    text = text.replace("<", "\\<")
    return re.sub(r"(?<![\w`-])(--[a-z][a-z-]*)(?![`\w])", r"`\1`", text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
