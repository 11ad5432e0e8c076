"""Names in the package are unique."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import tfk8s

PACKAGE = Path(tfk8s.__file__).parent


def test_each_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
