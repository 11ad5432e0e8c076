"""The tree as docs/architecture.md and house rules have it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tfk8s.backends.protocol import Backend

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tfk8s"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PAGES = PAGE + "".join(page.read_text() for page in sorted((ROOT / "docs" / "architecture").glob("*.md")))
MODULES = sorted(PACKAGE.rglob("*.py"))
CLAUSE = re.compile(r"^ *r?\"\"\"\s*((?:who|what|where|whether|how)(?:ever)?\b.*)", re.IGNORECASE | re.MULTILINE)
CLASS = re.compile(r"^ *class (\w+)", re.MULTILINE)


def table(heading: str) -> list[str]:
    """Return the first cells of the first table below a heading."""
    rows = re.findall(r"^\| (.*?) \|", PAGE.partition(heading)[2].partition("\n\n## ")[0], re.MULTILINE)
    return [row for row in rows[1:] if not row.startswith("---")]


def test_the_page_has_the_layers_that_import_linter_checks() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["tfk8s"]]
    assert [set(re.findall(r"\w+", row)) for row in table("# Architecture")] == [
        set(layer.split(" | ")) for layer in layers
    ]


def test_the_tree_needs_few_rows_to_be_found() -> None:
    assert len(table("## Find the place")) <= 20


def test_modules_on_the_pages_exist() -> None:
    for path in re.findall(r"`([\w/]+/(?:\w+\.py)?)`", PAGES):
        known = [PACKAGE / path, ROOT / path, PACKAGE / "backends" / path, PACKAGE / "backends" / "kubernetes" / path]
        assert any(place.exists() for place in known), path


def test_folders_and_modules_are_small() -> None:
    assert len([path for path in PACKAGE.iterdir() if path.is_file()]) <= 12
    for folder in {path.parent for path in MODULES}:
        assert len([path for path in folder.iterdir() if path.is_file()]) <= 20, folder
    for module in MODULES:
        assert len(module.read_text().splitlines()) <= 300, module


def test_no_file_name_is_there_three_times() -> None:
    names = Counter(module.stem for module in MODULES)
    often = {"__init__", "command", "here", "pod"}  # the rooms of features
    often.add("lifetime")  # the limits of a cluster: the core's, each place's, the rendered ones, and their Job's
    assert {name for name, count in names.items() if count > 2} <= often


def test_docstrings_name_a_thing_or_an_action() -> None:
    assert [text for module in MODULES for text in CLAUSE.findall(module.read_text())] == []


def test_each_class_has_a_name_of_its_own() -> None:
    names = Counter(name for module in MODULES for name in CLASS.findall(module.read_text()))
    assert [name for name, count in names.items() if count > 1] == []


def test_a_backend_has_twelve_methods_and_parts() -> None:
    """Later verbs go into the parts."""
    methods = [name for name, value in vars(Backend).items() if callable(value) and not name.startswith("_")]
    assert len(methods) <= 12, methods


def test_no_name_of_a_backend_is_compared() -> None:
    compared = re.compile(r"backend\.name (?:==|!=|in|not in) ")
    assert [module.name for module in MODULES if compared.search(module.read_text())] == []


def test_forks_mask_signals_until_they_have_their_own_handlers() -> None:
    """`processes.fork` does. The supervisor's own process forks before it has any handler."""
    local = [module for module in MODULES if "local" in module.parts]
    assert [module.name for module in local if "os.fork()" in module.read_text()] == ["supervise.py"]


def test_tests_patch_no_private_name() -> None:
    """`os._exit` is a public function of Python."""
    patched = re.compile(r"setattr\([\w.]+, \"_(?!_|exit\")")
    assert [path.name for path in (ROOT / "tests").rglob("*.py") if patched.search(path.read_text())] == []


@pytest.mark.parametrize("module", ["core/environment.py", "sessions/timing.py"])
def test_the_pages_have_the_tables_of_variables_and_timing(module: str) -> None:
    text = ast.get_docstring(ast.parse((PACKAGE / module).read_text())) or ""
    rows = [line.strip() for line in text.splitlines() if line.startswith(("    ", "|"))]
    assert rows
    assert [row for row in rows if row not in PAGES] == []
