"""tfk8s works on a cluster that Helm installed, and does not change its objects."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
from on_cluster import IMAGE, devices, left

from tfk8s import polling
from tfk8s.cluster.readiness import wait_until_ready
from tfk8s.core.script import LogOptions, Script
from tfk8s.core.spec import Task
from tfk8s.errors import InvalidInput
from tfk8s.jobfile.loader import load

HELM = os.environ.get("HELM", "helm")
CHART = Path(__file__).parents[2] / "helm" / "tfk8s"
JOB_FILE = f"""
apiVersion: tfk8s.dev/v1
name: charted
image: {IMAGE}
jobs:
  chief: {{cpu: 100m, memory: 1Gi, volumes: [{{path: /ckpt, claim: charted, create: 64Mi}}]}}
  Worker: {{cpu: 100m, memory: 1Gi}}
"""
SCRIPT = """
    import tensorflow as tf
    with tf.device("/job:Worker/task:0"):
        y = tf.constant(2) + 236
    with tf.Session("grpc://localhost:2222") as session:
        print(session.run(y))
"""


@pytest.fixture
def helm(namespace):
    def run(*arguments):
        command = [HELM, *arguments, "--namespace", namespace]
        done = subprocess.run(command, capture_output=True, text=True, timeout=330, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run
    subprocess.run(
        [HELM, "uninstall", "digits", "--namespace", namespace, "--ignore-not-found"], timeout=60, check=True
    )


def pods(backend, name):
    """Return when each task's pod was made."""
    return {str(task.task): task.since for task in backend.observe(name).tasks}


def test_a_release_from_its_install_to_its_uninstall(helm, backend, client, namespace, tmp_path, capfd):
    file = tmp_path / "job.yaml"
    file.write_text(JOB_FILE)
    assert "tfk8s submit charted" in helm("install", "digits", CHART, "--values", file)
    helm("test", "digits")  # waits for every task, and opens a session
    wait_until_ready(backend, "charted", 300)

    # tfk8s works on it ...
    assert "charted" in [one.name for one in backend.clusters()]
    assert len(devices(backend, "charted")) == 2
    lines = backend.logs("charted", [Task("Worker", 0)], LogOptions())
    assert any("Worker/0 listens" in line.text for line in lines)
    (tmp_path / "script" / "script.py").parent.mkdir()
    (tmp_path / "script" / "script.py").write_text(textwrap.dedent(SCRIPT))
    capfd.readouterr()
    assert backend.scripts.run("charted", Script(path=tmp_path / "script" / "script.py", tf1=True)).code == 0
    assert capfd.readouterr().out == "238\n"

    # ... and leaves it to Helm.
    by_helm = r'cluster "charted" was installed by Helm, as release "digits"'
    before = pods(backend, "charted")
    for change in (
        lambda: backend.apply(load(file)),
        lambda: backend.scale("charted", {"Worker": 2}),
        lambda: backend.delete("charted"),
    ):
        with pytest.raises(InvalidInput, match=by_helm) as caught:
            change()
        assert f"helm uninstall digits --namespace {namespace}" in caught.value.help

    # `diff` shows what an upgrade would change, also what the file no longer has.
    assert not backend.plan(load(file)).changes
    changed = JOB_FILE.replace("jobs:", "drain: allow\njobs:").replace(
        ", volumes: [{path: /ckpt, claim: charted, create: 64Mi}]", ""
    )
    file.write_text(changed.replace("Worker: {cpu: 100m, ", "Worker: {"))
    plan = backend.plan(load(file))
    assert re.search(by_helm, plan.refusal)
    assert plan.restarts == (Task("chief", 0), Task("Worker", 0))
    assert {(change.action, change.kind) for change in plan.changes} == {
        ("change", "StatefulSet"), ("remove", "PodDisruptionBudget"),
    }  # fmt: skip
    fields = [str(field) for change in plan.changes for field in change.fields]
    assert any("volumes" in field and "→ none" in field for field in fields), fields
    assert pods(backend, "charted") == before

    # Annotations of objects restart nothing; another port of a job restarts that job's tasks.
    file.write_text(f"{JOB_FILE}ttl: 60\n")
    helm("upgrade", "digits", CHART, "--values", file)
    assert pods(backend, "charted") == before
    file.write_text(JOB_FILE.replace("chief: {", "chief: {port: 2300, "))
    assert "All tasks restart" not in helm("upgrade", "digits", CHART, "--values", file)
    polling.wait_until(
        lambda: pods(backend, "charted").get("chief/0", before["chief/0"]) != before["chief/0"], "a new chief", 300
    )
    assert pods(backend, "charted")["Worker/0"] == before["Worker/0"]

    helm("uninstall", "digits")

    def gone() -> bool:
        return all("script" in one or one == claim for one in left(client, namespace, "charted"))

    claim = "PersistentVolumeClaim charted"
    polling.wait_until(gone, "the cluster to go", 300)
    assert claim in left(client, namespace, "charted")
    backend.delete("charted", delete_claims=True)
    assert claim not in left(client, namespace, "charted")
