"""The files of this package that a file imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import tfk8s

PACKAGE = Path(tfk8s.__file__).parent


def closure(start: Iterable[str], *, late: bool) -> set[str]:
    """Return files and all that they import, by their paths in the package.

    Args:
        start: the first files.
        late: whether imports in functions count.
    """
    needed: set[str] = set()
    pending = ["__init__.py", *start]
    while pending:
        path = pending.pop()
        if path not in needed:
            needed.add(path)
            pending += _imported(PACKAGE / path, late=late)
    return needed


def _imported(path: Path, *, late: bool) -> Iterator[str]:
    """Yield what a file imports, but for type checkers alone."""
    tree = ast.parse(path.read_text())
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    ignored = {id(node) for check in checks for node in ast.walk(check)}
    for node in ast.walk(tree) if late else tree.body:
        if id(node) in ignored or not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] != "tfk8s":
            continue
        folder = PACKAGE.joinpath(*str(node.module).split(".")[1:])
        for name in [folder, *(folder / alias.name for alias in node.names)]:
            for file in (name.with_suffix(".py"), name / "__init__.py"):
                if file.exists():
                    yield file.relative_to(PACKAGE).as_posix()
