"""Runs Helm. `HELM`: the program, where it is not `helm`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

HELM = os.environ.get("HELM", "helm")
CHART = Path(__file__).parents[2] / "helm" / "tfk8s"
# The Kubernetes that a chart is rendered for; a Helm that `go install` made believes in 1.20.
KUBERNETES = ["--kube-version", "1.30.0"]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def helm(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run it; what it says stands in the error where it fails."""
    done = subprocess.run([HELM, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert not check or done.returncode == 0, f"helm {' '.join(map(str, arguments))}: {done.stderr}"
    return done


def template(file: Path, *arguments: str | Path, chart: Path = CHART) -> list[dict[str, Any]]:
    """Return the objects of a job file, with the one of `helm test`."""
    made = helm("template", "release", chart, "--values", file, *KUBERNETES, *arguments)
    return [found for found in yaml.load_all(made.stdout, _Loader) if found]


def refusal(file: Path, *arguments: str) -> str:
    """Return what Helm says of a job file that it must not take."""
    done = helm("template", "release", CHART, "--values", file, *KUBERNETES, *arguments, check=False)
    assert done.returncode != 0, "helm took it"
    assert not done.stdout
    return done.stderr
