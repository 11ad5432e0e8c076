"""The table of entries in docs/entries.md."""

from __future__ import annotations

import entries
import pytest


def test_the_page_has_the_table_of_the_tests() -> None:
    text = entries.PAGE.read_text()
    assert text == entries.page(text)


def test_scripts_of_entries_are_python() -> None:
    for entry in entries.ENTRIES:
        for uses in (*entries.GROUPS, entries.ALL):
            compile(entries.script(entry, uses), "script.py", "exec")


def test_output_that_is_not_as_the_table_says_fails() -> None:
    entries.require("submit", ["session"], "session: 238.0\n")
    entries.require("here", ["strategy"], f"strategy: InvalidInput: {entries.REFUSED['here', 'strategy'].words}\n")
    with pytest.raises(AssertionError, match="here, strategy: no “tfk8s"):
        entries.require("here", ["strategy"], "strategy: 238.0\n")
