"""Names in the package are unique."""

from __future__ import annotations

import ast
import re
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


def test_tests_patch_no_private_name() -> None:
    """`os._exit` is a public function of Python."""
    patched = re.compile(r"setattr\([\w.]+, \"_(?!_|exit\")")
    tests = Path(__file__).parents[1]
    assert [path.name for path in tests.rglob("*.py") if patched.search(path.read_text())] == []
