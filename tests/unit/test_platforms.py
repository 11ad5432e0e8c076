"""Runs the commands for Kubernetes as on macOS and Windows: what Python has not there is taken away."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import platforms

from tfk8s.cli.app import COMMANDS, GROUPS

ROOT = Path(__file__).parents[2]
FILE = str(ROOT / "examples/tutorial/cluster.yaml")
SCRIPT = str(ROOT / "examples/between_graph/replica.py")
# The arguments with which each command runs on the fake backend, which has the cluster `mnist`.
WORKING = {
    "init": "--help", "validate": FILE, "explain": "", "schema": "", "version": "", "render": FILE, "diff": FILE,
    "up": FILE,
    "submit": f"mnist {SCRIPT}", "run": f"{FILE} {SCRIPT}", "wait": "mnist --help", "stop": "mnist script-4e9c21",
    "status": "mnist", "ls": "", "history": "", "devices": "mnist", "logs": "mnist", "exec": "mnist worker/0 ls",
    "cp": "mnist worker/0:/ckpt/model model", "stacks": "mnist", "top": "mnist",
    "events": "mnist", "scale": "mnist worker=3", "restart": "mnist", "suspend": "--yes mnist", "resume": "mnist",
    "down": "mnist", "roles": "",
    "tensorboard": "--help", "image": "build --help", "kind": "up --help", "completion": "bash",
    "connect": "--help", "dashboard": "--help", "notebook": "--help",
}  # fmt: skip
# Commands that another system refuses, by the system, and what their error says.
REFUSED = {
    f"up --local {FILE}": ("clusters on this machine need Linux", platforms.SYSTEMS),
    "status --local mnist": ("clusters on this machine need Linux", platforms.SYSTEMS),
    "notebook mnist": ("notebooks need Linux", platforms.SYSTEMS),
    f"submit --here mnist {SCRIPT}": ("scripts on this machine need Linux", ("win32",)),
    "connect mnist": ("sessions from this machine need Linux", ("win32",)),
}  # fmt: skip
# Of `doctor`: the API server is real in its other checks (tests/cluster).
DOCTOR = "doctor --local"
pytestmark = pytest.mark.programs


def refused(system: str) -> list[str]:
    return [command for command, (_, systems) in REFUSED.items() if system in systems]


def commands(system: str) -> list[str]:
    return [f"{name} {words}" for name, words in WORKING.items()] + refused(system) + [DOCTOR]


def outcomes() -> dict[str, Any]:
    asked = {system: [text.split() for text in commands(system)] for system in platforms.SYSTEMS}
    command = [sys.executable, "tests/fakes/elsewhere.py", json.dumps(asked)]
    environment = {"PYTHONPATH": "tests:.", "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


def test_all_commands_are_tried() -> None:
    assert {*WORKING, "doctor", "server"} == {*COMMANDS}
    assert GROUPS.keys() <= WORKING.keys()


def test_commands() -> None:
    """All that one process shows is one test, so that xdist starts that process once."""
    for system, found in outcomes().items():
        results = dict(zip(commands(system), found["results"], strict=True))
        require_commands_for_kubernetes(results)
        require_one_error_without_linux(system, results)
        require_clients_alone(system, found["modules"])


def require_commands_for_kubernetes(results: dict[str, Any]) -> None:
    found = {name: results[f"{name} {words}"] for name, words in WORKING.items()}
    assert {name: result for name, result in found.items() if result[0]} == {"diff": [1, ""]}  # 1: there are changes


def require_one_error_without_linux(system: str, results: dict[str, Any]) -> None:
    for command in refused(system):
        code, error = results[command]
        name = {"darwin": "macOS", "win32": "Windows"}[system]
        assert (code, error.splitlines()[0]) == (2, f"error: {REFUSED[command][0]}, not {name}"), command
    container = "docker run -it -v .:/work -w /work python:3.13 bash, then pip install 'tfk8s[local]'"
    assert container in results[f"up --local {FILE}"][1]
    assert ("WSL" in results[f"up --local {FILE}"][1]) == (system == "win32")
    assert results[DOCTOR][0] == 1


def require_clients_alone(system: str, modules: list[str]) -> None:
    """Check that no module of local clusters is loaded, and that mypy checks the types of what is."""
    assert [name for name in modules if name.startswith("tfk8s.backends.local.")] == []
    pattern = re.search(r"^LINUX_ONLY = (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pattern
    run_in_pods = ("tfk8s.sessions.", "tfk8s.task.", "tfk8s.training.")
    paths = [name.replace(".", "/") + ".py" for name in modules if not name.startswith(run_in_pods)]
    unchecked = sorted(path for path in paths if re.search(pattern[1], path))
    refusing = {"tfk8s/backends/local_scripts.py": ("win32",)}
    assert unchecked == [path for path, systems in refusing.items() if system in systems]


def test_the_other_system_lacks_what_typeshed_says() -> None:
    assert {"fork", "pidfd_open", "geteuid"} <= platforms.absent("os", "win32")
    assert "pidfd_open" in platforms.absent("os", "darwin")
    assert "fork" not in platforms.absent("os", "darwin")
    assert {"SIGHUP", "SIGALRM", "SIGKILL"} <= platforms.absent("signal", "win32")
    assert "poll" in platforms.absent("select", "win32")
