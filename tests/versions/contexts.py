"""`make test-kubernetes-versions`: the clusters that contexts of the kubeconfig lead to, and the tests on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from versions import features, results

REPOSITORY = Path(__file__).parents[2]


def test(contexts: Sequence[str], whole: Sequence[str], helms: Sequence[str]) -> Iterator[tuple[str, results.Result]]:
    """Yield the results of runs with their names.

    Args:
        contexts: for the tests of features.
        whole: for the whole cluster suite.
        helms: programs, such as "helm3", for the tests of the chart on the first cluster.
    """
    runs = [
        *((context, features.KUBERNETES) for context in contexts),
        *((context, features.WHOLE) for context in whole),
    ]
    if not runs:
        sys.exit("error: no context; name contexts of the kubeconfig: CONTEXTS='kind-a kind-b'")
    for context, shown in runs:
        yield _run(context, shown, {})
    for helm in helms:
        yield _run(runs[0][0], features.HELM, {"HELM": helm})


def enter(context: str, report: Path, scheduler: str = "") -> tuple[str, results.Result]:
    """Return the result of a suite on a context, from the report of `pytest --junit-xml`.

    Args:
        context: the context of the run.
        report: the report.
        scheduler: what the suite tests besides Kubernetes, such as "Kueue 0.19.0"; "" for the whole cluster suite.
    """
    with tempfile.TemporaryDirectory() as folder:
        variables = _select(context, Path(folder))
        versions = _versions(variables, {})
    if scheduler:
        versions = {"with": scheduler, **versions}
    return _named(results.read_report(report, versions, features.SCHEDULING if scheduler else features.WHOLE))


def _run(context: str, shown: Mapping[str, Sequence[str]], more: Mapping[str, str]) -> tuple[str, results.Result]:
    with tempfile.TemporaryDirectory() as folder:
        variables = {**_select(context, Path(folder)), **more}
        versions = _versions(variables, more)
        print(", ".join(f"{name} {version}" for name, version in versions.items()), flush=True)  # noqa: T201 - progress
        report = Path(folder) / "report.xml"
        nodes = [node for nodes in shown.values() for node in nodes]
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *nodes]
        subprocess.run(command, cwd=REPOSITORY, env=variables, check=False)
        return _named(results.read_report(report, versions, shown))


def _named(result: results.Result) -> tuple[str, results.Result]:
    if "with" in result.versions:
        return f"scheduling {result.versions['with']}", result
    kind = "helm" if "Helm" in result.versions else "kubernetes"
    minor = ".".join(next(iter(result.versions.values())).split(".")[:2])
    return f"{kind} {minor}", result


def _select(context: str, folder: Path) -> dict[str, str]:
    """Return variables that make a context the current one, for the tests alone."""
    command = ["kubectl", "config", "view", "--raw", "--minify", "--flatten", "--context", context]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: no context {context}: {done.stderr.strip()}")
    (folder / "kubeconfig").write_text(done.stdout)
    return {**os.environ, "KUBECONFIG": str(folder / "kubeconfig")}


def _versions(variables: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    output = {"env": dict(variables), "capture_output": True, "text": True, "check": True}
    said = subprocess.run(["kubectl", "version", "--output", "json"], **output).stdout  # type: ignore[call-overload]
    found = {"Kubernetes": json.loads(said)["serverVersion"]["gitVersion"].removeprefix("v")}
    if "HELM" in more:
        said = subprocess.run([more["HELM"], "version", "--template", "{{.Version}}"], **output).stdout  # type: ignore[call-overload]
        found = {"Helm": said.removeprefix("v"), **found}
    return found
