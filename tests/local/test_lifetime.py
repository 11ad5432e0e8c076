"""The limits `max_duration` and `idle` of clusters on this machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from clusters import is_ready, pids, wait_for, wait_until_gone
from job_files import job_file

from tfk8s import polling
from tfk8s.backends.local import state
from tfk8s.backends.local.backend import LocalBackend
from tfk8s.core.script import Script
from tfk8s.core.spec import JobFile, Task
from tfk8s.errors import ClusterError

Up = Callable[[JobFile], str]
IDLE = 5  # seconds: a loaded machine takes two between two steps of a test
pytestmark = pytest.mark.usefixtures("servers_only")


@pytest.mark.usefixtures("tensorflow")
def test_a_script_and_a_forward_keep_a_cluster_that_ends_without_them(
    backend: LocalBackend, up: Up, tmp_path: Path
) -> None:
    name = up(job_file("idle", worker=2, idle=IDLE))
    script = tmp_path / "script.py"
    script.write_text(
        "import os, time, tensorflow as tf\n"
        "with tf.device('/job:worker/task:1'): one = tf.compat.v1.placeholder(tf.float32) + 1\n"
        "with tf.compat.v1.Session(os.environ['TFK8S_TARGET']) as session:\n"
        "    assert session.run(one, {'Placeholder:0': 1}) == 2\n"
        f"time.sleep({1.5 * IDLE})\n"  # without a session
    )
    outcome = backend.scripts.run(name, Script(path=script, tf1=True))
    assert outcome.code == 0
    with backend.dial(name, Task("worker", 1)):
        since = time.monotonic()
        polling.wait_until(lambda: time.monotonic() - since > 1.5 * IDLE, "a longer time than `idle`", 60)
        running = wait_for(backend, name, is_ready)
    # The session is closed, and the connections between the tasks stay.
    ended = wait_for(backend, name, lambda status: bool(status.reason))
    assert ended.reason == f'cluster "idle" has ended after {IDLE}s without a session and a script (idle)'
    for pid in pids(running).values():
        wait_until_gone(pid)
    with pytest.raises(ClusterError, match=f"has ended after {IDLE}s without a session") as caught:
        backend.scripts.run(name, Script(path=script))
    assert caught.value.help == ("tfk8s up --local FILE starts it again, tfk8s down --local idle removes its logs")
    assert backend.apply(job_file("idle", worker=2, idle=IDLE)) is True
    assert backend.observe(name).reason != ended.reason  # and may end again soon


def test_the_duration_ends_scripts_and_what_they_left_behind(backend: LocalBackend, up: Up, tmp_path: Path) -> None:
    name = up(job_file("short", worker=1, max_duration=20))
    wait_for(backend, name, is_ready)
    child = tmp_path / "pid"
    script = tmp_path / "script.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "sleeper = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(child)!r}, 'w').write(str(sleeper.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(ClusterError) as caught:
        backend.scripts.run(name, Script(path=script, fresh=True))  # which does not wait for TensorFlow
    assert str(caught.value) == f'cluster "short" has ended 20s after its first `up` (max_duration), while {script} ran'
    wait_until_gone(int(child.read_text()))


def test_scaling_does_not_prolong_the_duration(backend: LocalBackend, up: Up) -> None:
    name = up(job_file("scaled", worker=1, max_duration=3600))
    created = backend.observe(name).created
    backend.scale(name, {"worker": 2})
    status = wait_for(backend, name, is_ready)
    assert (status.created, len(status.tasks)) == (created, 2)
    assert status.removed_at == (created or 0) + 3600


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_cluster_whose_folder_was_removed_ends(backend: LocalBackend, up: Up, is_made_anew: bool) -> None:
    name = up(job_file("removed", worker=1))
    running = wait_for(backend, name, is_ready)
    shutil.rmtree(state.folder(name).path)
    if is_made_anew:
        up(job_file("removed", worker=1))
    for pid in pids(running).values():
        wait_until_gone(pid)
    assert state.folder(name).exists() is is_made_anew
