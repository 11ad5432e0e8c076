"""Programs on this machine that can't start."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
