"""The history of clusters on Kubernetes, which commands write into the user's state folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from on_cluster import make_job_file

from tfk8s.backends.history import index
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cluster.handle import Cluster
from tfk8s.core.history.entry import ENDED, LOST
from tfk8s.core.script import Script
from tfk8s.errors import NoSuchCluster
from tfk8s.features.history.here import Past
from tfk8s.polling import wait_until


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def start(backend: KubernetesBackend, name: str) -> Cluster:
    cluster = Cluster(backend, name)
    with cluster.recorder.command("up", starts=True):
        cluster.apply(make_job_file(name))
        cluster.wait(180)
    return cluster


def test_an_entry_has_what_down_would_lose(backend: KubernetesBackend, tmp_path: Path) -> None:
    cluster = start(backend, "kept")
    (tmp_path / "script.py").write_text("import sys\nprint('tfk8s: step 3/4 (75%), loss=0.5')\nsys.exit(3)\n")
    run = cluster.start(Script(path=tmp_path / "script.py"))
    wait_until(lambda: cluster.status().scripts[-1].exit_code == 3, "the script to end", 120)
    cluster.down()
    past = Past("kept", 1)
    found = past.read()
    assert [(verb.verb, verb.exit_code) for verb in found.verbs] == [("up", 0), ("submit", 0), ("down", 0)]
    assert (found.row.state, found.row.exit_code, found.row.progress) == (ENDED, 3, "3/4 (75%), loss=0.5")
    assert "listens on port" in "\n".join(line.text for line in past.logs(["worker/0"]))
    assert "step 3/4" in "\n".join(line.text for line in past.logs([run.name]))
    assert "Scheduled" in {event.reason for event in past.events()}


def test_the_command_that_finds_no_cluster_ends_its_entry(
    backend: KubernetesBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start(backend, "left")
    with monkeypatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))  # on another machine
        cluster.down()
        assert [row.state for row in index.rows()] == [ENDED]
    with pytest.raises(NoSuchCluster) as error:
        cluster.status()
    assert "tfk8s status left@1 shows how the last one ended" in str(error.value.help)
    assert [(row.id, row.state) for row in index.rows()] == [("left@1", LOST)]
