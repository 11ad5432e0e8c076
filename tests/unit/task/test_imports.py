"""Functions that are called when a module is imported, and imports without a search for garbage."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfk8s.task.programs import imports

MODULE = "tfk8s_test_module"


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make a module that can be imported, with more objects than start a search for garbage."""
    (tmp_path / f"{MODULE}.py").write_text("objects = [[] for _ in range(10_000)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop(MODULE, None)


@pytest.fixture
def searches() -> Iterator[list[str]]:
    """Return a list that gets an item for each search for garbage."""
    found: list[str] = []
    thresholds = gc.get_threshold()  # a command that another test has run leaves a high one
    gc.set_threshold(700, 10, 10)
    gc.collect()
    gc.callbacks.append(search := lambda phase, _: found.append(phase))
    yield found
    gc.callbacks.remove(search)
    gc.set_threshold(*thresholds)


def test_an_import_looks_for_garbage(searches: list[str]) -> None:
    importlib.import_module(MODULE)
    assert searches


def test_an_import_can_do_without_a_search_for_garbage(searches: list[str]) -> None:
    imports.while_imported(MODULE, imports.without_garbage_collection)
    importlib.import_module(MODULE)
    assert not searches
    assert gc.isenabled()
    assert not gc.get_freeze_count()  # a later search looks at the module's objects


def test_a_collector_that_was_disabled_stays_so() -> None:
    gc.disable()
    try:
        with imports.without_garbage_collection():
            importlib.import_module(MODULE)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_collector_is_enabled_after_a_failed_import() -> None:
    with pytest.raises(ImportError), imports.without_garbage_collection():
        importlib.import_module("tfk8s_no_module")
    assert gc.isenabled()


def test_a_function_is_called_once_the_module_is_imported() -> None:
    calls: list[bool] = []
    imports.while_imported(MODULE, imports.without_garbage_collection)
    imports.when_imported(MODULE, lambda: calls.append(hasattr(sys.modules[MODULE], "objects")))
    assert not calls
    importlib.import_module(MODULE)
    assert calls == [True]
    imports.when_imported(MODULE, lambda: calls.append(True))
    assert calls == [True, True]
