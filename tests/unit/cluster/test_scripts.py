"""Session scripts as users describe them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tfk8s.cluster.scripts import describe_use, make_script
from tfk8s.core.lifetime import Limits
from tfk8s.errors import InvalidInput
from tfk8s.testing import FakeBackend


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


def test_amounts_are_read_as_in_a_job_file(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    made = make_script(script, cpu=1.5, memory="4Gi")
    assert str(made.resources) == "cpu=1.5,memory=4Gi"
    assert not make_script(script).resources
    with pytest.raises(InvalidInput) as caught:
        make_script(script, memory="4GB")
    assert str(caught.value) == '--memory: "4GB" is not a quantity: expected a number of bytes, such as 4Gi or 512Mi'
    assert caught.value.help == "write 4Gi or 4G"
    with pytest.raises(InvalidInput, match="--cpu: "):
        make_script(script, cpu="-1")


@pytest.mark.parametrize(
    ("lease", "rest"), [(None, " and keeps it"), *((lease, ", and the last `run` removes it") for lease in (900, 0.0))]
)
def test_what_becomes_of_a_cluster_that_run_has_found(backend: FakeBackend, lease: float | None, rest: str) -> None:
    status = replace(backend.observe("mnist"), limits=Limits(None, None, lease))
    assert describe_use(status, changed=False) == f'cluster "mnist" already runs: run uses it{rest}'
