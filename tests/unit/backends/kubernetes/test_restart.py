"""Restarts: whether kubelet restarts a container soon."""

from __future__ import annotations

from typing import Any

import pytest
from job_files import job_file

from tfk8s import render
from tfk8s.backends.kubernetes import restart
from tfk8s.backends.kubernetes.pods import pod_status
from tfk8s.backends.kubernetes.workloads import bad_nodes, deployed
from tfk8s.core.spec import Job, Task
from tfk8s.render import manifests
from tfk8s.render.pods import Object

START = pod_status.seconds("2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("state", "restarts", "after", "quick"),
    [
        ("running", 0, 5, True),
        ("running", 1, 5, True),
        ("running", 2, 5, False),  # kubelet would wait 20 s
        ("running", 9, 601, True),
        ("waiting", 0, 5, False),
    ],
)
def test_kubelet_delays_repeated_restarts(state: str, restarts: int, after: float, quick: bool) -> None:
    started: Object = {"startedAt": "2026-01-01T00:00:00Z"}
    container: Object = {"name": "server", "state": {state: started}, "restartCount": restarts}
    pod: Object = {"metadata": {}, "status": {"containerStatuses": [container]}}
    assert restart.restarts_quickly(pod, START + after) is quick
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not restart.restarts_quickly(pod, START + after)


class DeletingClient:
    """An API server with the pods of two tasks; it notes what is deleted, and takes no other changes."""

    def __init__(self) -> None:
        labels = {manifests.COMPONENT: "worker"}
        metadata = {"labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z", "uid": "1"}
        own = {"name": "server", "state": {"running": {}}, "ready": True, "restartCount": 0}
        status = {"phase": "Running", "containerStatuses": [own]}
        self.pods = [
            {
                "metadata": {**metadata, "name": f"demo-worker-{index}"},
                "spec": {"nodeName": f"node-{index}"}, "status": status,
            }
            for index in range(2)
        ]  # fmt: skip
        self.pods[1]["metadata"]["annotations"] = bad_nodes.lack_of_gpus(self.pods[1])
        self.deleted: list[str] = []

    def get(self, path: str, query: object) -> Object:
        return {"items": self.pods}

    def send(self, method: str, path: str) -> None:
        assert method == "DELETE"
        self.deleted.append(path.rpartition("/")[2])

    def delete_all(self, path: str, query: object) -> None:
        self.deleted.append("all")


def test_a_node_that_the_job_file_avoids_is_avoided_for_good(caplog: pytest.LogCaptureFixture) -> None:
    made = render.objects(job_file("demo", Job(name="worker", tasks=2), image="tf:1", avoid=("node-1",)), "ns")
    sets = [{**item, "metadata": {**item["metadata"], "uid": "u"}} for item in made if item["kind"] == "StatefulSet"]
    client: Any = DeletingClient()
    assert restart.replace_elsewhere(client, deployed.describe(sets), Task("worker", 1))
    restart.recreate_pods(client, "ns", "demo", sets)
    assert client.deleted == ["demo-worker-1", "all"]
    assert "starts away" not in caplog.text
