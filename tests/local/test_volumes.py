"""Volumes on this machine: folders at their paths, and found by `tfk8s.path`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from clusters import may_mount, running, tfk8s

# A folder that ordinary users can't make: their clusters have a root folder of their own.
PLACE = f"/tfk8s-volume-test-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
JOB_FILE = f"""
apiVersion: tfk8s.dev/v1
name: volumes
volumes:
  - {{path: {PLACE}/ckpt, claim: ckpt, create: 1Gi, folder: ./ckpt, local_mount: MOUNT}}
  - {{path: {PLACE}/data, folder: data, read_only: true, local_mount: MOUNT}}
  - {{path: /keys, secret: keys}}
jobs: {{worker: 2}}
"""
# The scripts and the task read and write by a path, which is given.
SCRIPT = """
import pathlib, sys
import tensorflow as tf
import tfk8s
place = (lambda path: path) if sys.argv[1] == "mounted" else tfk8s.path
with tf.device("/job:worker/task:1"):
    read = tf.io.read_file(place(sys.argv[2] + "/data/f"))
    written = tf.io.write_file(place(sys.argv[2] + "/ckpt/by-task"), read)
with tf.Session("grpc://localhost:2222") as session:
    session.run(written)
    text = session.run(read).decode()
pathlib.Path(place(sys.argv[2] + "/ckpt/by-script")).write_text(text)
print(text, tfk8s.path(sys.argv[2] + "/ckpt/x"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a job file, with data."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "f").write_text("data")
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def write_job_file(folder: Path, *, mounted: bool) -> Path:
    path = folder / "volumes.yaml"
    path.write_text(JOB_FILE.replace("MOUNT", str(mounted).lower()))
    return path


def submit(folder: Path, *flags: str, how: str) -> str:
    done = tfk8s("submit", "--local", "--tf1", *flags, "volumes", str(folder / "script.py"), how, PLACE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scripts_and_tasks_find_folders_by_path(folder: Path) -> None:
    with running(write_job_file(folder, mounted=False)):
        assert submit(folder, how="found") == f"data {folder}/ckpt/x\n"
        assert tfk8s("up", "--local", str(folder / "volumes.yaml")).returncode == 0
    written = {path.name: path.read_text() for path in (folder / "ckpt").iterdir()}
    assert written == {"by-task": "data", "by-script": "data"}
    assert not Path(PLACE).exists()


def test_scripts_tasks_and_commands_see_folders_at_their_paths(folder: Path) -> None:
    file = write_job_file(folder, mounted=True)
    if not may_mount():
        up = tfk8s("up", "--local", str(file))
        assert up.returncode != 0
        assert "can't mount folder" in up.stderr
        return
    try:
        with running(file):
            for flags in ((), ("--fresh",)):
                assert submit(folder, *flags, how="mounted") == f"data {folder}/ckpt/x\n"
            seen = tfk8s("exec", "--local", "volumes", "worker/0", "--", "ls", f"{PLACE}/ckpt", f"{PLACE}/data")
            assert seen.stdout.split() == [f"{PLACE}/ckpt:", "by-script", "by-task", f"{PLACE}/data:", "f"]
            assert seen.returncode == 0
            command = ("touch", f"{PLACE}/data/g")
            refused = tfk8s("exec", "--local", "volumes", "worker/0", "--", *command)
            assert "Read-only file system" in refused.stderr
            assert json.loads(tfk8s("stacks", "--local", "volumes", "-o", "json").stdout)
    finally:  # as root, `up` makes the empty places of mounts
        for path in (f"{PLACE}/ckpt", f"{PLACE}/data", PLACE):
            Path(path).rmdir() if Path(path).exists() else None
