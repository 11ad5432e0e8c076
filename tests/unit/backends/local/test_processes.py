"""Processes on this machine: programs that can't start, and the children of a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tfk8s.sessions.forks import processes

SPAWN = """
import os
from tfk8s.sessions.forks import processes
pid = processes.spawn(["absent"], [0, 1, 2], {"PATH": "/bin:/usr/bin"})
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.programs
def test_a_command_that_is_not_there_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", SPAWN], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (127, "can't start absent: No such file or directory\n")


@pytest.mark.programs
def test_a_process_has_children_and_they_have_children() -> None:
    family = "import os, subprocess, sys; print(os.getpid(), flush=True); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {family!r}], env={{}})"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        assert {process.pid, grandchild} <= processes.with_children([os.getpid()])
        assert processes.with_children([grandchild]) == {grandchild}
        process.communicate("")
