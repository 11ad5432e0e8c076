"""A node with a few slots, and clusters whose tasks take one each."""

from __future__ import annotations

import os
import secrets
from typing import Any

from job_files import job_file
from kube_api import MERGE, KubeApi
from observed import WAIT, Observed

from tfk8s import polling
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.programs import Program
from tfk8s.core.spec import Job, JobFile

IMAGE = os.environ.get("TFK8S_TEST_IMAGE", "docker.io/tfk8s/test:dev")
SLOT = "example.com/slot"
IN_SLOT = {"containers": [{"name": "server", "resources": {"limits": {SLOT: "1"}, "requests": {SLOT: "1"}}}]}


class Floor(Observed):
    """A namespace on a cluster with one node."""

    def __init__(self, client: KubeApi) -> None:
        self._client, self.namespace = client, f"tfk8s-gang-{secrets.token_hex(3)}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        client.send("POST", "/api/v1/namespaces", body=body)
        self.backend = KubernetesBackend(namespace=self.namespace)

    def give(self, slots: int) -> None:
        """Let the node have this number of slots."""
        (node,) = self._client.get("/api/v1/nodes")["items"]
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        amounts = {SLOT: str(slots)}
        body = {"status": {"capacity": amounts, "allocatable": amounts}}
        self._client.send("PATCH", f"{path}/status", body=body, content_type=MERGE)
        polling.wait_until(
            lambda: self._client.get(path)["status"]["allocatable"].get(SLOT) == str(slots), "the node's slots", WAIT
        )

    def pods(self) -> dict[str, Any]:
        """Return the pods of tasks by name."""
        items = self._client.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {item["metadata"]["name"]: item for item in items if "lifetime" not in item["metadata"]["name"]}

    def placed(self) -> set[str]:
        """Return the clusters that have a pod with a node."""
        return {name.partition("-")[0] for name, pod in self.pods().items() if "nodeName" in pod["spec"]}

    def pod_groups(self) -> dict[str, Any]:
        """Return the PodGroups by name."""
        items = self._client.get(f"/apis/scheduling.k8s.io/v1beta1/namespaces/{self.namespace}/podgroups")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def min_count(self, name: str) -> int:
        """Return the number of tasks that a cluster's PodGroup starts together."""
        return int(self.pod_groups()[name]["spec"]["schedulingPolicy"]["gang"]["minCount"])


def servers(name: str, workers: int = 2, **settings: Any) -> JobFile:
    """Return a cluster of a ps and of workers, all of them servers."""
    return job_file(name, Job(name="ps"), Job(name="worker", tasks=workers), image=IMAGE, pod=IN_SLOT, **settings)


def programs(name: str, **settings: Any) -> JobFile:
    """Return a cluster of a ps and of two workers, all of them programs."""
    sleep = Program(("sleep", "1000"))
    jobs = (Job(name="ps", program=sleep), Job(name="worker", tasks=2, program=sleep))
    return job_file(name, *jobs, image=IMAGE, pod=IN_SLOT, **settings)
