"""The table of docs/entries.md, on this machine: its cells work, or are refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import entries
import entry_runs
import pytest
from clusters import is_ready, start_tfk8s, tfk8s, wait_for, write_programs
from job_files import job_file

from tfk8s.backends.local.backend import LocalBackend

NAME = "entries"


@pytest.fixture(scope="module")
def cluster(state_home: Path, backend: LocalBackend) -> Iterator[str]:
    backend.apply(job_file(NAME, worker=2, ps=1))
    wait_for(backend, NAME, is_ready)
    yield NAME
    backend.delete(NAME)


def submit(folder: Path, entry: str, cluster: str, uses: tuple[str, ...]) -> None:
    flags = [*(["--fresh"] if entry == "fresh" else []), *(["--tf1"] if uses == ("tf1",) else [])]
    script = entry_runs.write(folder, entry, uses)
    done = tfk8s("submit", "--local", *flags, cluster, str(script), timeout=entry_runs.TIMEOUT)
    entries.require(entry, uses, done.stdout + done.stderr)


@pytest.mark.parametrize("uses", [(use,) for use in entries.ALL] if entries.WHOLE else entries.GROUPS)
def test_submit(cluster: str, tmp_path: Path, uses: tuple[str, ...]) -> None:
    submit(tmp_path, "submit", cluster, uses)


@pytest.mark.parametrize("uses", entries.GROUPS if entries.WHOLE else [entries.GROUPS[0]])
def test_fresh(cluster: str, tmp_path: Path, uses: tuple[str, ...]) -> None:
    submit(tmp_path, "fresh", cluster, uses)


def test_connect(cluster: str, tmp_path: Path) -> None:
    entry_runs.connected(tmp_path, start_tfk8s, "--local", cluster)


def test_python(cluster: str, tmp_path: Path) -> None:
    entry_runs.python(tmp_path, cluster, local=True)


@pytest.mark.parametrize("tf1", [False, True] if entries.WHOLE else [False])
def test_notebook(cluster: str, tmp_path: Path, tf1: bool) -> None:
    uses = ["tf1"] if tf1 else [use for use in entries.ALL if use != "tf1"]
    entry_runs.notebook(tmp_path, cluster, uses, tf1=tf1, local=True)


@pytest.mark.parametrize("uses", entries.PROGRAMS if entries.WHOLE else entries.PROGRAMS[:1])
def test_program(state_home: Path, tmp_path: Path, uses: tuple[str, ...]) -> None:
    entry_runs.write(tmp_path, "program", uses)
    file = write_programs(tmp_path, "entry-programs", entry_runs.programs(uses))
    done = tfk8s("run", "--local", file, timeout=entry_runs.TIMEOUT)
    entries.require("program", uses, done.stdout + done.stderr)


@pytest.mark.parametrize("flag", ["--here", "--detach"])
def test_entries_for_kubernetes_alone_are_refused(cluster: str, tmp_path: Path, flag: str) -> None:
    done = tfk8s("submit", "--local", flag, cluster, str(entry_runs.write(tmp_path, "here", ["session"])))
    assert done.returncode == 2
    assert f"{flag} is for " in done.stderr
    assert "Kubernetes" in done.stderr
