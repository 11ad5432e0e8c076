"""TensorBoard's pod: the volumes of a cluster, and the pod's ends in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes.api_server.reflector import ObjectChange
from tfk8s.backends.kubernetes.scripts import script_pod, tensorboard_pod
from tfk8s.backends.kubernetes.scripts.tensorboard_pod import TensorBoardPod
from tfk8s.backends.kubernetes.workloads import deployed
from tfk8s.backends.kubernetes.workloads.deployed import DeployedCluster
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job
from tfk8s.core.storage.volumes import Volume
from tfk8s.errors import ClusterError, InvalidInput, Tfk8sError
from tfk8s.sessions.pod import tensorboard

HELP = "write event files to a volume of the job file, such as volumes: [{path: /logs, claim: CLAIM}]"
FLEETING = (Volume(path="/cache", size=Quantity.parse("1Gi")), Volume(path="/key", secret="key"))


def cluster(*volumes: Volume, of_workers: tuple[Volume, ...] = ()) -> DeployedCluster:
    jobs = Job(name="chief"), Job(name="worker", volumes=of_workers)
    made = job_file("mnist", *jobs, image="tf:1", master="chief", volumes=volumes)
    items = [item for item in render.objects(made, "ns") if item["kind"] == "StatefulSet"]
    return deployed.describe([{**item, "metadata": {"namespace": "ns", **item["metadata"]}} for item in items])


def found(cluster: DeployedCluster, folder: str | None) -> tuple[str, str]:
    workload, path = tensorboard_pod.find_folder(cluster, folder)
    return workload["metadata"]["name"], path


def test_only_volume_is_the_default() -> None:
    logs = cluster(Volume(path="/logs", claim="logs"), *FLEETING)
    assert found(logs, None) == ("mnist-chief", "/logs")
    assert found(logs, "/logs/run-1/") == ("mnist-chief", "/logs/run-1")


def test_volume_of_one_job() -> None:
    both = cluster(Volume(path="/data", claim="data"), of_workers=(Volume(path="/logs", claim="logs"),))
    assert found(both, "/logs") == ("mnist-worker", "/logs")
    assert found(both, "/data/a") == ("mnist-chief", "/data/a")


@pytest.mark.parametrize(
    ("volumes", "folder", "message", "advice"),
    [
        ((), None, 'no volume of cluster "mnist" outlives its pods', HELP),
        ((), "/logs", 'no volume of cluster "mnist" outlives its pods', HELP),
        (("/logs",), "/tmp", '"/tmp" is on no volume of cluster "mnist"; the only volume is /logs', HELP),
        (("/logs",), "logs", '"logs" is on no volume of cluster "mnist"; the only volume is /logs', HELP),
        (("/logs",), "/logs/../x", '"/logs/../x" is on no volume of cluster "mnist"; the only volume is /logs', HELP),
        (("/logs",), "/logs2", '"/logs2" is on no volume of cluster "mnist"; the only volume is /logs', HELP),
        (
            ("/data", "/logs"), None, 'cluster "mnist" has several volumes: /data, /logs',
            "name the folder of the event files: tfk8s tensorboard NAME /data",
        ),
    ],
)  # fmt: skip
def test_folders_on_no_volume(volumes: tuple[str, ...], folder: str | None, message: str, advice: str) -> None:
    made = cluster(*FLEETING, *(Volume(path=path, claim="claim") for path in volumes))
    with pytest.raises(InvalidInput) as raised:
        tensorboard_pod.find_folder(made, folder)
    assert (str(raised.value), raised.value.help) == (message, advice)


def pod(end: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    state = {"terminated": end} if end else {"running": {}}
    return {
        "metadata": {"name": "mnist-script-000000-x"},
        "spec": {
            "containers": [{"name": "script", "image": "tf:1", "resources": {"limits": {"memory": "4Gi"}}}],
            "nodeName": "node",
        },
        "status": {"containerStatuses": [{"name": "script", "state": state}], **status},
    }


def check(changed: ObjectChange | None) -> None:
    informer: Any = SimpleNamespace(last_change=lambda _: changed, client=None)
    TensorBoardPod(informer, cluster(Volume(path="/logs", claim="logs")), "script-000000", "/logs").require_running()


def test_running_pod() -> None:
    check(None)
    check(ObjectChange(False, pod()))


@pytest.mark.parametrize(
    ("last", "deleted", "message"),
    [
        (pod({"exitCode": 1, "reason": "Error"}), False, "TensorBoard ended with exit code 1: its messages are above"),
        (pod({"exitCode": 137, "reason": "OOMKilled"}), False, "TensorBoard was killed at its memory limit of 4Gi"),
        (pod(), True, "TensorBoard was ended: its pod was deleted"),
        (pod(phase="Failed", reason="NodeAffinity"), False, "TensorBoard was ended: its pod failed: NodeAffinity"),
        (
            pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory. "), False,
            "TensorBoard was lost with its pod: evicted by its node node (The node was low on resource: memory)",
        ),
    ],
)  # fmt: skip
def test_ends_of_the_pod(monkeypatch: pytest.MonkeyPatch, last: dict[str, Any], deleted: bool, message: str) -> None:
    monkeypatch.setattr(script_pod, "read", lambda *_: iter(()))
    with pytest.raises(ClusterError) as raised:
        check(ObjectChange(deleted, last))
    assert str(raised.value) == message


def test_messages_of_a_pod_that_ended_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script_pod, "read", lambda *_: iter(["error: pip ended with exit code 1", "  = help: …"]))
    with pytest.raises(Tfk8sError):
        check(ObjectChange(False, pod({"exitCode": 1, "reason": "Error"})))
    assert capsys.readouterr() == ("", "error: pip ended with exit code 1\n  = help: …\n")


def test_image_without_tensorboard() -> None:
    with pytest.raises(InvalidInput) as raised:
        check(ObjectChange(False, pod({"exitCode": tensorboard.NOT_INSTALLED, "reason": "Error"})))
    assert str(raised.value) == 'image "tf:1" has no TensorBoard'
    assert raised.value.help == "install it for this pod by --requirements FILE; the file needs the line: tensorboard"
