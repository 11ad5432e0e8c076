"""The examples of the page of Python, on the fake backend."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from job_files import job_file

import tfk8s
from tfk8s.backends.history import bucket_reader
from tfk8s.backends.history.merging import Pulled
from tfk8s.core.status import ScriptPhase, ScriptStatus
from tfk8s.testing import FakeBackend, use_backend

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_each_command_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asked: list[str] = []
    monkeypatch.setattr(bucket_reader, "pull", lambda url, *_, **__: asked.append(url) or Pulled())
    (tmp_path / "train.py").touch()
    (tmp_path / "cluster.yaml").write_text("apiVersion: tfk8s.dev/v1\nname: next\njobs: {worker: {tasks: 2, cpu: 1}}\n")
    _, example = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with use_backend(FakeBackend(job_file("mnist", worker=4, ps=1))) as backend:
        script = ScriptStatus(name="script-4e9c21", phase=ScriptPhase.SUCCEEDED, command="train.py", exit_code=0)
        backend.statuses["mnist"] = dataclasses.replace(backend.statuses["mnist"], scripts=(script,))
        exec(compile(example, str(PAGE), "exec"), {"tfk8s": tfk8s})  # noqa: S102 - our own page
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "script-4e9c21 Succeeded"
    assert lines[-1] == "nothing 2 cpu"
    assert asked == ["s3://team/tfk8s"]
    assert {"scale mnist {'worker': 8}", "delete mnist", "plan next"} <= set(backend.calls)
