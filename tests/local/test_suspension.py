"""Suspended clusters of this machine, with real TensorFlow."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from clusters import addresses, output, pids, start_tfk8s, tfk8s, wait_for, wait_until_gone, write_programs
from suspended_training import STEPS, TIMES, begins, disturb, weights, write

from tfk8s.backends.local import state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.spec import Task
from tfk8s.core.status import Phase
from tfk8s.errors import ClusterError, InvalidInput

WORKER = Task("worker", 0)


def train(folder: Path, name: str, pause: float) -> Path:
    folder.mkdir()
    write(folder)
    return write_programs(folder, name, {"worker": {"program": ["train.py", str(folder / "checkpoints"), str(pause)]}})


def ends(backend: LocalBackend, name: str) -> str:
    assert tfk8s("wait", "--local", name).returncode == 0
    found = output(backend, name, WORKER)
    assert tfk8s("down", "--local", name).returncode == 0
    return found


def test_a_training_goes_on_to_the_same_weights(backend: LocalBackend, tmp_path: Path) -> None:
    calm, disturbed = train(tmp_path / "calm", "calm", 0.0), train(tmp_path / "disturbed", "disturbed", 0.02)
    assert tfk8s("up", "--local", calm).returncode == 0
    assert tfk8s("up", "--local", disturbed).returncode == 0
    before = addresses(backend, "disturbed")

    def start(verb: str) -> subprocess.Popen[str]:
        return start_tfk8s(verb, "--local", "disturbed")

    def run(verb: str) -> None:
        ended = tfk8s(verb, "--local", "disturbed")
        assert ended.returncode == 0, ended.stderr
        phase = Phase.SUSPENDED if verb == "suspend" else Phase.RUNNING
        assert backend.observe("disturbed").phase is phase

    seen: list[int] = []

    def until_begun() -> None:
        wait_for(backend, "disturbed", lambda _: len(begins(output(backend, "disturbed", WORKER))) > len(seen))
        seen[:] = begins(output(backend, "disturbed", WORKER))

    disturb(start, run, until_begun, TIMES)
    assert addresses(backend, "disturbed") == before
    found = ends(backend, "disturbed")
    assert weights(found) == weights(ends(backend, "calm"))
    assert 0 < begins(found)[-1] <= STEPS


def test_the_memory_comes_back_and_down_works(backend: LocalBackend, cluster: str) -> None:
    processes = pids(backend.observe(cluster))
    assert tfk8s("suspend", "--local", "--yes", cluster).returncode == 0
    for pid in processes.values():
        wait_until_gone(pid)
    status = backend.observe(cluster)
    assert (status.phase, status.suspended is not None) == (Phase.SUSPENDED, True)
    with pytest.raises(ClusterError, match="is suspended since"):
        backend.dial(cluster, WORKER)
    assert backend.delete(cluster) == []


def test_an_idle_cluster_is_suspended_and_removed_later(backend: LocalBackend, tmp_path: Path) -> None:
    file = tmp_path / "idle.yaml"
    file.write_text("apiVersion: tfk8s.dev/v1\nname: idle\njobs: {worker: 1}\nidle: {suspend: 4s, remove: 1h}\n")
    assert tfk8s("up", "--local", file).returncode == 0
    processes = pids(backend.observe("idle"))
    status = wait_for(backend, "idle", lambda status: status.phase is Phase.SUSPENDED)
    assert ", idle for 4s: tfk8s resume --local idle" in status.reason
    for pid in processes.values():
        wait_until_gone(pid)
    assert tfk8s("resume", "--local", "idle").returncode == 0
    wait_for(backend, "idle", lambda status: status.phase is Phase.SUSPENDED)
    folder = state.folder("idle")
    wish = json.loads((folder.path / "suspended.json").read_text())
    folder.write("suspended.json", {**wish, "since": wish["since"] - 3600})
    ended = tfk8s("status", "--local", "idle")
    assert "has ended after 1h without a session and a script (idle)" in ended.stdout
    assert tfk8s("resume", "--local", "idle").returncode == 1
    assert backend.delete("idle") == []


def test_a_run_that_has_ended_is_not_suspended(backend: LocalBackend, tmp_path: Path) -> None:
    file = write_programs(tmp_path, "done", {"worker": {"program": ["true"]}})
    assert tfk8s("up", "--local", file).returncode == 0
    assert tfk8s("wait", "--local", "done").returncode == 0
    with pytest.raises(InvalidInput, match="has ended, with exit code 0: nothing is left to suspend"):
        backend.suspending.suspend("done", "jo")
    backend.delete("done")
