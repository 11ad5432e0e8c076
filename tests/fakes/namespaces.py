"""A backend that is a namespace of Kubernetes, or all of them, with clusters that are data."""

from __future__ import annotations

from dataclasses import replace

from job_files import job_file

from tfk8s.backends.options import BackendOptions
from tfk8s.core.status import ClusterStatus
from tfk8s.core.storage.volumes import KeptClaim
from tfk8s.errors import ClusterError
from tfk8s.testing import FakeBackend


class Namespace(FakeBackend):
    """A namespace with a cluster "mnist", which this user may not list if `refusal` says why.

    Attributes:
        listed: the number of lists.
        counted: the number of times that free GPUs were counted.
    """

    name = "kubernetes"

    def __init__(self, namespace: str, refusal: str = "") -> None:
        super().__init__(job_file())
        self.namespace, self.refusal = namespace, refusal
        self.listed = self.counted = 0
        found = self.statuses["mnist"]
        self.statuses["mnist"] = replace(found, location=f"namespace {namespace} of kind", namespace=namespace)

    @property
    def shared(self) -> Namespace:  # type: ignore[override]  # it has the one method that the page calls
        return self

    def free_gpus(self) -> str:
        self.counted += 1
        return "free: node-1 2 of 4 nvidia.com/gpu"

    def only_namespace(self) -> str:
        return ""

    def claims(self) -> list[KeptClaim]:
        return []

    def clusters(self) -> list[ClusterStatus]:
        self.listed += 1
        if self.refusal:
            raise ClusterError(self.refusal)
        return super().clusters()

    def locator(self, name: str) -> BackendOptions:
        return BackendOptions(local=False, namespace=self.namespace)


class AllNamespaces(Namespace):
    """A list of the clusters of other namespaces.

    Args:
        only: the namespace that the list is limited to; "" is no limit.
    """

    def __init__(self, *namespaces: Namespace, only: str = "") -> None:
        super().__init__("default")
        self._only = only
        self.namespaces = {one.namespace: one for one in namespaces}

    def clusters(self) -> list[ClusterStatus]:
        self.listed += 1
        return [status for one in self.namespaces.values() for status in one.statuses.values()]

    def only_namespace(self) -> str:
        return self._only
