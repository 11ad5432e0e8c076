"""Session scripts as users describe them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfk8s.cluster.scripts import make_script
from tfk8s.errors import InvalidInput


def test_a_script_must_be_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r'(?m)^there is no script "nope.py"$'):
        make_script("nope.py")
    with pytest.raises(InvalidInput, match=r'(?m)^"/.*" is a folder, not a script$'):
        make_script(tmp_path)
    with pytest.raises(InvalidInput, match=r'(?m)^"/dev/null" is a pipe or a device, not a script$'):
        make_script("/dev/null")


def test_a_script_must_be_readable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (script, os.R_OK))
    with pytest.raises(InvalidInput, match=rf'^script "{script}" can\'t be read: permission denied$'):
        make_script(script)
