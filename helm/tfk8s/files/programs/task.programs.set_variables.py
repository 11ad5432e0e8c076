"""Finds in the source of a script, and of the modules beside it, the variables of the environment that it sets.

Standard library only: this file also runs in pods.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_MAX_FILES = 200
_IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\.*[\w., \t]*)", re.MULTILINE)
_OF_OS = {"putenv", "unsetenv"}
_CALLS = {"setdefault", "pop", "update"} | _OF_OS


@dataclass(frozen=True, slots=True)
class SetVariable:
    """A place that sets a variable.

    Attributes:
        file: the file.
        line: the line's number.
        name: the variable.
        value: the text that the variable gets; None if only a run can tell.
        keeps: whether a value of before is kept, as `setdefault` does.
    """

    file: Path
    line: int
    name: str
    value: str | None = None
    keeps: bool = False

    def changes(self, environment: Mapping[str, str]) -> bool:
        """Return whether the place gives the variable another value than it has."""
        if self.keeps and self.name in environment:
            return False
        return self.value is None or environment.get(self.name) != self.value


def find(script: Path, folder: Path, is_wanted: Callable[[str], bool]) -> Iterator[SetVariable]:
    """Yield the places of a script, and of the modules in a folder that it imports, which set a wanted variable.

    A file that can't be read or parsed has none: its import says why.
    """
    left, seen = [script], {script}
    while left and len(seen) <= _MAX_FILES:
        file = left.pop(0)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "environ" in text or "env(" in text:
            yield from _places(file, text, is_wanted)
        new = [module for module in _modules(text, folder, file.parent) if module not in seen]
        left += new
        seen.update(new)


def _places(file: Path, text: str, is_wanted: Callable[[str], bool]) -> Iterator[SetVariable]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        for name, value, keeps in _set_by(node):
            if is_wanted(name):
                yield SetVariable(file, getattr(node, "lineno", 0), name, value, keeps)


def _set_by(node: ast.AST) -> Iterator[tuple[str, str | None, bool]]:
    """Yield the variables that a node of the source sets, with their values, and whether a former value is kept."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
        value = None if isinstance(node, ast.Delete) else node.value
        for target in targets:
            if isinstance(target, ast.Subscript) and _is_environ(target.value) and (name := _text(target.slice)):
                yield name, _text(value) if isinstance(node, ast.Assign) else None, False
            elif isinstance(node, ast.AugAssign) and _is_environ(target):  # os.environ |= {…}
                yield from _of_mapping(node.value)
    elif isinstance(node, ast.Call) and (called := _name(node.func)) in _CALLS:
        of_environ = _is_environ(getattr(node.func, "value", None))
        yield from _set_by_call(called, node) if of_environ or called in _OF_OS else ()


def _set_by_call(called: str, node: ast.Call) -> Iterator[tuple[str, str | None, bool]]:
    if called == "update":
        yield from ((word.arg, _text(word.value), False) for word in node.keywords if word.arg)
        for argument in node.args:
            yield from _of_mapping(argument)
    elif node.args and (name := _text(node.args[0])):
        has_value = called in ("putenv", "setdefault") and len(node.args) > 1
        yield name, _text(node.args[1]) if has_value else None, called == "setdefault"


def _of_mapping(node: ast.AST) -> Iterator[tuple[str, str | None, bool]]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if name := _text(key):
                yield name, _text(value), False
    elif isinstance(node, ast.Call):  # dict(NAME="…")
        yield from ((word.arg, _text(word.value), False) for word in node.keywords if word.arg)


def _is_environ(node: ast.AST | None) -> bool:
    return node is not None and _name(node) == "environ"


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST | None) -> str:
    """Return the text of a constant; "" for everything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _modules(text: str, folder: Path, own: Path) -> Iterator[Path]:
    """Yield the files of modules that a source imports from its script's folder, or by a name with dots before."""
    for line in _IMPORT.findall(text):
        first, *more = re.split(r"\bimport\b", line, maxsplit=1)
        for words in first.split(","):
            name = (words.split() or [""])[0]
            dots = len(name) - len(name.lstrip("."))
            base = own.joinpath(*[".."] * (dots - 1)) if dots else folder
            parts = [part for part in name.lstrip(".").split(".") if part]
            names = [word.split()[0] for word in ",".join(more).split(",") if word.split()]
            for path in [*(parts[: end + 1] for end in range(len(parts))), *([*parts, each] for each in names)]:
                file = base.joinpath(*path)
                for candidate in (file.with_suffix(".py"), file / "__init__.py"):
                    if candidate.is_file():
                        yield candidate
