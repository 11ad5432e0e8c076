"""A pool of nodes that a real Karpenter starts, and the job files for the pool."""

from __future__ import annotations

import os
import secrets
from typing import Any

from job_files import job_file
from kube_api import APPLY, KubeApi
from observed import WAIT, Observed

from tfk8s import polling
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile

IMAGE = os.environ.get("TFK8S_TEST_IMAGE", "docker.io/tfk8s/test:dev")
POOL = "karpenter.sh/nodepool"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
TAINT = {"key": "tfk8s.dev/simulated", "effect": "NoSchedule"}
TOLERATION = {"key": "tfk8s.dev/simulated", "operator": "Exists"}
_SLOW = {"spec": {"nodeRegistrationDelay": "5s"}}  # as machines are, so that the start is seen


class Pool(Observed):
    """A NodePool of simulated nodes, and a namespace for clusters on them. Their pods run nothing.

    Attributes:
        name: of the NodePool, and of the namespace.
    """

    def __init__(self, client: KubeApi, capacity: str, cores: str) -> None:
        self._client, self.name = client, f"tfk8s-{secrets.token_hex(3)}"
        self._apply("/api/v1/namespaces", "v1", "Namespace", {}, self.name)
        self._apply(CLASSES, "karpenter.kwok.sh/v1alpha1", "KWOKNodeClass", _SLOW, "tfk8s")
        requirements = [
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]},
        ]
        node_class = {"name": "tfk8s", "kind": "KWOKNodeClass", "group": "karpenter.kwok.sh"}
        template = {"requirements": requirements, "taints": [TAINT], "nodeClassRef": node_class, "expireAfter": "720h"}
        spec = {
            "template": {"spec": template}, "limits": {"cpu": cores},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1s"},
        }  # fmt: skip
        self._apply(POOLS, "karpenter.sh/v1", "NodePool", {"spec": spec}, self.name)
        self.backend = KubernetesBackend(namespace=self.name)

    def _apply(self, path: str, version: str, kind: str, more: dict[str, Any], name: str) -> None:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}
        query = {"fieldManager": "tests", "force": "true"}
        answer = self._client.request("PATCH", f"{path}/{name}", query, body, APPLY)
        assert answer.status < 300, answer

    def cluster(
        self, name: str, workers: int = 2, cpu: str = "1", gang: bool | None = None, **settings: Any
    ) -> JobFile:
        """Return a job file for a ps on a real node, and workers on nodes of the pool, unless they name others."""
        nodes = {} if "spot" in settings else {"node_selector": {POOL: self.name}}
        cores = Quantity.parse(cpu)
        worker = Job(name="worker", tasks=workers, cpu=cores, tolerations=(TOLERATION,), **nodes, **settings)
        return job_file(name, Job(name="ps"), worker, image=IMAGE, drain="allow", gang=gang)

    def labels(self, name: str) -> dict[str, dict[str, str]]:
        """Return the labels of the nodes of a cluster's pods, by the pod's name."""
        nodes = {item["metadata"]["name"]: item["metadata"]["labels"] for item in self._get("/api/v1/nodes")}
        pods = self._get(f"/api/v1/namespaces/{self.name}/pods")
        placed = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods}
        return {pod: nodes[node] for pod, node in placed.items() if pod.startswith(f"{name}-") and node in nodes}

    def _get(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._client.get(path)["items"]
        return items

    def remove(self) -> None:
        """Remove the namespace, the pool and its nodes."""
        self._client.send("DELETE", f"/api/v1/namespaces/{self.name}")
        self._client.send("DELETE", f"{POOLS}/{self.name}")
        polling.wait_until(self._is_empty, "the end of the pool's nodes", 3 * WAIT)  # 200 tasks end first

    def _is_empty(self) -> bool:
        """Return whether the pool has no node; delete those that have come after Karpenter had given them up."""
        nodes = self._nodes()
        for node in nodes:
            if any(taint["key"] == "karpenter.sh/unregistered" for taint in node["spec"].get("taints", ())):
                self._client.send("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")
        return not nodes

    def _nodes(self) -> list[dict[str, Any]]:
        return [item for item in self._get("/api/v1/nodes") if item["metadata"]["labels"].get(POOL) == self.name]
