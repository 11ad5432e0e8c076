"""Functions that run Helm; the variable `HELM` names the program (default: helm)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml_text

HELM = os.environ.get("HELM", "helm")
CHART = Path(__file__).parents[2] / "helm" / "tfk8s"
# The version of Kubernetes. A Helm that was built by `go install` would use 1.20.
KUBERNETES = ["--kube-version", "1.30.0"]


def helm(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Helm; a failure raises an error with Helm's message."""
    process = subprocess.run([HELM, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert not check or process.returncode == 0, f"helm {' '.join(map(str, arguments))}: {process.stderr}"
    return process


def template(file: Path, *arguments: str | Path, chart: Path = CHART) -> list[dict[str, Any]]:
    """Return the objects of a job file, including the pod of `helm test`."""
    process = helm("template", "release", chart, "--values", file, *KUBERNETES, *arguments)
    return [item for item in yaml_text.read_all(process.stdout) if item]


def rejection(file: Path, *arguments: str) -> str:
    """Return Helm's error for an invalid job file."""
    process = helm("template", "release", CHART, "--values", file, *KUBERNETES, *arguments, check=False)
    assert process.returncode != 0, "Helm accepted the file"
    assert not process.stdout
    return process.stderr
