"""The record of a cluster in a claim: a Job writes it while nobody's machine is on, and a colleague reads it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kube_api import KubeApi
from on_cluster import IMAGE, left, make_claim, make_job, make_job_file, until_gone, until_limits_end

from tfk8s import api, polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cluster.handle import Cluster
from tfk8s.core.history.entry import ENDED, LOST, OPEN
from tfk8s.core.history.facts import LOST_RIGHTS, REMOVED, REMOVED_BY_OTHERS
from tfk8s.core.job_file.mappings import SharedHistory
from tfk8s.core.script import Script
from tfk8s.features.history.here import Past
from tfk8s.render.lifetime import COMPONENT

CLAIM = "past"
SECRET = "hunter2-never-to-be-seen"
SCRIPT = """
import tfk8s
print("said by the script")
tfk8s.progress(4, 4, loss=0.5)
"""


@pytest.fixture(scope="module")
def team(make_namespace: Callable[[], str], client: KubeApi) -> str:
    """A namespace whose ConfigMap names a claim."""
    name = make_namespace()
    make_claim(client, name, CLAIM)
    data = {"history.yaml": f"claim: {CLAIM}\nlogs: true\n"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tfk8s-history"}, "data": data}
    client.send("POST", paths.collection("ConfigMap", name), body=config_map)
    return name


@pytest.fixture
def colleague(team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Past]:
    """Reads the newest record of a name on a machine that has seen nothing."""

    def read(name: str) -> Past:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "colleague"))
        row = api.history(name, last=1, shared=True, namespace=team, image=IMAGE)[0]
        return Past(name, row.number)

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return read


def writers(client: KubeApi, team: str, name: str) -> list[str]:
    """Return the pods that write the record of a cluster, and run."""
    selector = f"app.kubernetes.io/instance={name},app.kubernetes.io/component={COMPONENT}"
    pods = client.get(paths.collection("Pod", team), {"labelSelector": selector})["items"]
    return [
        pod["metadata"]["name"] for pod in pods
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        and "TFK8S_HISTORY" in str(pod["spec"])
    ]  # fmt: skip


def problem(backend: KubernetesBackend, name: str) -> str:
    """Return what keeps the record of a cluster from being written, as its status says."""
    record = backend.observe(name).record
    assert record
    assert record.place == f"claim {CLAIM}"
    return record.problem


def test_a_colleague_reads_commands_tasks_logs_and_the_end(
    client: KubeApi, team: str, colleague: Callable[[str], Past], tmp_path: Path
) -> None:
    backend = KubernetesBackend(namespace=team)
    cluster = Cluster(backend, "told")
    (tmp_path / "script.py").write_text(SCRIPT)
    with cluster.recorder.command("up", starts=True):
        cluster.apply(make_job_file("told", env={"PASSWORD": SECRET}))
        cluster.wait(180)
    arguments = ("--api-token", SECRET, f"https://ada:{SECRET}@example.com/data")
    run = cluster.start(Script(path=tmp_path / "script.py", arguments=arguments))
    polling.wait_until(lambda: cluster.status().scripts[-1].exit_code == 0, "the script to end", 120)
    (first,) = polling.wait_until(lambda: writers(client, team, "told"), "the pod that writes", 60)
    client.send("DELETE", f"{paths.collection('Pod', team)}/{first}", {"gracePeriodSeconds": 0})  # as a kill -9
    polling.wait_until(lambda: set(writers(client, team, "told")) - {first}, "its successor", 120)
    cluster.down()

    past = colleague("told")
    entry = past.read()
    assert [(verb.verb, verb.exit_code) for verb in entry.verbs] == [("up", 0), ("submit", 0), ("down", None)]
    assert (entry.row.state, entry.row.reason, entry.row.exit_code) == ("ended", REMOVED, 0)
    assert entry.row.progress.startswith("4/4 (100%)")
    assert entry.job_file["name"] == "told"
    assert {task.task for task in entry.tasks} == {"worker/0", "worker/1"}
    assert "listens on port" in "\n".join(line.text for line in past.logs(["worker/0"]))
    assert "said by the script" in "\n".join(line.text for line in past.logs([run.name]))
    assert "Scheduled" in {event.reason for event in past.events()}
    kept = b"".join(path.read_bytes() for path in (tmp_path / "colleague").rglob("*") if path.is_file())
    assert SECRET.encode() not in kept
    assert b"told" in kept


def test_the_end_by_a_limit_stays_although_no_machine_is_on(
    client: KubeApi, team: str, colleague: Callable[[str], Past]
) -> None:
    backend = KubernetesBackend(namespace=team)
    history = SharedHistory(claim=CLAIM)
    backend.apply(make_job_file("brief", make_job(), max_duration=25, history=history))

    until_gone(backend, "brief")
    past = colleague("brief")
    row = past.read().row
    assert (row.state, row.reason) == ("ended", "removed 25s after its first `up` (max_duration)")
    assert 20 < (row.ended or 0) - row.started < 120
    assert list(past.files.logs()) == []  # as the job file says
    assert past.events() != []


def test_objects_that_others_delete_have_an_end(client: KubeApi, team: str, colleague: Callable[[str], Past]) -> None:
    KubernetesBackend(namespace=team).apply(make_job_file("cut", make_job(tasks=1)))
    polling.wait_until(lambda: writers(client, team, "cut"), "the pod that writes", 120)
    query = {"labelSelector": "app.kubernetes.io/instance=cut", "propagationPolicy": "Background"}
    polling.wait_until(lambda: colleague("cut").read().tasks, "the first look", 60)
    for kind in (
        "StatefulSet",
        "ConfigMap",
        "Job",
        "ServiceAccount",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Service",
    ):
        client.send("DELETE", paths.collection(kind, team), query)
    polling.wait_until(lambda: not writers(client, team, "cut"), "the pod to end", 60)
    polling.wait_until(lambda: colleague("cut").read().row.state != OPEN, "the end in the record", 60)
    row = colleague("cut").read().row
    ends = {(ENDED, REMOVED_BY_OTHERS), (LOST, LOST_RIGHTS)}  # as the ConfigMap or the ServiceAccount is seen to go
    assert (row.state, row.reason) in ends


def test_a_claim_that_can_not_be_written_costs_no_limit(
    client: KubeApi, make_namespace: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    namespace = make_namespace()
    make_claim(client, namespace, CLAIM, is_open=False)
    backend = KubernetesBackend(namespace=namespace)
    job_file = make_job_file("shut", make_job(), max_duration=3600, history=SharedHistory(claim=CLAIM))
    backend.apply(job_file)
    polling.wait_until(lambda: problem(backend, "shut") == "Permission denied", "the reason", 120)

    until_limits_end(backend, job_file)


def test_a_claim_that_can_not_be_mounted_costs_no_limit(
    client: KubeApi, make_namespace: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    namespace = make_namespace()
    volume = f"/api/v1/persistentvolumes/{namespace}"
    gone = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["a-node-that-is-gone"]}
    spec = {
        "capacity": {"storage": "256Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": namespace,
        "local": {"path": "/mnt"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [gone]}]}},
    }  # fmt: skip
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": spec}
    client.send("POST", "/api/v1/persistentvolumes", body=body)
    try:
        make_claim(client, namespace, CLAIM, is_open=False, storage_class=namespace)
        backend = KubernetesBackend(namespace=namespace)
        job_file = make_job_file("stuck", make_job(), max_duration=3600, history=SharedHistory(claim=CLAIM))
        backend.apply(job_file)
        polling.wait_until(lambda: problem(backend, "stuck"), "the reason", 120)
        assert "node" in problem(backend, "stuck")
        assert backend.observe("stuck").limits_problem == ""

        until_limits_end(backend, job_file)
        kinds = lambda: {one.partition(" ")[0] for one in left(client, namespace, "stuck")}  # noqa: E731
        polling.wait_until(lambda: kinds() <= {"Job", "Pod"}, "all but the Job of the limits to go", 60)
        assert len(client.get(paths.collection("Job", namespace))["items"]) == 1

        backend.apply(make_job_file("still", make_job(), history=SharedHistory(claim=CLAIM)))
        begin = time.monotonic()
        Cluster(backend, "still").down()
        assert time.monotonic() - begin < 60
        assert left(client, namespace, "still") == []
    finally:
        client.send("DELETE", volume)
