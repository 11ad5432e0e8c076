"""The commands in the documentation and in the help, for the tests that run them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfk8s.cli.app import COMMANDS, program

ROOT = Path(__file__).parents[1]
_PAGES = ("*.md", "docs/*.md", "docs/architecture/*.md", "examples/**/*.md")  # docs/reference is written by `make site`
PAGES = [page for pattern in _PAGES for page in sorted(ROOT.glob(pattern))]

# Pages whose commands run on real clusters, where their output is compared with the page.
REAL = [
    "README.md", "docs/local.md", "docs/tutorial.md", "examples/data_service/README.md", "examples/modern/README.md",
    "examples/parameter_server/README.md", "examples/tutorial/README.md",
]  # fmt: skip

_BLOCK = re.compile(r"^( *)```console\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^    .*\n)+", re.MULTILINE)


@dataclass(frozen=True)
class PageCommand:
    """A command after "$ ", without its comment, and the output that the page shows below it."""

    page: str
    text: str
    output: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def page_commands(path: Path) -> list[PageCommand]:
    """Return the commands of a page, in order."""
    text, name = path.read_text(), str(path.relative_to(ROOT))
    blocks = [re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in _BLOCK.findall(text)]
    blocks += [re.sub("^    ", "", block, flags=re.MULTILINE) for block in _INDENTED.findall(_BLOCK.sub("", text))]
    return [command for block in blocks for command in _commands(name, block)]


def page_output(page: str, text: str) -> str:
    """Return what a page shows below the last command that begins so."""
    shown = [command.output for command in page_commands(ROOT / page) if command.text.startswith(text)]
    return f"{shown[-1]}\n"


def _commands(page: str, block: str) -> Iterator[PageCommand]:
    for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield PageCommand(page, re.sub(r"\s+# .*", "", command), output.strip("\n"))


def help_commands() -> Iterator[PageCommand]:
    """Yield the examples in the help of all commands."""
    for name in COMMANDS:
        command = program().get_command(None, name)
        for one in (command, *getattr(command, "commands", {}).values()):
            examples = inspect.cleandoc(one.help or "").partition("\nExamples:\n")[2].partition("\n\n")[0]
            yield from (PageCommand(f"help: {line.strip()}", line.strip(), "") for line in examples.splitlines())
