"""Commands inside a task on this machine that can't start."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfk8s.backends import local_scripts
from tfk8s.backends.local import supervisor_client, task_commands
from tfk8s.backends.local.isolation import Isolation, Kind
from tfk8s.core.spec import Task

SHARED = Isolation(Kind.NONE, "")
NO_VOLUMES = SimpleNamespace(volumes=(), jobs=())


@pytest.mark.programs
@pytest.mark.parametrize(
    ("program", "code", "reason"),
    [
        ("absent", 127, "No such file or directory"),
        ("plain/program", 127, "Not a directory"),
        ("plain", 126, "Permission denied"),
        ("text", 126, "Exec format error"),
    ],
)
def test_a_command_that_can_not_start_has_the_exit_code_of_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str, code: int, reason: str
) -> None:
    (tmp_path / "plain").touch()
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    task = Task("worker", 0)
    folder: Any = SimpleNamespace(supervisor=os.getpid)
    tasks = [SimpleNamespace(task=task, environment={})]
    record: Any = SimpleNamespace(tasks=tasks, id="x", isolation=SHARED, job_file=NO_VOLUMES)
    path = str(tmp_path / program)
    assert task_commands.run(folder, record, task, [path]) == code
    assert capsys.readouterr().err == f"tfk8s: can't run {path}: {reason}\n"


def test_a_command_knows_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}
    monkeypatch.setattr(local_scripts, "run_program", lambda _, variables, **__: seen.update(variables) or 0)
    folder: Any = SimpleNamespace(supervisor=os.getpid)
    tasks = [SimpleNamespace(task=Task("worker", index), environment={"OF": str(index)}) for index in range(2)]
    record: Any = SimpleNamespace(tasks=tasks, id="x", isolation=SHARED, job_file=NO_VOLUMES)
    assert task_commands.run(folder, record, Task("worker", 1), ["a"]) == 0
    assert (seen["TFK8S_JOB"], seen["TFK8S_INDEX"], seen["OF"]) == ("worker", "1", "1")


@pytest.mark.programs
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_stacks_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [{"job": "worker", "index": 0, "pid": os.getpid()}, {"job": "worker", "index": 1, "pid": None}]
    observed = SimpleNamespace(tasks=tasks, scripts=[{"pid": os.getppid()}])
    monkeypatch.setattr(supervisor_client, "observe", lambda _: observed)
    folder: Any = SimpleNamespace(supervisor=os.getpid)
    record: Any = SimpleNamespace(isolation=SHARED, job_file=NO_VOLUMES)
    found = task_commands.read_stacks(folder, record, ["worker/0", "worker/1", f"pid {os.getppid()}", "pid 0"])
    assert [(entry.name, [process.pid for process in entry.processes], entry.problem) for entry in found] == [
        ("worker/0", [os.getpid()], ""),
        ("worker/1", [], "has no process"),
        (f"pid {os.getppid()}", [os.getppid()], ""),
        ("pid 0", [], "has no process"),
    ]
