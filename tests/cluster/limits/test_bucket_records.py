"""The record of a cluster in a bucket, which a server on this machine has: pods write it, a colleague reads it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube_api import KubeApi
from moto_bucket import KEYS, make_bucket, moto_server
from on_cluster import make_job, make_job_file, until_limits_end

from tests.cluster.limits.test_records import writers
from tfk8s import api, polling
from tfk8s.backends.kubernetes.api_server import paths
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.cli.app import main
from tfk8s.cluster.handle import Cluster
from tfk8s.core.history.facts import REMOVED
from tfk8s.core.job_file.mappings import SharedHistory
from tfk8s.core.script import Script
from tfk8s.features.history.here import Past
from tfk8s.task.buckets import bucket_client

URL = "s3://team/past"
SECRET = "keys"
PLANTED = KEYS["AWS_SECRET_ACCESS_KEY"]
SCRIPT = 'print("said by the script")\n'


@pytest.fixture(scope="module")
def server(client: KubeApi) -> Iterator[str]:
    """The URL of a server that pods reach: at the address by which this machine reaches their node."""
    (node, *_) = client.get("/api/v1/nodes")["items"]
    address = next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        own = probe.getsockname()[0]
    with moto_server(own) as url:
        make_bucket(url, "team")
        yield url


@pytest.fixture(scope="module")
def team(make_namespace: Callable[[], str], client: KubeApi, server: str) -> str:
    """A namespace whose ConfigMap names the bucket."""
    name = make_namespace()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": KEYS}
    client.send("POST", f"/api/v1/namespaces/{name}/secrets", body=secret)
    place = {"bucket": URL, "endpoint": server, "secret": SECRET, "logs": True}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tfk8s-history"},
                  "data": {"history.yaml": json.dumps(place)}}  # fmt: skip
    client.send("POST", paths.collection("ConfigMap", name), body=config_map)
    return name


@pytest.fixture(autouse=True)
def home(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {**KEYS, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def kept(server: str) -> bytes:
    """Return what the bucket has."""
    client = bucket_client.of_environment(
        {**KEYS, "TFK8S_SECRET": "keys", "TFK8S_BUCKET": URL, "TFK8S_ENDPOINT": server}
    )
    try:
        return b"".join(client.get(found.name, 8 << 20) or b"" for found in [*client.list("", 10_000)])
    finally:
        client.close()


def test_a_colleague_reads_what_pods_have_written(
    client: KubeApi, team: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    cluster = Cluster(KubernetesBackend(namespace=team), "told")
    (tmp_path / "script.py").write_text(SCRIPT)
    with cluster.recorder.command("up", starts=True):
        cluster.apply(make_job_file("told", env={"PASSWORD": PLANTED}))
        cluster.wait(180)
    run = cluster.start(Script(path=tmp_path / "script.py", arguments=("--api-token", PLANTED)))
    polling.wait_until(lambda: cluster.status().scripts[-1].exit_code == 0, "the script to end", 120)
    polling.wait_until(lambda: b'"tasks"' in kept(server), "the record to be in the bucket", 120)
    (first,) = writers(client, team, "told")
    said = client.text(f"{paths.collection('Pod', team)}/{first}/log")
    client.send("DELETE", paths.pod(team, first))
    polling.wait_until(lambda: client.find(paths.pod(team, first)) is None, "the end of the first pod", 60)
    (second, *_) = polling.wait_until(lambda: set(writers(client, team, "told")) - {first}, "its successor", 120)
    said += client.text(f"{paths.collection('Pod', team)}/{second}/log")
    cluster.down()

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "colleague"))
    assert main(["history", "--shared", "-n", team]) == 0
    assert "of the shared history: 1 new" in capsys.readouterr().err
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    assert main(["history", "--bucket", URL]) == 0
    assert "of the shared history: 0 new, 0 changed, 1 as before" in capsys.readouterr().err
    (row,) = api.history("told")
    past = Past(row.name, row.number)
    entry = past.read()
    assert [(verb.verb, verb.exit_code) for verb in entry.verbs] == [("up", 0), ("submit", 0), ("down", None)]
    assert (row.state, row.reason, row.exit_code) == ("ended", REMOVED, 0)
    assert {task.task for task in entry.tasks} == {"worker/0", "worker/1"}
    assert "listens on port" in "\n".join(line.text for line in past.logs(["worker/0"]))
    assert "said by the script" in "\n".join(line.text for line in past.logs([run.name]))
    assert "Scheduled" in {event.reason for event in past.events()}
    read = b"".join(path.read_bytes() for path in (tmp_path / "colleague").rglob("*") if path.is_file())
    assert b"told" in read
    for content in (read, kept(server), said.encode(), caplog.text.encode()):
        assert PLANTED.encode() not in content


def test_a_bucket_that_refuses_costs_no_limit(client: KubeApi, team: str, server: str) -> None:
    backend = KubernetesBackend(namespace=team)
    history = SharedHistory(bucket="s3://nobody", endpoint=server, secret="missing")
    job_file = make_job_file("shut", make_job(), max_duration=3600, history=history)
    backend.apply(job_file)

    def said() -> str:
        record = backend.observe("shut").record
        assert record
        assert record.place == "bucket s3://nobody"
        return record.problem

    told = "the Secret missing is missing, or lacks AWS_ACCESS_KEY_ID"
    polling.wait_until(lambda: said() == told, "the reason", 120)
    until_limits_end(backend, job_file)
