"""Fixtures of the tests with a real Karpenter, in the kind cluster of the current kubeconfig context."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job_files import job_file
from kube_api import APPLY, KubeApi

from tfk8s import polling
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile
from tfk8s.core.status import ClusterStatus

OPERATOR = Path(__file__).with_name("operator.sh")
BUILT = os.environ.get("TFK8S_KARPENTER", str(Path.home() / ".cache" / "tfk8s-karpenter"))
IMAGE = os.environ.get("TFK8S_TEST_IMAGE", "docker.io/tfk8s/test:dev")
POOL = "karpenter.sh/nodepool"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
TAINT = {"key": "tfk8s.dev/simulated", "effect": "NoSchedule"}
TOLERATION = {"key": "tfk8s.dev/simulated", "operator": "Exists"}
WAIT = 120.0
_SLOW = {"spec": {"nodeRegistrationDelay": "5s"}}  # as machines are, so that the start is seen


class Pool:
    """A NodePool of simulated nodes, and a namespace for clusters on them. Their pods run nothing.

    Attributes:
        name: of the NodePool, and of the namespace.
        backend: the back end for its clusters.
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

    def until_said(self, name: str, words: str) -> ClusterStatus:
        """Wait until the reason of each worker of a cluster has these words."""
        return self.until(
            name, lambda found: all(words in task.reason for task in found.tasks if task.task.job != "ps")
        )

    def until(self, name: str, condition: Callable[[ClusterStatus], object]) -> ClusterStatus:
        """Wait until the status of a cluster meets a condition; return the status."""
        seen: list[ClusterStatus] = []

        def is_met() -> object:
            seen[:] = [self.backend.observe(name)]
            return condition(seen[0])

        polling.wait_until(is_met, lambda: f"{name}: {[str(task.state) for task in seen[0].tasks[:5]]}", WAIT)
        return seen[0]

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
        polling.wait_until(lambda: not self._nodes(), "the end of the pool's nodes", WAIT)

    def _nodes(self) -> list[dict[str, Any]]:
        return [item for item in self._get("/api/v1/nodes") if item["metadata"]["labels"].get(POOL) == self.name]


@pytest.fixture(scope="session")
def client() -> KubeApi:
    return KubeApi()


@pytest.fixture(scope="session")
def karpenter(client: KubeApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Build Karpenter, unless that was done, and run Karpenter while the tests run."""
    subprocess.run([OPERATOR, "build", BUILT], check=True, timeout=1800)
    folder = tmp_path_factory.mktemp("karpenter")
    kubeconfig, log = folder / "kubeconfig", folder / "log"
    kubeconfig.write_bytes(
        subprocess.check_output(["kubectl", "config", "view", "--raw", "--minify", "--context", client.context])
    )
    with log.open("wb") as output:
        operator = subprocess.Popen([OPERATOR, "run", BUILT, kubeconfig], stdout=output, stderr=output)
        try:
            started = (
                '"controller":"nodepool.readiness","controllerGroup":"karpenter.sh","controllerKind":"NodePool","worker'
            )
            polling.wait_until(lambda: started in log.read_text() or operator.poll() is not None, "Karpenter", WAIT)
            assert operator.poll() is None, log.read_text()[-2000:]
            yield
        finally:
            operator.send_signal(signal.SIGTERM)
            operator.wait(timeout=60)


@pytest.fixture
def pool(client: KubeApi, karpenter: None) -> Iterator[Callable[..., Pool]]:
    """Makes pools: of spot nodes, unless another capacity is named, with a limit of cores."""
    made = []

    def make(capacity: str = "spot", cores: str = "64") -> Pool:
        made.append(Pool(client, capacity, cores))
        return made[-1]

    yield make
    for one in made:
        one.remove()
