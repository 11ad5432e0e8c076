"""A namespace with a queue of a real Kueue, and the job files for the queue."""

from __future__ import annotations

import os
import secrets
import subprocess
from pathlib import Path
from typing import Any

import open_claims
from job_files import job_file
from kube_api import APPLY, KubeApi
from observed import WAIT, Observed

from tfk8s import polling
from tfk8s.backends.kubernetes.backend import KubernetesBackend
from tfk8s.core.programs import Program
from tfk8s.core.quantity import Quantity
from tfk8s.core.spec import Job, JobFile

IMAGE = os.environ.get("TFK8S_TEST_IMAGE", "docker.io/tfk8s/test:dev")
OPERATOR = Path(__file__).with_name("operator.sh")
BUILT = os.environ.get("TFK8S_KUEUE", str(Path.home() / ".cache" / "tfk8s-kueue"))
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def install(context: str, settings: str = "") -> None:
    """Build Kueue, unless that was done, and run Kueue with these settings besides those of its module."""
    command = [str(OPERATOR), "install", context.removeprefix("kind-"), BUILT]
    subprocess.run(command, check=True, timeout=1800, env={**os.environ, "SETTINGS": settings})


class Team(Observed):
    """A namespace with the LocalQueue `gold`.

    Attributes:
        namespace: its name, which is the ClusterQueue's, too.
    """

    def __init__(self, client: KubeApi, quota: str, **spec: Any) -> None:
        self._client, self.namespace = client, f"tfk8s-kueue-{secrets.token_hex(3)}"
        self._cohort = spec.get("cohortName", "")
        self._made: list[str] = []
        self._apply("/api/v1/namespaces", "v1", "Namespace", self.namespace)
        self._apply(f"{KUEUE}/resourceflavors", "kueue.x-k8s.io/v1beta2", "ResourceFlavor", "tfk8s-any")
        self.set_queue(quota, **spec)
        self._make_local_queue("gold", self.namespace)
        self.backend = KubernetesBackend(namespace=self.namespace)

    def set_default_queue(self, **amounts: str) -> None:
        """Make the LocalQueue `default`, which Kueue gives Jobs that are in no queue, with an own ClusterQueue."""
        name = f"{self.namespace}-default"
        self._set_cluster_queue(name, {"cpu": "10", "memory": "64Gi", **amounts})
        self._make_local_queue("default", name)

    def _make_local_queue(self, name: str, cluster_queue: str) -> None:
        path = f"{KUEUE}/namespaces/{self.namespace}/localqueues"
        self._apply(path, "kueue.x-k8s.io/v1beta2", "LocalQueue", name, {"clusterQueue": cluster_queue})

    def set_queue(self, quota: str, **spec: Any) -> None:
        """Make the ClusterQueue anew, with a quota of cores; more fields of its spec may be given."""
        self._set_cluster_queue(self.namespace, {"cpu": quota, "memory": "64Gi"}, **spec)

    def _set_cluster_queue(self, name: str, amounts: dict[str, str], **spec: Any) -> None:
        resources = [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()]
        flavors = [{"name": "tfk8s-any", "resources": resources}]
        groups = [{"coveredResources": list(amounts), "flavors": flavors}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
        self._apply(f"{KUEUE}/clusterqueues", "kueue.x-k8s.io/v1beta2", "ClusterQueue", name, spec)

    def _apply(self, path: str, version: str, kind: str, name: str, spec: Any = None) -> None:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **({"spec": spec} if spec else {})}
        query = {"fieldManager": "tests", "force": "true"}
        polling.wait_until(  # the webhooks of a Kueue that has just started answer a little later
            lambda: self._client.request("PATCH", f"{path}/{name}", query, body, APPLY).status < 300, f"{kind}", WAIT
        )

    def pods(self, prefix: str = "") -> dict[str, Any]:
        """Return the pods of the namespace by name, those whose names begin with a prefix."""
        items = self._client.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {item["metadata"]["name"]: item for item in items if item["metadata"]["name"].startswith(prefix)}

    def make_claim(self, name: str) -> None:
        """Make a claim that every user can write to."""
        core, opener = f"/api/v1/namespaces/{self.namespace}", open_claims.opener(name, IMAGE)
        self._apply(
            f"{core}/persistentvolumeclaims", "v1", "PersistentVolumeClaim", name, open_claims.claim(name)["spec"]
        )
        self._apply(f"{core}/pods", "v1", "Pod", f"opener-{name}", opener["spec"])
        polling.wait_until(
            lambda: self.pods()[f"opener-{name}"]["status"]["phase"] == "Succeeded", "an open volume", WAIT
        )

    def until_limits_make_room(self, waiting: JobFile, words: str) -> None:
        """Wait until the limits have removed the cluster "a", so that another one runs.

        Args:
            waiting: the other cluster.
            words: the reason why it waits.
        """
        self.until_ready("a")
        self.until("a", lambda found: not found.limits_problem)
        self.backend.apply(waiting)
        self.until_said(waiting.name, words)
        self.until_ready(waiting.name)

    def workloads(self) -> dict[str, Any]:
        """Return the Workloads of the namespace by name."""
        items = self._client.get(f"{KUEUE}/namespaces/{self.namespace}/workloads")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def remove(self) -> None:
        """Remove the namespace with all that is in it, and its ClusterQueue."""
        # A namespace deletes its pods first, and waits for a Job that lets no pod go while it can make no other.
        jobs = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        self._client.send("DELETE", jobs, {"propagationPolicy": "Background"})
        self._client.send("DELETE", f"/api/v1/namespaces/{self.namespace}")
        for name in (self.namespace, f"{self.namespace}-default"):
            self._client.send("DELETE", f"{KUEUE}/clusterqueues/{name}")


def make_job(name: str, tasks: int = 1, **settings: Any) -> Job:
    """Return a job whose tasks request 100m cores each."""
    small = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("400Mi")}
    return Job(name=name, tasks=tasks, **{**small, **settings})


def cluster(name: str, *jobs: Job, **settings: Any) -> JobFile:
    """Return a job file for queue `gold`, by default with three servers."""
    jobs = jobs or (make_job("ps"), make_job("worker", 2))
    return job_file(name, *jobs, **{"image": IMAGE, "queue": "gold", **settings})


def programs(name: str, *words: str, tasks: int = 3, priority_class: str | None = None, **settings: Any) -> JobFile:
    """Return a job file with programs alone, which sleep unless words are given."""
    program = Program(words or ("sleep", "1000"))
    job = make_job("worker", tasks, program=program, priority_class=priority_class)
    return cluster(name, job, **settings)
