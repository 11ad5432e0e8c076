"""The table of docs/entries.md, on Kubernetes: its cells work, or are refused with the reason."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import entries
import entry_runs
import pytest
from on_cluster import IMAGE, make_job, make_job_file, start_tfk8s

from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.script import LogOptions, Script

NAME = "entries"


@pytest.fixture(scope="module")
def cluster(backend: KubernetesBackend) -> Iterator[str]:
    backend.apply(make_job_file(NAME, make_job(tasks=2), make_job("ps", tasks=1), master="worker"))
    wait_until_ready(backend, NAME, 120)
    yield NAME
    backend.delete(NAME)


def submit(folder: Path, entry: str, where: tuple[str, str], uses: tuple[str, ...]) -> None:
    namespace, cluster = where
    flags = [*([f"--{entry}"] if entry != "submit" else []), *(["--tf1"] if uses == ("tf1",) else [])]
    script = entry_runs.write(folder, entry, uses)
    process = start_tfk8s("submit", *flags, "--namespace", namespace, cluster, script, stderr=subprocess.STDOUT)
    output, _ = process.communicate(timeout=entry_runs.TIMEOUT)
    entries.require(entry, uses, output)


# The gate has time for the group with the most uses.
FIRST = entries.GROUPS if entries.WHOLE else entries.GROUPS[:1]


@pytest.mark.parametrize(
    ("entry", "uses"),
    [
        *(("submit", uses) for uses in entries.GROUPS),
        *((entry, uses) for entry in ("fresh", "here") for uses in FIRST),
    ],
)
def test_submit(cluster: str, namespace: str, tmp_path: Path, entry: str, uses: tuple[str, ...]) -> None:
    submit(tmp_path, entry, (namespace, cluster), uses)


@pytest.mark.parametrize("uses", FIRST)
def test_detach(
    cluster: str, backend: KubernetesBackend, capfd: pytest.CaptureFixture[str], tmp_path: Path, uses: tuple[str, ...]
) -> None:
    name = backend.detached.start(
        cluster, Script(path=entry_runs.write(tmp_path, "detach", uses), tf1=uses == ("tf1",))
    )
    backend.detached.show(cluster, name, LogOptions(follow=True))
    entries.require("detach", uses, "".join(capfd.readouterr()))


def test_connect(cluster: str, namespace: str, tmp_path: Path) -> None:
    entry_runs.connected(tmp_path, start_tfk8s, "--namespace", namespace, cluster)


def test_python(cluster: str, namespace: str, tmp_path: Path) -> None:
    entry_runs.python(tmp_path, cluster, namespace=namespace, local=False)


@pytest.mark.parametrize("tf1", [False, True] if entries.WHOLE else [False])
def test_notebook(cluster: str, namespace: str, tmp_path: Path, tf1: bool) -> None:
    uses = ["tf1"] if tf1 else [use for use in entries.ALL if use != "tf1"]
    entry_runs.notebook(tmp_path, cluster, uses, tf1=tf1, namespace=namespace, local=False)


@pytest.mark.parametrize("uses", entries.PROGRAMS if entries.WHOLE else entries.PROGRAMS[:2])
def test_program(namespace: str, tmp_path: Path, uses: tuple[str, ...]) -> None:
    entry_runs.write(tmp_path, "program", uses)
    jobs = entry_runs.programs(uses, cpu="150m", memory="1Gi")
    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps({"apiVersion": "tfk8s.dev/v1", "name": "programs", "image": IMAGE, "jobs": jobs}))
    process = start_tfk8s("run", "--namespace", namespace, file, stderr=subprocess.STDOUT)
    output, _ = process.communicate(timeout=entry_runs.TIMEOUT)
    entries.require("program", uses, output)
