"""`tfk8s submit --trace` on a real cluster of a ps and two workers."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import running, tfk8s

W1_BYTES = 16 << 20  # 1024 x 4096 floats: long enough to be seen on a loaded machine
TRAIN = """
import os, sys
import numpy as np
import tensorflow as tf

with tf.device("/job:ps/task:0"):
    w1 = tf.get_variable("w1", [1024, 4096], initializer=tf.ones_initializer())
x = tf.placeholder(tf.float32, [8, 1024], name="x")
means = []
for index in range(2):
    with tf.device(f"/job:worker/task:{index}"):
        means.append(tf.reduce_mean(tf.matmul(x, w1, name=f"product{index}")))
with tf.device("/job:ps/task:0"):
    loss = tf.add_n(means, name="loss")
with tf.Session(os.environ["TFK8S_TARGET"]) as session:
    session.run(w1.initializer, options=tf.RunOptions(timeout_in_ms=60000))
    for step in range(25):
        assert session.run(loss, {x: np.ones([8, 1024], np.float32)}) == 2048.0
print([name for name in sys.modules if name.startswith("tfk8s.features")], os.environ.get("TFK8S_TRACE"))
if "fail" in sys.argv:
    raise SystemExit("failed after 25 steps")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, state_home: Path) -> Iterator[Path]:
    """A folder with the job file of a running cluster, and scripts."""
    del state_home
    folder = tmp_path_factory.mktemp("timeline")
    spec = {"apiVersion": "tfk8s.dev/v1", "name": "timeline", "jobs": {"ps": 1, "worker": 2}}
    (folder / "cluster.yaml").write_text(json.dumps(spec))
    (folder / "train.py").write_text(TRAIN)
    (folder / "eager.py").write_text("import tensorflow as tf\nprint(int(tf.constant(1) + 1))\n")
    with running(folder / "cluster.yaml"):
        yield folder


def test_the_page_names_what_the_step_waits_for(folder: Path) -> None:
    ended = tfk8s(
        "submit", "--local", "--tf1", "--trace", "steps.html", "--trace-every", "10", "timeline", "train.py", cwd=folder
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.endswith("5 recorded steps are in steps.html and steps.trace.json\n")
    page = html.unescape((folder / "steps.html").read_text())
    waits = re.findall(r"[0-9.]+ % of the step waits for ([^<]*)", page)
    assert {"ps/0 to send w1 to worker/0 (16 MiB)", "ps/0 to send w1 to worker/1 (16 MiB)"}.intersection(waits), waits
    assert "A call without recording took " in page
    events = json.loads((folder / "steps.trace.json").read_text())["traceEvents"]
    tasks = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(tasks.values()) == ["ps/0", "script", "worker/0", "worker/1"]
    sent = [event for event in events if event["name"] == "w1" and event["ph"] == "X" and event["cat"] == "transfer"]
    received = [(tasks[event["pid"]], event["args"]["from"], event["args"]["bytes"]) for event in sent]
    # The calls 1, 2, 10 and 20, of which some may lack a transfer.
    assert 1 <= received.count(("worker/0", "ps/0", W1_BYTES)) <= 4
    assert 1 <= received.count(("worker/1", "ps/0", W1_BYTES)) <= 4
    products = {tasks[event["pid"]] for event in events if event["name"] == "product1"}
    assert products == {"worker/1"}


def test_a_fresh_script_that_fails_leaves_its_page(folder: Path) -> None:
    ended = tfk8s(
        "submit", "--local", "--tf1", "--fresh", "--trace", "failed.html", "timeline", "train.py", "fail", cwd=folder
    )
    assert (ended.returncode, "failed after 25 steps" in ended.stderr) == (1, True)
    assert "3 recorded steps are in failed.html and failed.trace.json" in ended.stderr
    assert (folder / "failed.html").exists()


def test_a_script_without_trace_has_no_recorder(folder: Path) -> None:
    ended = tfk8s("submit", "--local", "--tf1", "timeline", "train.py", cwd=folder)
    assert (ended.returncode, ended.stdout) == (0, "[] None\n")


def test_eager_calls_are_nothing_to_show(folder: Path) -> None:
    ended = tfk8s("submit", "--local", "--trace", "eager.html", "timeline", "eager.py", cwd=folder)
    assert (ended.returncode, ended.stdout) == (0, "2\n")
    assert "eager.html is not written: there is nothing to show" in ended.stderr
    assert not (folder / "eager.html").exists()
