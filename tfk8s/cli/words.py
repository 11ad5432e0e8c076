"""Makes `words.json`, from which the shell's completion knows the commands: `python -m tfk8s.cli.words`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("words.json")


def words() -> str:
    """Return the text of the file, as the commands are now."""
    from tfk8s.cli.app import COMMANDS, program

    return json.dumps(_commands(program(*COMMANDS)), indent=1) + "\n"


def _commands(group: Any) -> dict[str, Any]:
    return {name: _command(command) for name, command in group.commands.items()}


def _command(command: Any) -> dict[str, Any]:
    arguments = [param.metavar for param in command.params if param.param_type_name == "argument"]
    options: dict[str, dict[str, str | None]] = {"--help": {"help": "Show this message and exit.", "value": None}}
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            one = {"help": param.help, "value": None if param.is_flag else param.metavar}
            options.update(dict.fromkeys(sorted(param.opts, key=len, reverse=True), one))
    words = {"help": command.get_short_help_str(200), "arguments": arguments, "options": options}
    return words | {"commands": _commands(command)} if hasattr(command, "commands") else words


if __name__ == "__main__":
    FILE.write_text(words())
